// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// Random ports that a peer announces.
func TestForgedRandomPorts(t *testing.T) {
	toPort := "to peer's port: bubble with nonce"
	announce := func(port uint16) teredo.Trailers { return teredo.Trailers{Nonce: 7, RandomPort: port} }
	t.Run("port of a service", func(t *testing.T) {
		b := newQualified(t)
		b.want("answer", b.indirect(peerAddr, announce(53)), "to peer: bubble with nonce", "to peer's server: bubble with nonce")
		if got := b.dropped(); got != "bad_random_port 1" {
			t.Errorf("dropped %q", got)
		}
	})
	t.Run("another one while connected", func(t *testing.T) {
		b := newQualified(t)
		b.indirect(peerAddr, announce(peerRandom.Port()))
		nonce := b.sentNonce()
		b.want("proof", b.on(0, peerRandom, bubble(peerAddr, b.address(), nonce)), toPort)
		b.want("answer", b.indirect(peerAddr, announce(50001)), toPort)
	})
	t.Run("another one behind a silence", func(t *testing.T) {
		b := newQualified(t)
		b.indirect(peerAddr, announce(50001))
		b.now = b.now.Add(31 * time.Second)
		b.want("answer", b.indirect(peerAddr, announce(peerRandom.Port())), "to peer: bubble with nonce", toPort, "to peer's server: bubble with nonce")
	})
	t.Run("in a direct bubble", func(t *testing.T) {
		b := newQualified(t)
		b.want("answer", b.on(0, peerMapping, withTrailers(peerAddr, b.address(), announce(peerRandom.Port()))))
	})
}

// A flood of indirect bubbles opens no more than half of the ports: the host's own
// calls find one still.
func TestStrangersLeavePortsToTheHost(t *testing.T) {
	for _, at := range []netip.AddrPort{preserved, mapping} {
		b := newSymmetric(t, at, func(c *client.Config) { c.RandomPorts = 10 })
		for i := range 100 {
			src := teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 5000)}.IP()
			b.indirect(src, teredo.Trailers{Nonce: 7, RandomPort: 50000})
		}
		if n := b.c.Snapshot().RandomPorts; n != 5 {
			t.Errorf("%d ports are open, want half of 10", n)
		}
		b.ip(data(b.address(), peerAddr, "one"))
		if n := b.c.Snapshot().RandomPorts; n != 6 {
			t.Errorf("%d ports are open behind a call of the host", n)
		}
		if b.c.Stats().RandomPortsRefused == 0 {
			t.Error("nothing was counted as refused")
		}
	}
}

// Who speaks on a random port.
func TestStrangersOnARandomPort(t *testing.T) {
	stranger := teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: foreign}.IP()
	for _, tt := range []struct {
		name    string
		socket  int
		from    netip.AddrPort
		make    func(own netip.Addr) []byte
		want    []string
		dropped string
	}{
		{"the peer", 0, peerRandom, func(own netip.Addr) []byte { return data(peerAddr, own, "hi") }, []string{"host: hi"}, ""},
		{"the peer with an origin", 0, peerRandom, func(own netip.Addr) []byte { return throughServer(foreign, data(peerAddr, own, "hi")) }, nil, "foreign_port 1"},
		{"the peer from elsewhere", 0, foreign, func(own netip.Addr) []byte { return data(peerAddr, own, "hi") }, nil, "foreign_mapping 1"},
		{"a bubble from elsewhere", 0, foreign, func(own netip.Addr) []byte { return bubble(peerAddr, own, 1) }, nil, "foreign_mapping 1"},
		{"another client at its mapping", 0, foreign, func(own netip.Addr) []byte { return data(stranger, own, "hi") }, nil, "foreign_port 1"},
		{"a host by a relay", 0, relayAddr, func(own netip.Addr) []byte { return data(hostAddr, own, "hi") }, nil, "foreign_port 1"},
		{"the server, with an indirect bubble", 0, primaryPort, func(own netip.Addr) []byte { return throughServer(peerMapping, bubble(peerAddr, own, 7)) }, nil, "foreign_port 1"},
		{"an advertisement that nobody asked for", 0, primaryPort, func(own netip.Addr) []byte {
			return icmp(netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::2"), 134)
		}, nil, "unasked_advertisement 1"},
		{"for another host", 0, peerRandom, func(netip.Addr) []byte { return data(peerAddr, hostAddr, "hi") }, nil, "bad_destination 1"},
		{"a trailer that demands a drop", 0, peerRandom, func(own netip.Addr) []byte { return append(data(peerAddr, own, "hi"), 0x40, 0) }, nil, "unknown_trailer 1"},
		{"no IPv6", 0, peerRandom, func(netip.Addr) []byte { return []byte("hello") }, nil, "truncated 1"},
		{"a socket that is closed", 1, peerRandom, func(own netip.Addr) []byte { return data(peerAddr, own, "hi") }, nil, "foreign_port 1"},
		{"a socket that there is not", 1000, peerRandom, func(own netip.Addr) []byte { return data(peerAddr, own, "hi") }, nil, "foreign_port 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := onPort(t)
			b.want("output", b.on(client.FirstRandomSocket+tt.socket, tt.from, tt.make(b.address())), tt.want...)
			if got := b.dropped(); got != tt.dropped {
				t.Errorf("dropped %q, want %q", got, tt.dropped)
			}
		})
	}
}

// A bubble from a mapping that nothing proves makes a client look for its peer
// again, but only behind a silence (RFC 6081 section 5.4.4.5).
func TestSuspectedMapping(t *testing.T) {
	b := onPort(t)
	b.want("in touch", b.on(client.FirstRandomSocket, foreign, bubble(peerAddr, b.address(), 0)))
	b.pass(31 * time.Second)
	b.want("data behind a silence", b.on(client.FirstRandomSocket, foreign, data(peerAddr, b.address(), "hi")))
	b.want("bubble behind a silence", b.on(client.FirstRandomSocket, foreign, bubble(peerAddr, b.address(), 0)),
		"close 1", "open 1", "to peer's server: bubble with nonce, announces")
}

// When such a bubble is no cause to look.
func TestMappingIsNotSuspected(t *testing.T) {
	foreignBubble := func(b *bench) []string { return b.on(0, foreign, bubble(peerAddr, b.address(), 0)) }
	for _, tt := range []struct {
		name string
		make func(t testing.TB) *bench
	}{
		{"the peer was heard lately", func(t testing.TB) *bench {
			b := onPort(t)
			b.pass(31 * time.Second)
			b.on(client.FirstRandomSocket, peerRandom, data(peerAddr, b.address(), "hi"))
			return b
		}},
		{"the host sent lately", func(t testing.TB) *bench {
			b := onPort(t)
			b.pass(31 * time.Second)
			b.ip(data(b.address(), peerAddr, "two"))
			return b
		}},
		{"the peer was never proved", func(t testing.TB) *bench {
			b := newSymmetric(t, preserved)
			b.indirect(peerAddr, teredo.Trailers{Nonce: 7})
			b.pass(31 * time.Second)
			return b
		}},
		{"our NAT is a cone", func(t testing.TB) *bench {
			b := newQualified(t)
			b.udp(peerMapping, bubble(peerAddr, b.address(), 7))
			b.pass(31 * time.Second)
			return b
		}},
		{"the peer has had its answers", func(t testing.TB) *bench {
			b := onPort(t)
			b.pass(31 * time.Second)
			for range 10 {
				b.indirect(peerAddr, teredo.Trailers{Nonce: 7})
			}
			return b
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.make(t)
			b.want("foreign bubble", foreignBubble(b))
			if got := b.dropped(); !strings.Contains(got, "foreign_mapping 1") {
				t.Errorf("dropped %q", got)
			}
		})
	}
}

// Of several ways by which a peer returns one nonce the first is used, and the others are
// listened to; another nonce, or a silence, makes room for another way.
func TestSecondWayOfOneNonce(t *testing.T) {
	for _, tt := range []struct {
		name string
		meet func(b *bench) (nonce uint32)
		to   string
	}{
		{"at once", func(*bench) uint32 { return 0 }, "to peer's port: x"},
		{"behind a silence", func(b *bench) uint32 { b.pass(31 * time.Second); return 0 }, "to foreign: x"},
		{"with the next nonce", func(b *bench) uint32 {
			b.now = b.now.Add(5 * time.Second)
			b.indirect(peerAddr, teredo.Trailers{Nonce: 7, RandomPort: peerRandom.Port()})
			return b.sentNonce()
		}, "to foreign: x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t)
			b.indirect(peerAddr, teredo.Trailers{Nonce: 7, RandomPort: peerRandom.Port()})
			nonce := b.sentNonce()
			b.on(0, peerRandom, bubble(peerAddr, b.address(), nonce))
			if next := tt.meet(b); next != 0 {
				nonce = next
			}
			b.on(0, foreign, bubble(peerAddr, b.address(), nonce))
			b.want("from the second", b.on(0, foreign, data(peerAddr, b.address(), "hi")), "host: hi")
			b.ip(data(b.address(), peerAddr, "x"))
			b.want("to the peer", b.full(), tt.to)
		})
	}
}

// Whatever may be sent in answer to anybody is limited for each sender, and for all of
// them together.
func TestAnswersAreLimited(t *testing.T) {
	const each, all, senders = 20, 400, 600
	ask := teredo.Trailers{Discovery: teredo.DiscoverySolicitation}
	mapped := func(i int) netip.AddrPort {
		a := [...][4]byte{{192, 0, 2}, {198, 51, 100}, {203, 0, 113}}[i/200]
		a[3] = byte(1 + i%200)
		return netip.AddrPortFrom(netip.AddrFrom4(a), 5000)
	}
	address := func(at netip.AddrPort) netip.Addr {
		return teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: at}.IP()
	}
	for _, tt := range []struct {
		name string
		make func(t testing.TB) *bench
		send func(b *bench, i int)
	}{
		{"indirect bubbles", func(t testing.TB) *bench { return newQualified(t) }, func(b *bench, i int) {
			b.udp(primaryPort, throughServer(mapped(i), bubble(address(mapped(i)), b.address(), 7)))
		}},
		{"bubbles of relays", func(t testing.TB) *bench { return newQualified(t) }, func(b *bench, i int) {
			b.udp(primaryPort, throughServer(mapped(i), bubble(hostAddr, b.address(), 0)))
		}},
		{"direct solicitations", func(t testing.TB) *bench { return newQualified(t) }, func(b *bench, i int) {
			b.udp(mapped(i), withTrailers(address(mapped(i)), b.address(), ask))
		}},
		{"carried solicitations", boundBench, func(b *bench, i int) {
			b.udp(relayAddr, withTrailers(address(mapped(i)), b.address(), ask))
		}},
		{"discovery bubbles", func(t testing.TB) *bench {
			b := newOnLink(t)
			b.c.SubnetChanged(netip.MustParsePrefix("192.168.0.0/16"), b.now, &b.out)
			return b
		}, func(b *bench, i int) {
			src := address(netip.AddrPortFrom(mapping.Addr(), uint16(41000+i)))
			from := netip.AddrFrom4([4]byte{192, 168, byte(10 + i/200), byte(1 + i%200)})
			b.multicast(netip.AddrPortFrom(from, 4000), teredo.AppendLocalDiscovery(nil, src))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answered := func(n, of int) (answers int) {
				b := tt.make(t)
				for i := range n {
					if tt.send(b, i%of); len(b.out.UDP) > 0 {
						answers++
					}
				}
				return answers
			}
			if n := answered(senders, 1); n == 0 || n > each {
				t.Errorf("one sender got %d answers at once, want 1 to %d", n, each)
			}
			if n := answered(senders, senders); n <= each || n > all {
				t.Errorf("%d senders got %d answers at once, want more than %d and at most %d", senders, n, each, all)
			}
		})
	}
}

// Two clients behind one NAT, by its kind, with and without hairpinning: in touch
// within a second, and nothing is lost.
func TestNeighbours(t *testing.T) {
	for _, kind := range nattest.AllKinds {
		for _, hairpin := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hairpin %v", kind.Name, hairpin), func(t *testing.T) {
				for seed := range uint64(10) {
					w := newWorld(t)
					w.net.Jitter = 3 * delay
					w.net.Seed(seed)
					nat := nattest.NewNAT(kind, natA)
					nat.Hairpin = hairpin
					a, b := w.qualified(nat), w.qualified(nat)
					w.net.Run(20 * delay)
					a.say(b.address(), "ping 0")
					w.net.RunUntil(time.Second, func() bool { return len(a.got) > 0 })
					if len(a.got) != 1 {
						t.Fatalf("seed %d: no answer within a second; dropped %q and %q", seed, a.dropped(), b.dropped())
					}
					a.got = nil
					if got := pingPair(w, a, b); got != pings {
						t.Errorf("seed %d: %d of %d answered; dropped %q and %q", seed, got, pings, a.dropped(), b.dropped())
					}
				}
			})
		}
	}
}

// Without the extension they never meet.
func TestNeighboursWithoutHairpin(t *testing.T) {
	w := newWorld(t)
	nat := nattest.NewNAT(nattest.PortRestricted, natA)
	off := func(c *client.Config) { c.NoHairpin = true }
	a, b := w.qualified(nat, off), w.qualified(nat, off)
	if got := pingPair(w, a, b); got != 0 {
		t.Errorf("%d answered", got)
	}
}

// Routers that keep state for what they refuse: without a low time to live an
// early bubble moves the peer's port, and with it the pair connects.
func TestOpenInput(t *testing.T) {
	for _, tt := range []struct {
		from, to nattest.Kind
		plain    bool // connects without a low time to live
	}{
		{nattest.PortRestricted, nattest.PortRestricted, false},
		{nattest.AddressRestricted, nattest.PortRestricted, true},
		{nattest.PortRestricted, nattest.SymmetricSequential, false},
		{nattest.SymmetricSequential, nattest.PortRestricted, false},
		{nattest.SymmetricPreserving, nattest.PortRestricted, false},
		{nattest.PortRestricted, nattest.SymmetricPreserving, false},
		{nattest.SymmetricPreserving, nattest.SymmetricPreserving, false},
	} {
		for _, ttl := range []uint8{0, 3} {
			t.Run(fmt.Sprintf("%s to %s, ttl %d", tt.from.Name, tt.to.Name, ttl), func(t *testing.T) {
				w := newWorld(t)
				w.net.Hops = 4
				option := func(c *client.Config) { c.OpeningTTL = ttl }
				boxA, boxB := nattest.NewNAT(tt.from, natA), nattest.NewNAT(tt.to, natB)
				boxA.OpenInput, boxB.OpenInput = true, true
				a, b := w.qualified(boxA, option), w.qualified(boxB, option)
				a.say(b.address(), "ping")
				w.net.RunUntil(time.Second, func() bool { return len(a.got) > 0 })
				first := len(a.got) > 0
				a.got = nil
				got, want := pingPair(w, a, b) == pings, tt.plain || ttl != 0
				if want && !first && tt.to != nattest.SymmetricSequential {
					t.Error("no answer within a second")
				}
				if got != want {
					t.Errorf("connects: %v, want %v; dropped %s", got, want, strings.Join([]string{a.dropped(), b.dropped()}, " and "))
				}
			})
		}
	}
}
