// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf

// The committed objects are what Debian's clang-14 makes of bpf; scripts/generate
// calls this with the right folders, and a test compares.

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type siit_settings -type device -type range6 -type pool6_prefix -type range4 -type length4 -type length6 -type mapping4 -type mapping6 -type mapped4 -type mapped6 -type neighbour -type counter -type siit_features -type reason -type verdict -type hook siit bpf/siit.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../fastpath/bpf -I../../translatebpf/bpf -I/usr/include/x86_64-linux-gnu
