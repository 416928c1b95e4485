// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

func TestCarriedRules(t *testing.T) {
	solicitation := func(b *bench) []byte { return carriedBy(b.address(), teredo.DiscoverySolicitation) }
	words := func(b *bench) []byte { return data(peerAddr, b.address(), "x") }
	for _, tt := range []struct {
		name   string
		set    func(b *bench)
		from   netip.AddrPort
		packet func(b *bench) []byte
		sent   []string
		drop   string
	}{
		{name: "solicitation is answered by the relay", from: relayAddr, packet: solicitation, sent: []string{"to relay: bubble"}},
		{name: "advertisement is not", from: relayAddr, packet: func(b *bench) []byte { return carriedBy(b.address(), teredo.DiscoveryAdvertisement) }},
		{name: "data is delivered", from: relayAddr, packet: words, sent: []string{"host: x"}},
		{name: "data from another relay is not", from: foreign, packet: words, drop: "foreign_mapping 1"},
		{name: "data before we are bound is not", set: func(b *bench) { b.now = b.now.Add(time.Minute) }, from: relayAddr, packet: words, drop: "foreign_mapping 1"},
		{name: "from a client at a private address", from: relayAddr, drop: "not_global 1", packet: func(b *bench) []byte {
			return data(teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: netip.MustParseAddrPort("10.0.0.1:9")}.IP(), b.address(), "x")
		}},
		{name: "Neighbor Discovery is not for the host", from: relayAddr, drop: "neighbor_discovery 1", packet: func(b *bench) []byte {
			return icmp(peerAddr, b.address(), packet.ICMPv6Redirect)
		}},
		{name: "data without end", from: relayAddr, packet: words, sent: []string{"host: x"}, set: func(b *bench) {
			for range 1000 {
				b.udp(relayAddr, words(b))
			}
		}},
		{name: "solicitations without end", from: relayAddr, packet: solicitation, drop: "rate_limited 1", set: func(b *bench) {
			for range 8 {
				b.udp(relayAddr, solicitation(b))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := boundBench(t)
			if tt.set != nil {
				tt.set(b)
			}
			got := b.udp(tt.from, tt.packet(b))
			if fmt.Sprint(got) != fmt.Sprint(tt.sent) || b.dropped() != tt.drop {
				t.Errorf("output %q, want %q; dropped %q, want %q", got, tt.sent, b.dropped(), tt.drop)
			}
		})
	}
}

// A peer that is reached directly is not moved to the relay, whatever comes by it.
func TestCarriedPacketLeavesDirectWay(t *testing.T) {
	b := boundBench(t)
	b.udp(peerMapping, data(peerAddr, b.address(), "direct"))
	b.udp(relayAddr, data(peerAddr, b.address(), "carried"))
	if got := b.ip(data(b.address(), peerAddr, "x")); len(got) != 1 || b.out.UDP[0].To != peerMapping {
		t.Errorf("sent %q", got)
	}
}

// A peer that is asked whether its direct way is still open may answer by the
// relay: then it is reached there, until it speaks directly.
func TestCarriedAnswerToSolicitation(t *testing.T) {
	b := boundBench(t)
	to := func(what string, want netip.AddrPort) {
		t.Helper()
		b.ip(data(b.address(), peerAddr, "x"))
		if len(b.out.UDP) != 1 || b.out.UDP[0].To != want {
			t.Errorf("%s: sent %q", what, b.show())
		}
	}
	b.udp(peerMapping, bubble(peerAddr, b.address(), 7)) // a client with RFC 6081
	to("direct", peerMapping)
	b.now = b.now.Add(40 * time.Second)
	b.out.Reset()
	b.c.Tick(b.now, &b.out) // refreshes the binding
	b.bindStep(b.requestNonce())
	b.ip(data(b.address(), peerAddr, "waits")) // asks directly
	b.udp(relayAddr, data(peerAddr, b.address(), "carried"))
	to("carried", relayAddr)
	b.udp(relayAddr, data(peerAddr, b.address(), "carried again"))
	to("carried again", relayAddr)
	b.udp(peerMapping, data(peerAddr, b.address(), "direct"))
	to("direct again", peerMapping)
	b.udp(relayAddr, data(peerAddr, b.address(), "late"))
	to("still direct", peerMapping)
}

// A peer may name any relay: few are bound to at a time, none that is not global,
// none but for a peer that the host wants to reach.
func TestForeignRelaysAreBounded(t *testing.T) {
	b := boundBench(t)
	told := func(i byte, relay netip.AddrPort) []byte {
		peer := teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 4000)}
		tr := teredo.Trailers{HasNonce: true, Nonce: 5, Fallback: teredo.Fallback{Relay: relay}}
		return tr.AppendTo(teredo.AppendBubble(teredo.AppendOrigin(nil, peer.Mapped), peer.IP(), b.address()))
	}
	asked := map[netip.AddrPort]bool{}
	look := func() {
		for _, d := range b.out.UDP {
			if p, err := teredo.Parse(d.Payload); err == nil && p.IPv6.Dst() == teredo.AllRouters {
				asked[d.To] = true
			}
		}
	}
	for i := range byte(20) {
		b.now = b.now.Add(100 * time.Millisecond)
		peer := teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 4000)}.IP()
		relay := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, 100 + i}), 3545)
		if i == 3 {
			relay = netip.MustParseAddrPort("10.0.0.1:3545")
		}
		if i != 4 {
			b.ip(data(b.address(), peer, "x"))
		}
		b.udp(primaryPort, told(i, relay))
		look()
	}
	for range 8 {
		b.tick()
		look()
	}
	delete(asked, relayAddr)
	for a := range asked {
		if a.Addr().IsPrivate() || a.Addr() == netip.AddrFrom4([4]byte{198, 51, 100, 104}) {
			t.Errorf("asked %s", a)
		}
	}
	if len(asked) == 0 || len(asked) > 7 {
		t.Errorf("%d relays of peers were asked, want 1 to 7", len(asked))
	}
}

// Few peers wait for one binding; the others repeat their bubbles by themselves.
func TestWaitingForARelayIsBounded(t *testing.T) {
	const peers, room = 6, 4
	b := boundBench(t)
	for i := range uint16(peers) {
		mapped := netip.AddrPortFrom(peerMapping.Addr(), 5000+i)
		peer := teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: mapped}.IP()
		b.ip(data(b.address(), peer, "x"))
		tr := teredo.Trailers{HasNonce: true, Nonce: 5, Fallback: teredo.Fallback{Relay: otherRelay}}
		b.udp(primaryPort, throughServer(mapped, withTrailers(peer, b.address(), tr)))
	}
	b.now = b.now.Add(2 * time.Second) // the second attempt of all
	b.out.Reset()
	b.c.Tick(b.now, &b.out)
	asked := func() (n int) {
		for _, s := range b.show() {
			if s == "to "+otherRelay.String()+": bubble" {
				n++
			}
		}
		return n
	}
	nonce := b.requestNonceTo(otherRelay)
	if n := asked(); n != 0 {
		t.Errorf("%d peers were asked before the client is bound", n)
	}
	b.udp(otherRelay, challengeFrom(b.address(), nonce, mapping))
	if n := asked(); n != room {
		t.Errorf("%d peers had waited, want %d", n, room)
	}
	b.now = b.now.Add(2 * time.Second)
	b.out.Reset()
	b.c.Tick(b.now, &b.out)
	if n := asked(); n != peers {
		t.Errorf("%d peers were asked by the next attempt, want %d", n, peers)
	}
}

// FuzzFallback sends a client with a fall-back anything, by all who may send: it
// must not panic, send to addresses that are not global, or answer one packet with
// many.
func FuzzFallback(f *testing.F) {
	own := newQualified(f, fallback(relayAddr)).address()
	tr := teredo.Trailers{HasNonce: true, Nonce: 7, Fallback: teredo.Fallback{Relay: otherRelay, Symmetric: true}}
	for _, p := range [][]byte{
		challengeFrom(own, 7, netip.AddrPort{}), challengeFrom(own, 7, mapping), carriedBy(own, teredo.DiscoverySolicitation),
		carriedBy(own, teredo.DiscoveryAdvertisement), data(peerAddr, own, "x"),
		tr.AppendTo(teredo.AppendBubble(teredo.AppendOrigin(nil, peerMapping), peerAddr, own)),
		teredo.AppendBubble(teredo.AppendOrigin(nil, relayAddr), teredo.BindingAddress(teredo.BindingProof, 1), own),
	} {
		for i := range sources {
			f.Add(p, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, from uint8) {
		b := boundBench(t)
		b.ip(data(own, peerAddr, "waits"))
		for range 3 {
			b.out.Reset()
			b.c.HandleUDP(sources[int(from)%len(sources)], bytes.Clone(payload), b.now, &b.out)
			if len(b.out.UDP) > 4 || len(b.out.IP) > 1 {
				t.Fatalf("%q for one packet", b.show())
			}
			var check teredo.GlobalCheck
			for _, d := range b.out.UDP {
				if d.To.Port() == 0 || !check.OK(d.To.Addr()) {
					t.Fatalf("sent to %s", d.To)
				}
			}
			b.now = b.now.Add(2 * time.Second)
			b.c.Tick(b.now, &b.out)
		}
	})
}
