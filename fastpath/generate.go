// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

// The committed objects are what Debian's clang-14 makes of bpf; scripts/generate
// calls this with the right folders, and a test compares.

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type relay_settings -type device -type range6 -type bucket -type slot -type mapping -type address6 -type neighbour -type counter -type features -type reason -type verdict -type hook teredo bpf/teredo.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type host_client -type endpoint_key -type endpoint -type host_limits host bpf/host.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-function -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type nat64_settings -type device -type range6 -type pool6_prefix -type pool4_range -type nat64_head -type session -type binding -type subscriber -type pool_address -type index_bucket -type nat64_cursor -type neighbour -type counter -type nat64_features -type reason -type verdict -type hook -type transport -type session_state nat64 bpf/nat64.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type siit_settings -type device -type range6 -type pool6_prefix -type range4 -type length4 -type length6 -type mapping4 -type mapping6 -type mapped4 -type mapped6 -type neighbour -type counter -type siit_features -type reason -type verdict -type hook siit bpf/siit.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -no-global-types -type losing -type loss losses bpf/losses.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu
