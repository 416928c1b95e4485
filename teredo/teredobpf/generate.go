// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

// The committed objects are what Debian's clang-14 makes of bpf; scripts/generate
// calls this with the right folders, and a test compares.

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type relay_settings -type device -type range6 -type bucket -type slot -type mapping -type address6 -type neighbour -type counter -type features -type reason -type verdict -type hook teredo bpf/teredo.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../fastpath/bpf -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type host_client -type endpoint_key -type endpoint -type host_limits host bpf/host.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-function -I../../fastpath/bpf -I/usr/include/x86_64-linux-gnu
