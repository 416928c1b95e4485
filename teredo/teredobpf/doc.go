// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package teredobpf is the fast path of Teredo relays and clients in eBPF: programs, their
// tables and settings. What programs and this package share is in bpf/layout.h.
//
// Who writes what, beside what package fastpath says:
//
//	peers       the engine; programs stamp the time of last reception, by
//	            compare-and-swap, so that no peer that is gone comes back
//	foreign     the engine: mappings that are not in their peer's address
//	under test  the engine: how many clients with one hash it tests
package teredobpf
