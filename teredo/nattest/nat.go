// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package nattest is an IPv4 Internet for tests, in memory and in virtual time:
// nodes, a delay, and NATs in the words of RFC 4787. Engines run on it unchanged
// and without privilege; hours pass in milliseconds, the same way each time.
package nattest

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// Dependence says on what of the remote endpoint a NAT's behaviour depends (RFC
// 4787 sections 4.1 and 5).
type Dependence uint8

// Values of Dependence.
const (
	EndpointIndependent Dependence = iota
	AddressDependent
	AddressAndPortDependent
)

// Kind is a kind of NAT.
type Kind struct {
	Name      string
	Mapping   Dependence
	Filtering Dependence
	// Sequential mappings count up from the first; others are random. Where the
	// mapping is endpoint-independent the local port is preserved, as far as it
	// is free.
	Sequential bool
	// Preserving gives the first mapping of a local port the same port although
	// the mapping depends on the endpoint; only later ones are as above.
	Preserving bool
}

// The five kinds that Teredo distinguishes, and the sixth with both sorts of later
// mappings.
var (
	FullCone            = Kind{Name: "full cone"}
	AddressRestricted   = Kind{Name: "address-restricted", Filtering: AddressDependent}
	PortRestricted      = Kind{Name: "port-restricted", Filtering: AddressAndPortDependent}
	SymmetricRandom     = Kind{Name: "symmetric random", Mapping: AddressAndPortDependent, Filtering: AddressAndPortDependent}
	SymmetricSequential = Kind{Name: "symmetric sequential", Mapping: AddressAndPortDependent, Filtering: AddressAndPortDependent, Sequential: true}

	SymmetricPreserving = Kind{Name: "symmetric port-preserving", Mapping: AddressAndPortDependent,
		Filtering: AddressAndPortDependent, Preserving: true}
	SymmetricPreservingSequential = Kind{Name: "symmetric port-preserving, then sequential", Mapping: AddressAndPortDependent,
		Filtering: AddressAndPortDependent, Preserving: true, Sequential: true}

	// Kinds are the five, AllKinds all.
	Kinds    = []Kind{FullCone, AddressRestricted, PortRestricted, SymmetricRandom, SymmetricSequential}
	AllKinds = append(Kinds[:len(Kinds):len(Kinds)], SymmetricPreserving, SymmetricPreservingSequential)
)

// NAT translates between one public address and the hosts behind it. A mapping
// and a permission live for Timeout since the last outbound packet.
type NAT struct {
	Kind    Kind
	Public  netip.Addr
	Timeout time.Duration
	// Hairpin lets hosts behind the NAT reach each other at its public address
	// (RFC 4787 section 6).
	Hairpin bool
	// OpenInput makes the NAT take packets that no mapping lets in for itself:
	// they reach no one, but the port that they came to is no more free for a
	// mapping towards their sender. Linux routers without an input filter do that.
	OpenInput bool

	random *rand.Rand
	next   uint16
	out    map[flow]*mapping
	in     map[uint16]*mapping
	taken  map[taken]time.Time // by OpenInput

	reserved map[uint16]netip.AddrPort
}

// taken is a port of a NAT as it is known to a remote endpoint.
type taken struct {
	port   uint16
	remote netip.AddrPort
}

type flow struct{ inside, remote netip.AddrPort }

type mapping struct {
	flow      flow
	port      uint16
	used      time.Time
	permitted map[netip.AddrPort]time.Time
}

// NewNAT makes a NAT whose timeout is five minutes (RFC 4787 REQ-5).
func NewNAT(kind Kind, public netip.Addr) *NAT {
	n := &NAT{Kind: kind, Public: public, Timeout: 5 * time.Minute, random: rand.New(rand.NewPCG(1, 2))}
	n.Restart()
	return n
}

// Restart forgets all mappings. New ones get other ports where the kind does not
// preserve them.
func (n *NAT) Restart() {
	n.out, n.in, n.taken = map[flow]*mapping{}, map[uint16]*mapping{}, map[taken]time.Time{}
	if n.next == 0 {
		n.next = 20000
	}
}

// depends keeps of a remote endpoint what d depends on.
func depends(d Dependence, remote netip.AddrPort) netip.AddrPort {
	switch d {
	case EndpointIndependent:
		return netip.AddrPort{}
	case AddressDependent:
		return netip.AddrPortFrom(remote.Addr(), 0)
	}
	return remote
}

// Outbound translates the source of a packet from inside to remote.
func (n *NAT) Outbound(inside, remote netip.AddrPort, now time.Time) netip.AddrPort {
	f := flow{inside, depends(n.Kind.Mapping, remote)}
	m := n.out[f]
	if m != nil && n.isTaken(m.port, remote, now) {
		f = flow{inside, remote}
		m = n.out[f]
	}
	if m == nil || now.Sub(m.used) >= n.Timeout {
		if m != nil {
			delete(n.in, m.port)
		}
		m = &mapping{flow: f, port: n.choose(inside.Port(), remote, now), permitted: map[netip.AddrPort]time.Time{}}
		n.out[f], n.in[m.port] = m, m
	}
	m.used = now
	m.permitted[depends(n.Kind.Filtering, remote)] = now
	return netip.AddrPortFrom(n.Public, m.port)
}

// isTaken reports whether a packet from remote that no one was waiting for has made
// a port unusable towards it.
func (n *NAT) isTaken(port uint16, remote netip.AddrPort, now time.Time) bool {
	since, ok := n.taken[taken{port, remote}]
	return ok && now.Sub(since) < n.Timeout
}

// choose picks a port that is free towards remote.
func (n *NAT) choose(local uint16, remote netip.AddrPort, now time.Time) uint16 {
	if n.keeps(local) {
		return local
	}
	port := local
	if n.Kind.Mapping != EndpointIndependent && !n.Kind.Preserving {
		port = n.pick()
	}
	for n.holds(port, now) || n.isTaken(port, remote, now) {
		port = n.pick()
	}
	return port
}

// holds reports whether a mapping that lives has the port.
func (n *NAT) holds(port uint16, now time.Time) bool {
	m := n.in[port]
	return m != nil && now.Sub(m.used) < n.Timeout
}

func (n *NAT) pick() uint16 {
	if n.Kind.Sequential {
		n.next++
		return n.next
	}
	return uint16(20000 + n.random.IntN(40000))
}

// Inbound translates the destination of a packet from remote to a port of the
// public address; ok is false when the NAT drops it.
func (n *NAT) Inbound(remote netip.AddrPort, port uint16, now time.Time) (inside netip.AddrPort, ok bool) {
	inside, ok = n.admit(remote, port, now)
	if !ok && n.OpenInput {
		n.taken[taken{port, remote}] = now
	}
	return inside, ok
}

func (n *NAT) admit(remote netip.AddrPort, port uint16, now time.Time) (inside netip.AddrPort, ok bool) {
	if inside, ok = n.reserved[port]; ok {
		return inside, true
	}
	if !n.holds(port, now) || n.isTaken(port, remote, now) {
		return inside, false
	}
	m := n.in[port]
	if n.Kind.Mapping != EndpointIndependent && m.flow.remote != depends(n.Kind.Mapping, remote) {
		return inside, false
	}
	since, ok := m.permitted[depends(n.Kind.Filtering, remote)]
	return m.flow.inside, ok && now.Sub(since) < n.Timeout
}
