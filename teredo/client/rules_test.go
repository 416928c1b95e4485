// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

func icmp(src, dst netip.Addr, typ byte, body ...[]byte) packet.IPv6 {
	return packet.AppendICMPv6(nil, src, dst, 255, typ, 0, append([][]byte{{0, 0, 0, 0}}, body...)...)
}

// Each rule of reception, by a packet to a client that knows no one.
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

// A proof is no reason to send where no bubble of ours would go.
func TestLearntMapping(t *testing.T) {
	home := func(c *client.Config) { c.Alternates = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }
	alone := func(c *client.Config) { c.NoHairpin = true }
	for _, tt := range []struct {
		name   string
		option option
		peer   netip.Addr
		from   string
		learnt bool
	}{
		{"global", nil, peerAddr, "203.0.113.99:4000", true},
		{"port of a service", nil, peerAddr, "203.0.113.99:53", false},
		{"local, another public address", nil, peerAddr, "10.0.0.1:4000", false},
		{"local, in a range that is allowed", home, peerAddr, "10.0.0.1:4000", true},
		{"local, our public address", nil, neighbour, "10.0.0.1:4000", true},
		{"local, our public address, switched off", alone, neighbour, "10.0.0.1:4000", false},
		{"local, port of a service", nil, neighbour, "10.0.0.1:53", false},
		{"our local address", nil, neighbour, "192.168.1.2:4000", false},
		{"broadcast", nil, neighbour, "192.168.1.255:4000", false},
		{"loopback", nil, neighbour, "127.0.0.1:4000", false},
	} {
		for _, disguised := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, disguised %v", tt.name, disguised), func(t *testing.T) {
				var options []option
				if tt.option != nil {
					options = append(options, tt.option)
				}
				b := newQualified(t, options...)
				b.c.LocalChanged(local, []netip.Addr{netip.MustParseAddr("192.168.1.255")}, b.now, &b.out)
				b.ip(data(b.address(), tt.peer, "one"))
				proof := bubble(tt.peer, b.address(), b.sentNonce())
				if disguised {
					b.tick()
					proof = bubble(tt.peer, packet.IPv6(b.out.UDP[len(b.out.UDP)-1].Payload).Src(), 0)
				}
				key := tt.peer.As16()
				b.udp(primaryPort, throughServer(teredo.Mapped(&key), bubble(tt.peer, b.address(), 7)))
				got, drop := b.udp(netip.MustParseAddrPort(tt.from), proof), ""
				want := []string{"to " + tt.from + ": bubble with nonce", "to " + tt.from + ": one"}
				if !tt.learnt {
					want, drop = nil, "not_global 1"
				}
				b.want("output", got, want...)
				if got := b.dropped(); got != drop {
					t.Errorf("dropped %q, want %q", got, drop)
				}
			})
		}
	}
	t.Run("relay at a private address", func(t *testing.T) {
		b := newQualified(t)
		b.ip(data(b.address(), hostAddr, "one"))
		b.want("reply", b.udp(nextDoor, b.echoReply()))
		if got := b.dropped(); got != "not_global 1" {
			t.Errorf("dropped %q", got)
		}
	})
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
