// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

func icmp(src, dst netip.Addr, typ byte, body ...[]byte) packet.IPv6 {
	return packet.AppendICMPv6(nil, src, dst, 255, typ, 0, append([][]byte{{0, 0, 0, 0}}, body...)...)
}

// Each rule of reception, by a packet to a client that knows nobody.
func TestReception(t *testing.T) {
	privatePeer := teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: netip.MustParseAddrPort("10.0.0.1:99")}.IP()
	for _, tt := range []struct {
		name    string
		options []option
		from    netip.AddrPort
		make    func(own netip.Addr) []byte
		want    []string
		dropped string
	}{
		{"data of a client at its mapping", nil, peerMapping, func(own netip.Addr) []byte { return data(peerAddr, own, "hi") },
			[]string{"host: hi"}, ""},
		{"direct bubble of a client at its mapping", nil, peerMapping, func(own netip.Addr) []byte { return bubble(peerAddr, own, 0) },
			nil, ""},
		{"data of a client at a foreign mapping", nil, foreign, func(own netip.Addr) []byte { return data(peerAddr, own, "hi") },
			nil, "foreign_mapping 1"},
		{"direct bubble of a client at a foreign mapping", nil, foreign, func(own netip.Addr) []byte { return bubble(peerAddr, own, 7) },
			nil, "foreign_mapping 1"},
		{"private mapping", nil, netip.MustParseAddrPort("10.0.0.1:99"), func(own netip.Addr) []byte { return data(privatePeer, own, "hi") },
			nil, "not_global 1"},
		{"data of a host by an unknown relay", nil, relayAddr, func(own netip.Addr) []byte { return data(hostAddr, own, "hi") },
			[]string{"host: hi"}, ""},
		{"unasked echo reply", nil, relayAddr, func(own netip.Addr) []byte {
			return icmp(hostAddr, own, packet.ICMPv6EchoReply, make([]byte, teredo.EchoNonceLen))
		}, []string{"host: "}, ""},
		{"indirect bubble", nil, primaryPort, func(own netip.Addr) []byte { return throughServer(peerMapping, bubble(peerAddr, own, 7)) },
			[]string{"to peer: bubble with nonce", "to peer's server: bubble with nonce"}, ""},
		{"indirect bubble without nonce", nil, primaryPort, func(own netip.Addr) []byte { return throughServer(peerMapping, bubble(peerAddr, own, 0)) },
			[]string{"to peer: bubble", "to peer's server: bubble with nonce"}, ""},
		{"indirect bubble of a private mapping", nil, primaryPort, func(own netip.Addr) []byte { return throughServer(peerMapping, bubble(privatePeer, own, 7)) },
			nil, "not_global 1"},
		{"data of a client through the server", nil, primaryPort, func(own netip.Addr) []byte { return throughServer(peerMapping, data(peerAddr, own, "hi")) },
			nil, "data_through_server 1"},
		{"bubble of a relay", nil, primaryPort, func(own netip.Addr) []byte {
			return throughServer(relayAddr, bubble(netip.MustParseAddr("fe80::1234"), own, 0))
		}, []string{"to relay: bubble"}, ""},
		{"bubble of a relay at a private address", nil, primaryPort, func(own netip.Addr) []byte {
			return throughServer(nextDoor, bubble(netip.MustParseAddr("fe80::1234"), own, 0))
		}, nil, "not_global 1"},
		{"bubble of a relay at port 0", nil, primaryPort, func(own netip.Addr) []byte {
			return throughServer(netip.AddrPortFrom(relayAddr.Addr(), 0), bubble(netip.MustParseAddr("fe80::1234"), own, 0))
		}, nil, "not_global 1"},
		{"bubble of a relay at our own local address", nil, primaryPort, func(own netip.Addr) []byte {
			return throughServer(local, bubble(netip.MustParseAddr("fe80::1234"), own, 0))
		}, nil, "not_global 1"},
		{"bubble of a relay at our own mapping", nil, primaryPort, func(own netip.Addr) []byte {
			return throughServer(mapping, bubble(hostAddr, own, 0))
		}, nil, "not_global 1"},
		{"bubble of a server that relays itself", nil, primaryPort, func(own netip.Addr) []byte { return bubble(hostAddr, own, 0) },
			[]string{"to primary: bubble"}, ""},
		{"ping of a host through the server", nil, primaryPort, func(own netip.Addr) []byte {
			return throughServer(relayAddr, data(hostAddr, own, "hi"))
		}, []string{"to relay: bubble", "host: hi"}, ""},
		{"from our own mapping", nil, mapping, func(own netip.Addr) []byte { return data(hostAddr, own, "hi") },
			nil, "own_source 1"},
		{"from our own socket", nil, local, func(own netip.Addr) []byte { return data(hostAddr, own, "hi") },
			nil, "own_source 1"},
		{"source is our address", nil, relayAddr, func(own netip.Addr) []byte { return data(own, own, "hi") },
			nil, "bad_source 1"},
		{"multicast source", nil, relayAddr, func(own netip.Addr) []byte { return data(teredo.AllNodes, own, "hi") },
			nil, "bad_source 1"},
		{"link-local data", nil, relayAddr, func(own netip.Addr) []byte { return data(netip.MustParseAddr("fe80::1"), own, "hi") },
			nil, "bad_source 1"},
		{"for another host", nil, relayAddr, func(netip.Addr) []byte { return data(hostAddr, peerAddr, "hi") },
			nil, "bad_destination 1"},
		{"for all nodes", nil, relayAddr, func(netip.Addr) []byte { return data(hostAddr, teredo.AllNodes, "hi") },
			nil, "bad_destination 1"},
		{"router advertisement to our address", nil, relayAddr, func(own netip.Addr) []byte { return icmp(hostAddr, own, packet.ICMPv6RouterAdvert) },
			nil, "neighbor_discovery 1"},
		{"redirect behind a destination option", nil, relayAddr, func(own netip.Addr) []byte {
			m := append([]byte{packet.ProtoICMPv6, 0, 1, 4, 0, 0, 0, 0}, icmp(hostAddr, own, packet.ICMPv6Redirect).Payload()...)
			return append(packet.AppendIPv6Header(nil, packet.ProtoDestOpts, 255, len(m), hostAddr, own), m...)
		}, nil, "neighbor_discovery 1"},
		{"disguised address that nobody gave out", nil, foreign, func(netip.Addr) []byte { return bubble(peerAddr, netip.MustParseAddr("fe80::1"), 0) },
			nil, "bad_destination 1"},
		{"trailer that demands a drop", nil, peerMapping, func(own netip.Addr) []byte { return append(data(peerAddr, own, "hi"), 0x40, 0) },
			nil, "unknown_trailer 1"},
		{"unknown trailer", nil, peerMapping, func(own netip.Addr) []byte { return append(data(peerAddr, own, "hi"), 0x80, 0) },
			[]string{"host: hi"}, ""},
		{"no IPv6", nil, peerMapping, func(netip.Addr) []byte { return bytes.Repeat([]byte{0x45}, 60) },
			nil, "not_ipv6 1"},

		{"established: data of a client", []option{established}, peerMapping, func(own netip.Addr) []byte { return data(peerAddr, own, "hi") },
			nil, "unsolicited 1"},
		{"established: direct bubble of a client", []option{established}, peerMapping, func(own netip.Addr) []byte { return bubble(peerAddr, own, 0) },
			nil, "unsolicited 1"},
		{"established: indirect bubble of a client", []option{established}, primaryPort, func(own netip.Addr) []byte { return throughServer(peerMapping, bubble(peerAddr, own, 7)) },
			nil, "unsolicited 1"},
		{"established: data of a host", []option{established}, relayAddr, func(own netip.Addr) []byte { return data(hostAddr, own, "hi") },
			nil, "unsolicited 1"},
		{"established: data of a host through the server", []option{established}, primaryPort, func(own netip.Addr) []byte {
			return throughServer(relayAddr, data(hostAddr, own, "hi"))
		}, nil, "unsolicited 1"},
		{"established: bubble of a relay", []option{established}, primaryPort, func(own netip.Addr) []byte {
			return throughServer(relayAddr, bubble(netip.MustParseAddr("fe80::1234"), own, 0))
		}, []string{"to relay: bubble"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, tt.options...)
			b.want("output", b.udp(tt.from, tt.make(b.address())), tt.want...)
			if got := b.dropped(); got != tt.dropped {
				t.Errorf("dropped %q, want %q", got, tt.dropped)
			}
		})
	}
}

// Each rule of transmission.
func TestTransmission(t *testing.T) {
	teredoAt := func(s string) netip.Addr {
		return teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: netip.MustParseAddrPort(s)}.IP()
	}
	for _, tt := range []struct {
		name    string
		make    func(own netip.Addr) packet.IPv6
		want    []string
		dropped string
	}{
		{"to a host", func(own netip.Addr) packet.IPv6 { return data(own, hostAddr, "hi") }, []string{"to primary: echo request"}, ""},
		{"to a client", func(own netip.Addr) packet.IPv6 { return data(own, peerAddr, "hi") },
			[]string{"to peer: bubble", "to peer's server: bubble with nonce"}, ""},
		{"cone bit is ignored", func(own netip.Addr) packet.IPv6 {
			return data(own, teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Flags: teredo.FlagCone, Mapped: peerMapping}.IP(), "hi")
		}, []string{"to peer: bubble", "to peer's server: bubble with nonce"}, ""},
		{"to a client at a private address", func(own netip.Addr) packet.IPv6 { return data(own, teredoAt("10.0.0.1:99"), "hi") }, nil, "not_global 1"},
		{"to a client at port 0", func(own netip.Addr) packet.IPv6 { return data(own, teredoAt("192.0.2.1:0"), "hi") }, nil, "not_global 1"},
		{"to a client at our mapping", func(own netip.Addr) packet.IPv6 { return data(own, teredoAt(mapping.String()), "hi") }, nil, "not_global 1"},
		{"to a client whose server is private", func(own netip.Addr) packet.IPv6 {
			return data(own, teredo.Addr{Prefix: teredo.Prefix, Server: local.Addr(), Mapped: peerMapping}.IP(), "hi")
		}, nil, "not_global 1"},
		{"from another address", func(netip.Addr) packet.IPv6 { return data(hostAddr, peerAddr, "hi") }, nil, "bad_source 1"},
		{"to ourselves", func(own netip.Addr) packet.IPv6 { return data(own, own, "hi") }, nil, "bad_destination 1"},
		{"to all routers", func(own netip.Addr) packet.IPv6 { return data(own, teredo.AllRouters, "hi") }, nil, "bad_destination 1"},
		{"to a link-local address", func(own netip.Addr) packet.IPv6 { return data(own, netip.MustParseAddr("fe80::1"), "hi") }, nil, "bad_destination 1"},
		{"to an IPv4-mapped address", func(own netip.Addr) packet.IPv6 { return data(own, netip.MustParseAddr("::ffff:192.0.2.1"), "hi") }, nil, "bad_destination 1"},
		{"1280 bytes", func(own netip.Addr) packet.IPv6 { return data(own, hostAddr, strings.Repeat("x", 1240)) }, []string{"to primary: echo request"}, ""},
		{"1281 bytes", func(own netip.Addr) packet.IPv6 { return data(own, hostAddr, strings.Repeat("x", 1241)) }, []string{"host: too big"}, "too_big 1"},
		{"shorter than it says", func(own netip.Addr) packet.IPv6 { p := data(own, hostAddr, "hi"); return p[:len(p)-1] }, nil, "bad_packet 1"},
		{"longer than it says", func(own netip.Addr) packet.IPv6 { return append(data(own, hostAddr, "hi"), 0) }, nil, "bad_packet 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t)
			b.want("output", b.ip(tt.make(b.address())), tt.want...)
			if got := b.dropped(); got != tt.dropped {
				t.Errorf("dropped %q, want %q", got, tt.dropped)
			}
		})
	}
	t.Run("not qualified", func(t *testing.T) {
		b := newBench(t)
		b.begin(client.Server{Primary: primary})
		b.want("output", b.ip(data(peerAddr, hostAddr, "hi")))
		if got := b.dropped(); got != "not_qualified 1" {
			t.Errorf("dropped %q", got)
		}
	})
}

func TestDirectedBroadcast(t *testing.T) {
	b := newQualified(t)
	b.c.LocalChanged(local, []netip.Addr{peerMapping.Addr()}, b.now, &b.out)
	b.want("to a peer at our network's broadcast", b.ip(data(b.address(), peerAddr, "hi")))
	if got := b.dropped(); got != "not_global 1" {
		t.Errorf("dropped %q", got)
	}
}

// trusted makes the peer a trusted one.
func (b *bench) trusted() {
	b.t.Helper()
	b.udp(peerMapping, bubble(peerAddr, b.address(), 0))
}

func TestPeerLifetime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  []string
	}{
		{"valid for less than 30 s", 30*time.Second - 1, []string{"to peer: hi"}},
		{"asked again behind", 30 * time.Second, []string{"to peer: bubble", "to peer's server: bubble with nonce"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t)
			b.trusted()
			b.now = b.now.Add(tt.after)
			b.want("output", b.ip(data(b.address(), peerAddr, "hi")), tt.want...)
		})
	}
	t.Run("answered again", func(t *testing.T) {
		b := newQualified(t)
		b.trusted()
		b.now = b.now.Add(time.Minute)
		b.ip(data(b.address(), peerAddr, "hi"))
		b.want("output", b.udp(peerMapping, bubble(peerAddr, b.address(), 0)), "to peer: hi")
	})
}

// Bubbles at 0, 2, 4 and 6 s, unreachable at 8 s, none again before 300 s have
// passed since the first.
func TestBubbleTimers(t *testing.T) {
	b := newQualified(t)
	pair := []string{"to peer: bubble", "to peer's server: bubble with nonce"}
	disguised := append(pair[:2:2], "to peer's server: disguised bubble")
	b.want("first", b.ip(data(b.address(), peerAddr, "one")), pair...)
	b.want("second packet", b.ip(data(b.address(), peerAddr, "two")))
	for range 3 {
		d, got := b.tick()
		b.want("repeat", got, disguised...)
		if d != 2*time.Second {
			t.Errorf("repeated after %v", d)
		}
	}
	d, got := b.tick()
	b.want("given up", got, "host: unreachable", "host: unreachable")
	if d != 2*time.Second || b.dropped() != "unreachable 2" {
		t.Errorf("given up after %v, dropped %s", d, b.dropped())
	}
	b.want("within 300 s", b.ip(data(b.address(), peerAddr, "three")), "host: unreachable")
	b.now = start.Add(300*time.Second - 1)
	b.want("just within 300 s", b.ip(data(b.address(), peerAddr, "four")), "host: unreachable")
	b.now = start.Add(300 * time.Second)
	b.want("one more behind 300 s", b.ip(data(b.address(), peerAddr, "five")), disguised[:2]...)
}

func TestDirectResponseLiftsBubbleLimit(t *testing.T) {
	b := newQualified(t)
	b.ip(data(b.address(), peerAddr, "one"))
	for range 3 {
		b.tick()
	}
	b.want("answered", b.udp(peerMapping, bubble(peerAddr, b.address(), 0)), "to peer: one")
	b.now = b.now.Add(31 * time.Second)
	b.want("again", b.ip(data(b.address(), peerAddr, "two")), "to peer: bubble", "to peer's server: bubble with nonce")
}

// Data to a peer that was just answered waits for what the answer brings, and
// bubbles leave 2 s behind it.
func TestBubblePause(t *testing.T) {
	b := newQualified(t)
	b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 7)))
	b.want("at once", b.ip(data(b.address(), peerAddr, "one")))
	d, got := b.tick()
	b.want("later", got, "to peer: bubble with nonce", "to peer's server: bubble with nonce")
	if d != 2*time.Second {
		t.Errorf("after %v", d)
	}
}

// An echo test at 0, 2, 4 and 6 s, unreachable at 8 s; the next packet starts
// another.
func TestEchoTestTimers(t *testing.T) {
	b := newQualified(t)
	b.want("first", b.ip(data(b.address(), hostAddr, "one")), "to primary: echo request")
	first := b.echoReply()
	b.want("second packet", b.ip(data(b.address(), hostAddr, "two")))
	for range 3 {
		d, got := b.tick()
		b.want("repeat", got, "to primary: echo request")
		if d != 2*time.Second {
			t.Errorf("repeated after %v", d)
		}
	}
	_, got := b.tick()
	b.want("given up", got, "host: unreachable", "host: unreachable")
	b.want("again", b.ip(data(b.address(), hostAddr, "three")), "to primary: echo request")
	b.want("reply to the old test", b.udp(relayAddr, first), "host: ")
	b.want("data before the reply", b.udp(relayAddr, data(hostAddr, b.address(), "in")), "host: in")
}

func TestEchoTest(t *testing.T) {
	t.Run("reply by a relay", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		reply := b.echoReply()
		b.ip(data(b.address(), hostAddr, "two"))
		b.want("reply", b.udp(relayAddr, reply), "to relay: one", "to relay: two")
		b.want("reply once more", b.udp(relayAddr, reply))
		b.want("reply by another relay", b.udp(foreign, reply))
		b.want("data out", b.ip(data(b.address(), hostAddr, "three")), "to relay: three")
		b.want("data in", b.udp(relayAddr, data(hostAddr, b.address(), "in")), "host: in")
		b.now = b.now.Add(8 * time.Second)
		b.c.Tick(b.now, &b.out)
		b.want("reply when the test is long over", b.udp(relayAddr, reply), "host: ")
	})
	t.Run("reply through the server", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		reply := b.echoReply()
		b.want("bubble", b.udp(primaryPort, throughServer(relayAddr, bubble(netip.MustParseAddr("fe80::1"), b.address(), 0))), "to relay: bubble")
		b.want("reply", b.udp(primaryPort, throughServer(relayAddr, reply)), "to relay: bubble", "to relay: one")
		if dst := packet.IPv6(b.out.UDP[0].Payload).Dst(); dst != netip.MustParseAddr("fe80::1") {
			t.Errorf("the bubble before the data is for %s, and so of no use if the first answer was lost", dst)
		}
	})
	// The relay refuses what comes from a symmetric NAT before its bubble is
	// answered.
	t.Run("reply through the server before the bubble", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		reply := b.echoReply()
		b.want("copy", b.udp(primaryPort, throughServer(relayAddr, reply)), "to relay: bubble")
		b.want("bubble of another relay", b.udp(primaryPort, throughServer(foreign, bubble(netip.MustParseAddr("fe80::1"), b.address(), 0))), "to foreign: bubble")
		b.want("copy once more", b.udp(primaryPort, throughServer(relayAddr, reply)), "to relay: bubble")
		b.want("bubble", b.udp(primaryPort, throughServer(relayAddr, bubble(netip.MustParseAddr("fe80::1"), b.address(), 0))), "to relay: bubble")
		b.want("reply", b.udp(relayAddr, reply), "to relay: one")
	})
	t.Run("reply through the server long after the bubble", func(t *testing.T) {
		b := newQualified(t, established)
		b.udp(primaryPort, throughServer(relayAddr, bubble(netip.MustParseAddr("fe80::1"), b.address(), 0)))
		b.now = b.now.Add(8 * time.Second)
		b.ip(data(b.address(), hostAddr, "one"))
		b.want("copy", b.udp(primaryPort, throughServer(relayAddr, b.echoReply())), "to relay: bubble")
	})
	t.Run("another relay takes over", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		b.want("reply", b.udp(relayAddr, b.echoReply()), "to relay: one")
		b.want("packet by another relay", b.udp(foreign, data(hostAddr, b.address(), "in")), "host: in")
		b.now = b.now.Add(2 * time.Second)
		b.want("the first one is silent", b.udp(foreign, data(hostAddr, b.address(), "in")), "to primary: echo request", "host: in")
		reply := b.echoReply()
		b.want("one test at a time", b.udp(foreign, data(hostAddr, b.address(), "in")), "host: in")
		b.want("meanwhile", b.ip(data(b.address(), hostAddr, "two")), "to relay: two")
		b.want("reply", b.udp(foreign, reply))
		b.want("from then on", b.ip(data(b.address(), hostAddr, "three")), "to foreign: three")
	})
	t.Run("two relays at once", func(t *testing.T) {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		b.want("reply", b.udp(relayAddr, b.echoReply()), "to relay: one")
		for range 10 {
			b.now = b.now.Add(time.Second)
			b.want("by the first", b.udp(relayAddr, data(hostAddr, b.address(), "in")), "host: in")
			b.want("by the second", b.udp(foreign, data(hostAddr, b.address(), "in")), "host: in")
		}
	})
	t.Run("wrong nonce", func(t *testing.T) {
		b := newQualified(t)
		b.ip(data(b.address(), hostAddr, "one"))
		wrong := icmp(hostAddr, b.address(), packet.ICMPv6EchoReply, make([]byte, teredo.EchoNonceLen))
		b.udp(relayAddr, wrong)
		if s := b.c.Snapshot(); s.Trusted != 0 {
			t.Error("trusted")
		}
	})
	t.Run("size fits servers that take 88 bytes", func(t *testing.T) {
		b := newQualified(t)
		b.ip(data(b.address(), hostAddr, "one"))
		if n := len(b.out.UDP[0].Payload) - packet.IPv6HeaderLen; n > 88 {
			t.Errorf("ICMPv6 message of %d bytes", n)
		}
	})
}

// Nonces of RFC 6081 section 5.2.4.
func TestForeignMapping(t *testing.T) {
	b := newQualified(t)
	b.ip(data(b.address(), peerAddr, "one"))
	nonce := b.sentNonce()
	b.want("wrong nonce", b.udp(foreign, bubble(peerAddr, b.address(), nonce^1)))
	b.want("no nonce", b.udp(foreign, bubble(peerAddr, b.address(), 0)), "to peer's server: disguised bubble")
	b.want("data with the nonce", b.udp(foreign, append(data(peerAddr, b.address(), "x"), 1, 4, byte(nonce>>24), byte(nonce>>16), byte(nonce>>8), byte(nonce))))
	if got := b.dropped(); got != "foreign_mapping 3" {
		t.Errorf("dropped %q", got)
	}
	b.want("right nonce", b.udp(foreign, bubble(peerAddr, b.address(), nonce)), "to foreign: bubble", "to foreign: one")
	b.want("once more", b.udp(foreign, bubble(peerAddr, b.address(), nonce)))
	b.want("data", b.udp(foreign, data(peerAddr, b.address(), "in")), "host: in")
	b.want("indirect bubble of a peer at a learnt mapping", b.udp(primaryPort, throughServer(foreign, bubble(peerAddr, b.address(), 5))),
		"to foreign: bubble with nonce")
	b.now = b.now.Add(time.Second)
	b.want("a second later it may have moved", b.udp(primaryPort, throughServer(foreign, bubble(peerAddr, b.address(), 5))),
		"to foreign: bubble with nonce", "to peer's server: bubble with nonce")
}

// A peer without nonces, behind a symmetric NAT, answers to the address of the
// disguised bubble.
func TestDisguisedBubble(t *testing.T) {
	b := newQualified(t)
	b.ip(data(b.address(), peerAddr, "one"))
	b.tick()
	var disguise netip.Addr
	for _, d := range b.out.UDP {
		if p := packet.IPv6(d.Payload); p.Src().IsLinkLocalUnicast() {
			disguise = p.Src()
		}
	}
	b.want("answer of another peer", b.udp(foreign, bubble(hostAddr, disguise, 0)))
	b.want("answer", b.udp(foreign, bubble(peerAddr, disguise, 0)), "to foreign: bubble", "to foreign: one")
	b.want("once more", b.udp(foreign, bubble(peerAddr, disguise, 0)))
	if got := b.dropped(); got != "bad_destination 1" {
		t.Errorf("dropped %q", got)
	}
}

// A bubble without nonces from a foreign mapping has its sender asked for the proof at once,
// by one disguised bubble for each attempt, while it is sought and has shown no nonce.
func TestPlainPeerIsAskedAtOnce(t *testing.T) {
	b := newQualified(t)
	plain := bubble(peerAddr, b.address(), 0)
	b.want("not sought", b.udp(foreign, plain))
	b.ip(data(b.address(), peerAddr, "one"))
	b.want("a nonce that is not ours", b.udp(foreign, bubble(peerAddr, b.address(), 5)))
	b.want("data", b.udp(foreign, data(peerAddr, b.address(), "hi")))
	b.want("sought", b.udp(foreign, plain), "to peer's server: disguised bubble")
	disguise := packet.IPv6(b.out.UDP[0].Payload).Src()
	b.want("once more", b.udp(foreign, plain))
	b.tick() // it has one of its own
	b.want("in the next attempt", b.udp(foreign, plain))
	b.want("answer", b.udp(foreign, bubble(peerAddr, disguise, 0)), "to foreign: bubble", "to foreign: one")
	b.now = b.now.Add(31 * time.Second)
	b.want("after a silence it is not asked as one with nonces would be", b.ip(data(b.address(), peerAddr, "two")),
		"to peer: bubble", "to peer's server: bubble with nonce")
	b.want("sought again", b.udp(foreign, plain), "to peer's server: disguised bubble")
	b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 5)))
	b.tick()
	b.want("that has a nonce after all", b.udp(foreign, plain))
}

// Answers to indirect bubbles are limited per peer; those to relays per origin.
func TestAnswerLimits(t *testing.T) {
	b := newQualified(t)
	direct, indirect := 0, 0
	for range 100 {
		for _, s := range b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 7))) {
			if strings.HasPrefix(s, "to peer:") {
				direct++
			} else {
				indirect++
			}
		}
	}
	if direct != 8 || indirect != 1 {
		t.Errorf("%d direct and %d indirect answers to 100 bubbles at once", direct, indirect)
	}
	relayed := 0
	for range 100 {
		relayed += len(b.udp(primaryPort, throughServer(relayAddr, bubble(hostAddr, b.address(), 0))))
	}
	if relayed != 20 {
		t.Errorf("%d answers to 100 bubbles of a relay at once", relayed)
	}
	if got := b.dropped(); got != "rate_limited 172" {
		t.Errorf("dropped %q", got)
	}
}

// The policy "established" knows peers for two hours and four minutes behind the
// host's last packet, and lets ICMPv6 errors about such packets in.
func TestEstablished(t *testing.T) {
	router := netip.MustParseAddr("2001:db8:ffff::1")
	quote := func(dst netip.Addr, b *bench) []byte {
		return icmp(router, b.address(), packet.ICMPv6PacketTooBig, data(b.address(), dst, "too long"))
	}
	setUp := func() *bench {
		b := newQualified(t, established)
		b.ip(data(b.address(), hostAddr, "one"))
		b.udp(relayAddr, b.echoReply())
		return b
	}
	b := setUp()
	b.want("error about our packet", b.udp(relayAddr, quote(hostAddr, b)), "host: too big")
	b.want("error about a packet to nobody we know", b.udp(relayAddr, quote(peerAddr, b)))
	b.want("error about a packet of another", b.udp(relayAddr,
		icmp(router, b.address(), packet.ICMPv6PacketTooBig, data(peerAddr, hostAddr, "not ours"))))
	forged := quote(hostAddr, b)
	forged[packet.IPv6HeaderLen+2] ^= 1
	b.want("error with a wrong checksum", b.udp(relayAddr, forged))
	if got := b.dropped(); got != "unsolicited 3" {
		t.Errorf("dropped %q", got)
	}
	const lifetime = 2*time.Hour + 4*time.Minute
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  []string
	}{
		{"idle connection", lifetime - time.Second, []string{"host: in"}},
		{"too long ago", lifetime, nil},
	} {
		b := setUp()
		// The engine's sweeps run on the way.
		end := b.now.Add(tt.after)
		for next := b.c.Next(); !next.After(end); next = b.c.Next() {
			b.tick()
			if len(b.out.UDP) == 1 {
				b.udp(primaryPort, b.answer(mapping))
			}
		}
		b.now = end
		b.want(tt.name, b.udp(relayAddr, data(hostAddr, b.address(), "in")), tt.want...)
	}
}

// Entries of strangers go after a while.
func TestSweep(t *testing.T) {
	b := newQualified(t)
	b.trusted()
	for b.now.Sub(start) < 400*time.Second {
		b.tick()
		if len(b.out.UDP) == 1 {
			b.udp(primaryPort, b.answer(mapping))
		}
	}
	if n := b.c.Snapshot().Peers; n != 0 {
		t.Errorf("%d peers after 400 s of silence", n)
	}
}

// A queue keeps the first packets, in order, and counts the others.
func TestQueueBounds(t *testing.T) {
	b := newQualified(t, func(c *client.Config) { c.QueuePackets = 2 })
	b.ip(data(b.address(), hostAddr, "one"))
	reply := b.echoReply()
	b.ip(data(b.address(), hostAddr, "two"))
	b.ip(data(b.address(), hostAddr, "three"))
	b.want("reply", b.udp(relayAddr, reply), "to relay: one", "to relay: two")
	if got := b.dropped(); got != "queue_full 1" {
		t.Errorf("dropped %q", got)
	}
	if n := b.c.Snapshot().Queued; n != 0 {
		t.Errorf("%d bytes are queued still", n)
	}
}

// A flood of strangers cannot push trusted peers out, and the table stays
// bounded.
func TestTableBounds(t *testing.T) {
	b := newQualified(t, func(c *client.Config) { c.MaxPeers = 40 })
	b.trusted()
	for i := range 1000 {
		a := hostAddr.As16()
		a[14], a[15] = byte(i>>8), byte(i)
		b.ip(data(b.address(), netip.AddrFrom16(a), "x"))
	}
	s := b.c.Snapshot()
	if s.Peers != 11 || s.Trusted != 1 {
		t.Errorf("%d peers, %d trusted", s.Peers, s.Trusted)
	}
	if got := b.dropped(); got != "peer_evicted 990" {
		t.Errorf("dropped %q", got)
	}
	if n := b.c.Stats().Evictions; n != 990 {
		t.Errorf("%d evictions", n)
	}
}

// ICMPv6 errors to the host are limited to 100 at once.
func TestErrorLimit(t *testing.T) {
	b := newQualified(t)
	n := 0
	for range 300 {
		n += len(b.ip(data(b.address(), hostAddr, strings.Repeat("x", 2000))))
	}
	if n != 100 {
		t.Errorf("%d errors for 300 packets", n)
	}
}

func TestPeers(t *testing.T) {
	b := newQualified(t)
	b.trusted()
	b.ip(data(b.address(), hostAddr, "waits"))
	got := map[netip.Addr]client.Peer{}
	if total := b.c.Peers(10, func(p client.Peer) { got[p.Address] = p }); total != 2 || len(got) != 2 {
		t.Fatalf("%d of %d peers", len(got), total)
	}
	if p := got[peerAddr]; !p.Trusted || p.Mapped != peerMapping || p.Received != b.now || !p.Sent.IsZero() {
		t.Errorf("trusted peer %+v", p)
	}
	if p := got[hostAddr]; p.Trusted || p.Mapped.IsValid() || p.Queued != 1 || p.Sent != b.now || !p.Received.IsZero() {
		t.Errorf("waiting peer %+v", p)
	}
	n := 0
	if total := b.c.Peers(1, func(client.Peer) { n++ }); total != 2 || n != 1 {
		t.Errorf("limit 1: %d of %d", n, total)
	}
}

// One socket can have any number of Teredo addresses, since server and flags are
// free: it must not take the whole list of peers, or the host could reach nobody.
func TestStrangerCannotTakeThePeerTable(t *testing.T) {
	w := newWorld(t)
	n := w.qualified(nattest.NewNAT(nattest.FullCone, natA), func(c *client.Config) { c.MaxPeers = 1000 })
	quiet := netip.MustParseAddr("2001:db8::dead")
	n.say(quiet, "waits")
	stranger := netip.MustParseAddrPort("198.51.100.99:666")
	for i := range 2000 {
		a := teredo.Addr{Prefix: teredo.Prefix, Server: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Mapped: stranger}
		n.Receive(stranger, n.local, bubble(a.IP(), n.address(), 0), w.net.Now())
	}
	s := n.engine.Snapshot()
	if s.Peers > 100 {
		t.Errorf("one stranger took %d places", s.Peers)
	}
	if s.Queued == 0 {
		t.Error("what waits for another peer was evicted")
	}
}
