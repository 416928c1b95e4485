// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package nat64 is the engine of a stateful NAT64 (RFC 6146): packets and the time in,
// packets and events out. One file stands for each step of the RFC: tuple.go finds the
// incoming tuple (section 3.4), filter_udp.go, filter_icmp.go and tcp.go filter and
// update the state (3.5), outgoing.go computes the outgoing tuple (3.6), send.go
// translates (3.7) and hairpin.go turns packets round (3.8).
//
// Bindings and sessions lie in a [state.Table], which an eBPF program may share: it
// creates what it can and leaves the rest to the engine. Clients, their pool addresses
// and blocks of ports, waiting packets and fragments are the engine's alone.
//
// Words: X',x is an IPv6 host with its port, T,t the pool address and port it is bound
// to, Z,z the IPv4 host. An ICMP query has its identifier in x and t; z is 0.
//
//house:engine
package nat64
