// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package state is the memory of a NAT64 (RFC 6146): bindings (the BIBs), sessions,
// clients with their blocks of ports, and the ports in use. It lies in flat slabs that
// an eBPF fast path shares; translate/nat64/nat64bpf/bpf/nat64_layout.h is the contract.
//
// Both sides make bindings and sessions and change a session's word. This side alone
// ends them, makes and ends subscribers, leases blocks and makes room in indexes. Here,
// methods that only look ([Table.Find6], [Table.Find4], [Table.View] and the like) and
// [Table.Step] and [Table.Touch] may be called at any time by anybody; all others by one
// caller at a time. The programs run beside either.
//
// What a method finds is a copy as of that moment. A method that takes such a copy back
// says so when the record has changed since ([Table.Step]), or has ended.
//
// Nothing here knows lifetimes, filtering or what a packet is: that is the engine's.
//
//house:part
package state
