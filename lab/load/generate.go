// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

// The objects are committed: building needs neither clang nor root.
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package load -target bpfel -type settings -type progress -type lane -type peer generator bpf/generator.c -- -O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package load -target bpfel meter bpf/meter.c -- -O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package load -target bpfel -type answer_kind answer bpf/answer.c -- -O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package load -target bpfel -type probe_settings -type probe_progress probe bpf/probe.c -- -O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -go-package load -target bpfel -type cpu usage bpf/usage.c -- -O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
