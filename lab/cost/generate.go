// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

// The objects are committed: building needs neither clang nor root.
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package cost -target amd64,arm64 -type template programs bpf/cost.c -- -O2 -mcpu=v3 -g -Wall -Wextra -Werror -I../../teredo/teredobpf/bpf -I../../fastpath/bpf -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package cost -target amd64,arm64 -no-global-types -type part natPrograms bpf/nat64.c -- -O2 -mcpu=v3 -g -Wall -Wextra -Werror -I../../translate/nat64/nat64bpf/bpf -I../../translate/translatebpf/bpf -I../../fastpath/bpf -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package cost -target amd64,arm64 -no-global-types -type part siitPrograms bpf/siit.c -- -O2 -mcpu=v3 -g -Wall -Wextra -Werror -I../../translate/siit/siitbpf/bpf -I../../translate/translatebpf/bpf -I../../fastpath/bpf -I/usr/include/x86_64-linux-gnu
