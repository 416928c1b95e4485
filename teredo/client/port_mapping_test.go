// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// upnp adds a client whose gateway has reserved its port before it qualifies (RFC
// 6081 section 5.3.3).
func (w *world) upnp(nat *nattest.NAT) *clientNode {
	w.t.Helper()
	n := w.client(nat)
	n.do(func(_ time.Time, out *client.Out) { n.engine.Stop(out) })
	w.net.Run(4 * delay)
	nat.Restart()
	nat.Reserve(n.local)
	n.do(func(now time.Time, out *client.Out) {
		n.engine.PortMapped(netip.AddrPortFrom(nat.Public, n.local.Port()), now, out)
		n.engine.Start(now, out)
	})
	if !w.net.RunUntil(time.Second, func() bool { return n.engine.Snapshot().State == client.Qualified }) {
		w.t.Fatal("not qualified")
	}
	w.net.Run(4 * delay)
	if s := n.engine.Snapshot(); !s.PortMapped || s.UPnPMapped.IsValid() || s.Mapping.Port() != n.local.Port() {
		w.t.Fatalf("the server does not see the reserved port: %+v", s)
	}
	return n
}

// TestReservedPorts is the UPnP part of RFC 6081 figure 1. A reserved port is open
// to everybody, so that behind a NAT with endpoint-independent mapping even
// clients behind symmetric NATs reach it, for which the figure has no way.
func TestReservedPorts(t *testing.T) {
	type side struct {
		name     string
		kind     nattest.Kind
		reserved bool
	}
	var (
		cone       = side{"full cone", nattest.FullCone, false}
		restricted = side{"address-restricted", nattest.AddressRestricted, false}
		port       = side{"port-restricted", nattest.PortRestricted, false}
		symmetric  = side{"symmetric", nattest.SymmetricRandom, false}
		upnpPort   = side{"UPnP port-restricted", nattest.PortRestricted, true}
		upnpSymm   = side{"UPnP symmetric", nattest.SymmetricRandom, true}
	)
	for _, tt := range []struct {
		a, b side
		want bool
	}{
		{upnpPort, cone, true}, {upnpPort, restricted, true}, {upnpPort, port, true},
		{upnpPort, upnpPort, true}, {upnpPort, upnpSymm, true}, {upnpPort, symmetric, true},
		{upnpSymm, cone, true}, {upnpSymm, restricted, true}, {upnpSymm, upnpSymm, true},
		{upnpSymm, port, false}, {upnpSymm, symmetric, false},
	} {
		both := [][2]side{{tt.a, tt.b}, {tt.b, tt.a}}
		if tt.a == tt.b {
			both = both[:1]
		}
		for _, pair := range both {
			t.Run(pair[0].name+" to "+pair[1].name, func(t *testing.T) {
				w := newWorld(t)
				add := func(s side, public netip.Addr) *clientNode {
					nat := nattest.NewNAT(s.kind, public)
					if s.reserved {
						return w.upnp(nat)
					}
					return w.qualified(nat)
				}
				a, b := add(pair[0], natA), add(pair[1], natB)
				got, want := pingPair(w, a, b), 0
				if tt.want {
					want = pings
				}
				if got != want {
					t.Errorf("%d of %d answered, want %d; dropped %q and %q", got, pings, want, a.dropped(), b.dropped())
				}
			})
		}
	}
}

// The UPnP-Mapped Address/Port is zeroed behind a single NAT, and stays behind
// several.
func TestUPnPMapped(t *testing.T) {
	nested := netip.MustParseAddrPort("192.168.7.2:3551")
	tell := func(b *bench, external netip.AddrPort) []string {
		b.out.Reset()
		b.c.PortMapped(external, b.now, &b.out)
		return b.show()
	}
	t.Run("before the start", func(t *testing.T) {
		b := newBench(t)
		b.want("reserved", tell(b, mapping))
		b.begin(client.Server{Primary: primary})
		b.udp(primaryPort, b.answer(mapping))
		if s := b.c.Snapshot(); !s.PortMapped || s.UPnPMapped.IsValid() {
			t.Errorf("snapshot %+v", s)
		}
	})
	t.Run("behind the start, the same mapping", func(t *testing.T) {
		b := newQualified(t)
		b.want("reserved", tell(b, mapping))
		if s := b.c.Snapshot(); !s.PortMapped || s.UPnPMapped.IsValid() {
			t.Errorf("snapshot %+v", s)
		}
	})
	t.Run("behind the start, another mapping", func(t *testing.T) {
		b := newQualified(t)
		b.want("reserved", tell(b, nested), "to primary: solicitation")
		b.want("answer", b.udp(primaryPort, b.answer(mapping)))
		b.want("told again", tell(b, nested))
		if s := b.c.Snapshot(); !s.PortMapped || s.UPnPMapped != nested {
			t.Errorf("snapshot %+v", s)
		}
		b.want("given back", tell(b, netip.AddrPort{}))
		if s := b.c.Snapshot(); s.PortMapped || s.UPnPMapped.IsValid() {
			t.Errorf("snapshot %+v", s)
		}
	})
}

// oneWay is a client behind a single symmetric NAT with a reserved port that has
// learnt a symmetric peer, in words of RFC 6081 section 5.3.4.
func oneWay(t *testing.T, reserved, second netip.AddrPort) (b *bench, learnt []string) {
	t.Helper()
	b = newBench(t, func(c *client.Config) { c.RandomPorts = -1 })
	b.c.PortMapped(reserved, b.now, &b.out)
	b.begin(client.Server{Primary: primary, Secondary: secondPort.Addr()})
	b.udp(primaryPort, b.answer(mapping))
	b.udp(secondPort, advertisement(b.solicitation(secondPort), second))
	b.ip(data(b.address(), peerAddr, "one"))
	nonce := b.sentNonce()
	b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 7)))
	for range 2 { // the answer may have brought a newer nonce
		if got := b.udp(foreign, bubble(peerAddr, b.address(), nonce)); len(got) > 0 {
			return b, got
		}
	}
	t.Fatalf("not learnt, dropped %s", b.dropped())
	return nil, nil
}

// Bubbles and data go to the mapping in the peer's address when all four
// conditions of RFC 6081 sections 5.3.4.2 and 5.3.4.3 hold, and to the learnt one
// otherwise. Packets from the learnt mapping are accepted in any case.
func TestSymmetricToSymmetric(t *testing.T) {
	other := netip.AddrPortFrom(mapping.Addr(), 40001)
	for _, tt := range []struct {
		name             string
		reserved, second netip.AddrPort
		want             string
	}{
		{"single symmetric NAT with a reserved port", mapping, other, "peer"},
		{"no reserved port", netip.AddrPort{}, other, "foreign"},
		{"another NAT behind the reserved port", netip.MustParseAddrPort("192.168.7.2:3551"), other, "foreign"},
		{"not symmetric", mapping, mapping, "foreign"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, learnt := oneWay(t, tt.reserved, tt.second)
			b.want("learnt", learnt, "to "+tt.want+": bubble with nonce", "to "+tt.want+": one")
			b.want("data out", b.ip(data(b.address(), peerAddr, "two")), "to "+tt.want+": two")
			b.want("data in", b.udp(foreign, data(peerAddr, b.address(), "three")), "host: three")
			b.want("indirect bubble", b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 8)))[:1],
				"to "+tt.want+": bubble with nonce")
		})
	}
}

// Behind several NATs an indirect bubble tells the address that the nearest one has
// reserved beside the local one (RFC 6081 section 5.6.4.1).
func TestReservedPortIsAnAlternate(t *testing.T) {
	nested := netip.MustParseAddrPort("192.168.7.2:3551")
	for _, tt := range []struct {
		name     string
		reserved netip.AddrPort
		want     []netip.AddrPort
	}{
		{"nothing reserved", netip.AddrPort{}, []netip.AddrPort{local}},
		{"by the only NAT, whose mapping the address tells", mapping, []netip.AddrPort{local}},
		{"by one of several NATs", nested, []netip.AddrPort{local, nested}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.c.PortMapped(tt.reserved, b.now, &b.out)
			b.begin(client.Server{Primary: primary})
			b.udp(primaryPort, b.answer(mapping))
			b.ip(data(b.address(), peerAddr, "one"))
			var got []netip.AddrPort
			for _, d := range b.out.UDP {
				p, err := teredo.Parse(d.Payload)
				if err != nil {
					t.Fatal(err)
				}
				trailers, err := teredo.ParseTrailers(p.Trailers)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, trailers.AlternateList()...)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("alternates %v, want %v", got, tt.want)
			}
		})
	}
}
