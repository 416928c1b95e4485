// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package nat64bpf is the fast path of a NAT64 in eBPF: programs, their tables and settings.
// What programs and this package share is in bpf/nat64_settings.h and bpf/nat64_layout.h.
//
// The state is written by both sides, as translate/nat64/state says: programs make bindings
// and sessions of clients that the engine knows, and bring a session's word up to date; the
// engine makes them too, and alone ends them. Stored SYNs ([Waiting]) are the engine's.
package nat64bpf
