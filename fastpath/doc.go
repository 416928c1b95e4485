// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package fastpath carries packets of established peers in the kernel, by eBPF:
// native XDP or tc. It handles the common case; what it does not fully handle it
// leaves to the kernel, whose routes lead to the role's TUN device and so to its
// engine ("punt"), and what the engine would surely drop it drops under a named
// reason. Without it everything still works, only slower.
//
// The C source lies in bpf, one file for each purpose; what programs and this package
// share is in bpf/base.h and bpf/layout.h, for translators in bpf/translate_settings.h, for
// NAT64 in bpf/nat64_settings.h and bpf/nat64_layout.h, and for stateless translators in
// bpf/siit_settings.h. The objects that clang made of it are committed, so that nobody
// needs clang to build Isthmus; see generate.go.
//
// Who writes what:
//
//	peers       the engine; programs stamp the time of last reception, by
//	            compare-and-swap, so that no peer that is gone comes back
//	foreign     the engine: mappings that are not in their peer's address
//	under test  the engine: how many clients with one hash it tests
//	settings    the daemon
//	routes4     the daemon: which IPv4 destinations surely share a next hop
//	next hops   programs, each core its own, from what the kernel's routing
//	            answers; good for one generation, which the daemon ends whenever
//	            routes, links, neighbours or addresses change
//	counters    programs, each core its own; the daemon adds them up
//
// The state of a NAT64 is written by both sides, as translate/nat64/state says: programs
// make bindings and sessions of clients that the engine knows, and bring a session's
// word up to date; the engine makes them too, and alone ends them. Stored SYNs
// ([Waiting]) are the engine's.
//
// A stateless translator ([SIIT]) has no state: its mappings are copies of the engine's,
// which the daemon alone writes, while programs pass all packets.
package fastpath
