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
	// Sequential mappings count up from the first; others preserve the local port
	// where they are endpoint-independent and are random where not.
	Sequential bool
}

// The five kinds that Teredo distinguishes.
var (
	FullCone            = Kind{"full cone", EndpointIndependent, EndpointIndependent, false}
	AddressRestricted   = Kind{"address-restricted", EndpointIndependent, AddressDependent, false}
	PortRestricted      = Kind{"port-restricted", EndpointIndependent, AddressAndPortDependent, false}
	SymmetricRandom     = Kind{"symmetric random", AddressAndPortDependent, AddressAndPortDependent, false}
	SymmetricSequential = Kind{"symmetric sequential", AddressAndPortDependent, AddressAndPortDependent, true}

	Kinds = []Kind{FullCone, AddressRestricted, PortRestricted, SymmetricRandom, SymmetricSequential}
)

// NAT translates between one public address and the hosts behind it. A mapping
// and a permission live for Timeout since the last outbound packet.
type NAT struct {
	Kind    Kind
	Public  netip.Addr
	Timeout time.Duration

	random *rand.Rand
	next   uint16
	out    map[flow]*mapping
	in     map[uint16]*mapping

	reserved map[uint16]netip.AddrPort
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
	n.out, n.in = map[flow]*mapping{}, map[uint16]*mapping{}
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
	if m == nil || now.Sub(m.used) >= n.Timeout {
		if m != nil {
			delete(n.in, m.port)
		}
		m = &mapping{flow: f, port: n.choose(inside.Port()), permitted: map[netip.AddrPort]time.Time{}}
		n.out[f], n.in[m.port] = m, m
	}
	m.used = now
	m.permitted[depends(n.Kind.Filtering, remote)] = now
	return netip.AddrPortFrom(n.Public, m.port)
}

// choose picks a free port.
func (n *NAT) choose(local uint16) uint16 {
	if n.keeps(local) {
		return local
	}
	port := local
	if n.Kind.Mapping != EndpointIndependent {
		port = n.pick()
	}
	for n.in[port] != nil {
		port = n.pick()
	}
	return port
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
	if inside, ok = n.reserved[port]; ok {
		return inside, true
	}
	m := n.in[port]
	if m == nil || now.Sub(m.used) >= n.Timeout {
		return inside, false
	}
	if n.Kind.Mapping != EndpointIndependent && m.flow.remote != depends(n.Kind.Mapping, remote) {
		return inside, false
	}
	since, ok := m.permitted[depends(n.Kind.Filtering, remote)]
	return m.flow.inside, ok && now.Sub(since) < n.Timeout
}
