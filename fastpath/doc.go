// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package fastpath carries packets of established peers in the kernel, by eBPF:
// native XDP or tc. It handles the common case; what it does not fully handle it
// leaves to the kernel, whose routes lead to the role's TUN device and so to its
// engine ("punt"), and what the engine would surely drop it drops under a named
// reason. Without it everything still works, only slower.
//
// An [Object] is the programs of one data path with their tables: it loads them, maps and
// pins the tables, and controls and counts. What the programs do, their C source, settings
// and constants are beside the role that they serve, in a package whose name ends in bpf;
// what they share is in bpf here, one header for each purpose: base.h is what programs and
// this package share. The objects that clang made of it are committed, so that no one
// needs clang to build Isthmus; see the generate.go of each.
//
// Who writes what:
//
//	slabs       as the role says
//	settings    the daemon
//	routes4     the daemon: which IPv4 destinations surely share a next hop
//	next hops   programs, each core its own, from what the kernel's routing
//	            answers; good for one generation, which the daemon ends whenever
//	            routes, links, neighbours or addresses change
//	counters    programs, each core its own; the daemon adds them up
//
// Package attach brings programs to devices, follow keeps their next hops in step with the
// host, pinned keeps what outlives the process, probe finds out what the kernel can do, and
// bypass what redirected packets would not meet.
package fastpath
