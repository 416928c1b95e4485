// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nattest

import (
	"net/netip"
	"testing"
	"time"
)

// Each kind against RFC 4787: is the mapping the same towards two remote
// endpoints, and who gets in after a packet went out to the first?
func TestKinds(t *testing.T) {
	inside := netip.MustParseAddrPort("192.168.1.2:3551")
	a := netip.MustParseAddrPort("203.0.113.1:3544")
	samePort := netip.MustParseAddrPort("203.0.113.2:3544")
	sameAddr := netip.MustParseAddrPort("203.0.113.1:9999")
	now := time.Unix(0, 0)
	for _, tt := range []struct {
		kind                     Kind
		one, sameAddrIn, otherIn bool
	}{
		{FullCone, true, true, true},
		{AddressRestricted, true, true, false},
		{PortRestricted, true, false, false},
		{SymmetricRandom, false, false, false},
		{SymmetricSequential, false, false, false},
	} {
		t.Run(tt.kind.Name, func(t *testing.T) {
			n := NewNAT(tt.kind, netip.MustParseAddr("198.51.100.7"))
			first := n.Outbound(inside, a, now)
			in := func(from netip.AddrPort, at time.Time) bool {
				got, ok := n.Inbound(from, first.Port(), at)
				return ok && got == inside
			}
			if !in(a, now) {
				t.Error("the answer does not get in")
			}
			if got := in(sameAddr, now); got != tt.sameAddrIn {
				t.Errorf("another port of the same address gets in: %v", got)
			}
			if got := in(samePort, now); got != tt.otherIn {
				t.Errorf("another address gets in: %v", got)
			}
			if in(a, now.Add(n.Timeout)) {
				t.Error("the mapping does not time out")
			}
			if got := n.Outbound(inside, samePort, now) == first; got != tt.one {
				t.Errorf("one mapping for two addresses: %v", got)
			}
		})
	}
}

func TestSequentialPortsCountUp(t *testing.T) {
	n := NewNAT(SymmetricSequential, netip.MustParseAddr("198.51.100.7"))
	inside := netip.MustParseAddrPort("192.168.1.2:3551")
	now := time.Unix(0, 0)
	a := n.Outbound(inside, netip.MustParseAddrPort("203.0.113.1:3544"), now)
	b := n.Outbound(inside, netip.MustParseAddrPort("203.0.113.2:3544"), now)
	if b.Port() != a.Port()+1 {
		t.Errorf("ports %d and %d", a.Port(), b.Port())
	}
}
