// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf

// The committed objects are what Debian's clang-14 makes of bpf; scripts/generate
// calls this with the right folders, and a test compares.

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type ggsn_settings -type device -type context -type way -type rate -type aggregate -type inside4 -type inside6 -type neighbour -type counter -type ggsn_features -type reason -type verdict -type hook ggsn bpf/ggsn.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../fastpath/bpf -I/usr/include/x86_64-linux-gnu
