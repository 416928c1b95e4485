// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// callFrom is the Teredo address of the n-th caller at a mapping, each with another server.
func callFrom(n int, mapped netip.AddrPort) netip.Addr {
	return teredo.Addr{Prefix: teredo.Prefix, Server: netip.AddrFrom4([4]byte{45, byte(n >> 16), byte(n >> 8), byte(n)}), Mapped: mapped}.IP()
}

// forged is a mapping in a network that few others are in.
func forged(n int) netip.AddrPort {
	h := uint32(n) * 0x9e3779b1
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(20 + h>>26), byte(h >> 16), byte(h >> 8), byte(h)}), 4000)
}

// flooders are the sources of a flood of bubbles.
var flooders = []struct {
	name   string
	caller func(n int) netip.Addr
	// What may go to one IPv4 address within ten seconds of the flood, and how many
	// peers may be kept of it.
	toOne, peers int
}{
	{"one host, free servers", func(n int) netip.Addr { return callFrom(n, attackerPort) }, 20 + 10*10, 32},
	{"one host, one server, free flags", func(n int) netip.Addr {
		return teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Flags: teredo.Flags(n & 0x3cff), Mapped: attackerPort}.IP()
	}, 20 + 10*10, 32},
	{"a /24, free servers", func(n int) netip.Addr {
		return callFrom(n, netip.AddrPortFrom(netip.AddrFrom4([4]byte{80, 1, 2, byte(n)}), uint16(1024+n>>8)))
	}, 20 + 10*10, 64},
	{"forged hosts everywhere, one server", func(n int) netip.Addr {
		return teredo.Addr{Prefix: teredo.Prefix, Server: attackerPort.Addr(), Mapped: forged(n)}.IP()
	}, 20 + 10*10, 1024},
	{"forged hosts everywhere, free servers", func(n int) netip.Addr {
		return callFrom(n, forged(n))
	}, 20 + 10*10, 1024},
}

var attackerPort = netip.MustParseAddrPort("80.9.9.9:4000")

// A flood of bubbles from strangers is no way to reach a third party, takes few places, and
// keeps neither newcomers nor peers that are known from being answered.
func TestBubblesBesideAFlood(t *testing.T) {
	const rate, seconds, newcomers = 3000, 10, 20
	for _, tt := range flooders {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t)
			own := b.address()
			b.trusted()
			sent := map[netip.Addr]int{}
			answered, known, sum := 0, 0, 0
			begin := b.now
			for n := range rate * seconds {
				b.now = begin.Add(time.Duration(n) * time.Second / rate)
				src := tt.caller(n)
				a16 := src.As16()
				b.udp(primaryPort, throughServer(teredo.Mapped(&a16), bubble(src, own, 7)))
				for _, d := range b.out.UDP {
					sent[d.To.Addr()]++
					sum++
				}
				if n%(rate*seconds/newcomers) != rate*seconds/newcomers-1 {
					continue
				}
				m := netip.AddrPortFrom(netip.AddrFrom4([4]byte{90, byte(n >> 8), byte(n), 1}), 5000)
				b.udp(primaryPort, throughServer(m, bubble(callFrom(n, m), own, 9)))
				for _, d := range b.out.UDP {
					if d.To == m {
						answered++
					}
				}
				b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, own, 9)))
				for _, d := range b.out.UDP {
					if d.To == peerMapping {
						known++
					}
				}
			}
			most, where := 0, netip.Addr{}
			for a, n := range sent {
				if n > most {
					most, where = n, a
				}
			}
			peers := b.c.Snapshot().Peers
			t.Logf("%d bubbles: %d datagrams, at most %d to one address; %d peers; %d of %d newcomers and %d of %d bubbles of a known peer answered",
				rate*seconds, sum, most, peers, answered, newcomers, known, newcomers)
			if most > tt.toOne {
				t.Errorf("%d datagrams to %v, want %d at most", most, where, tt.toOne)
			}
			if most := tt.peers + newcomers + 1; peers > most {
				t.Errorf("%d peers, want %d at most", peers, most)
			}
			if answered != newcomers || known != newcomers {
				t.Errorf("%d of %d newcomers and %d of as many bubbles of a known peer were answered", answered, newcomers, known)
			}
		})
	}
}

// A stranger beyond the share of its network is answered once, and meets us by that: what
// it then sends directly makes it a peer.
func TestStrangerWithoutAPlace(t *testing.T) {
	b := newQualified(t)
	for n := range 1000 {
		m := netip.AddrPortFrom(netip.AddrFrom4([4]byte{80, 1, 2, byte(n)}), uint16(1024+n>>8))
		b.udp(primaryPort, throughServer(m, bubble(callFrom(n, m), b.address(), 7)))
		b.now = b.now.Add(20 * time.Millisecond)
	}
	b.now = b.now.Add(5 * time.Second)
	m := netip.MustParseAddrPort("80.1.2.250:999")
	src := callFrom(5000, m)
	before := b.c.Snapshot().Peers
	b.want("bubble", b.udp(primaryPort, throughServer(m, bubble(src, b.address(), 7))), fmt.Sprintf("to %v: bubble with nonce", m))
	if got := b.c.Snapshot().Peers; got != before {
		t.Errorf("%d peers became %d", before, got)
	}
	b.want("data", b.udp(m, data(src, b.address(), "in")), "host: in")
}

// Callers that do not come back are forgotten, and their places are free again.
func TestCallersAreForgotten(t *testing.T) {
	b := newQualified(t, func(c *client.Config) { c.Refresh = time.Hour })
	for round := range 3 {
		for n := range 100 {
			b.udp(primaryPort, throughServer(attackerPort, bubble(callFrom(round<<8|n, attackerPort), b.address(), 7)))
		}
		if got := b.c.Snapshot().Peers; got == 0 {
			t.Fatalf("round %d: no place", round)
		}
		for range 5 {
			b.now = b.now.Add(20 * time.Second)
			b.out.Reset()
			b.c.Tick(b.now, &b.out)
		}
		if got := b.c.Snapshot().Peers; got != 0 {
			t.Fatalf("round %d: %d peers after a minute and a half", round, got)
		}
	}
}

// Strangers whose packets come directly, from forged addresses, do not take the place of a
// peer that is in use.
func TestForgedPeersSpareTheTable(t *testing.T) {
	b := newQualified(t, func(c *client.Config) { c.MaxPeers = 640 })
	b.trusted()
	for n := range 30_000 { // in 10 s
		m := forged(n)
		b.udp(m, data(callFrom(n, m), b.address(), "x"))
		b.now = b.now.Add(time.Second / 3000)
	}
	b.want("to the peer", b.ip(packet.IPv6(data(b.address(), peerAddr, "hi"))), "to peer: hi")
}

// Whatever fills the list, strangers take no place of a peer that is proved or that the host
// seeks, by whichever way they come; those that have expired make room.
func TestFullTableSparesTheHost(t *testing.T) {
	const places = 640
	direct := func(b *bench, n int) { b.udp(forged(n), data(callFrom(n, forged(n)), b.address(), "x")) }
	called := func(b *bench, n int) {
		b.udp(primaryPort, throughServer(forged(n), bubble(callFrom(n, forged(n)), b.address(), 7)))
	}
	carried := func(b *bench, n int) { b.udp(relayAddr, data(callFrom(n, forged(n)), b.address(), "x")) }
	proved := func(b *bench, n int) {
		if n < places-3 { // for those that the host will seek
			b.ip(data(b.address(), netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 2: 0x0d, 3: 0xb8, 14: byte(n >> 8), 15: byte(n)}), "x"))
			b.udp(relayAddr, b.echoReply())
		}
	}
	friend := callFrom(0, foreign)
	for _, tt := range []struct {
		name        string
		fill, flood func(b *bench, n int)
	}{
		{"direct packets", proved, direct},
		{"bubbles through the server", proved, called},
		{"carried packets", proved, carried},
		{"strangers alone", carried, carried},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, fallback(relayAddr), func(c *client.Config) { c.MaxPeers = places })
			b.bindStep(b.requestNonce())
			for n := range 2 * places {
				tt.fill(b, n)
			}
			b.now = b.now.Add(31 * time.Second)
			b.want("a newcomer", b.udp(foreign, data(friend, b.address(), "in")), "host: in")
			b.ip(data(b.address(), netip.MustParseAddr("2001:db8:1::1"), "one"))
			reply := b.echoReply()
			b.ip(data(b.address(), peerAddr, "two"))
			b.ip(data(b.address(), netip.MustParseAddr("2001:db8:1::2"), "three"))
			for n := range 2 * places {
				b.now = b.now.Add(time.Millisecond)
				tt.flood(b, 2*places+n)
			}
			b.want("reply of the host", b.udp(relayAddr, reply), "to relay: one")
			b.want("answer of the client", b.udp(peerMapping, bubble(peerAddr, b.address(), 0)), "to peer: two")
			b.want("to the newcomer", b.ip(data(b.address(), friend, "out")), "to foreign: out")
		})
	}
}

// What goes to one IPv4 address, by the mapped address and by the server that strangers
// name, keeps its limit when they announce ports of their own, behind every NAT of ours.
func TestPortsBesideAFlood(t *testing.T) {
	const rate, seconds = 3000, 10
	const most = 40 + 20*seconds
	for _, tt := range []struct {
		name  string
		bench func(testing.TB) *bench
	}{
		{"no symmetric NAT", func(t testing.TB) *bench { return newQualified(t) }},
		{"ports preserved", func(t testing.TB) *bench { return newSymmetric(t, preserved) }},
		{"ports in sequence", func(t testing.TB) *bench { return newSymmetric(t, mapping) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.bench(t)
			own, begin, sent := b.address(), b.now, 0
			count := func() {
				for _, d := range b.out.UDP {
					if d.To.Addr() == attackerPort.Addr() {
						sent++
					}
				}
			}
			for n := range rate * seconds {
				b.now = begin.Add(time.Duration(n) * time.Second / rate)
				b.out.Reset()
				b.c.Tick(b.now, &b.out)
				count()
				src := teredo.Addr{Prefix: teredo.Prefix, Server: attackerPort.Addr(), Flags: teredo.Flags(n & 0x3f), Mapped: attackerPort}.IP()
				port := uint16(1024 + n)
				b.udp(primaryPort, throughServer(attackerPort, withTrailers(src, own, teredo.Trailers{HasNonce: true, Nonce: 7, RandomPort: port})))
				count()
			}
			if sent > most || sent < most/2 {
				t.Errorf("%d datagrams in %d s, want %d at most, and half of that at least", sent, seconds, most)
			}
		})
	}
}
