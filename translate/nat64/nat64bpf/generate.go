// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

// The committed objects are what Debian's clang-14 makes of bpf; scripts/generate
// calls this with the right folders, and a test compares.

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type nat64_settings -type device -type range6 -type pool6_prefix -type pool4_range -type nat64_head -type session -type binding -type subscriber -type pool_address -type index_bucket -type nat64_cursor -type neighbour -type counter -type nat64_features -type reason -type verdict -type hook -type transport -type session_state nat64 bpf/nat64.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../fastpath/bpf -I../../translatebpf/bpf -I/usr/include/x86_64-linux-gnu
