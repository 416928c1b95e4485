// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// The neighbour of the tests of single rules: behind the same NAT.
var (
	nextDoor        = netip.MustParseAddrPort("192.168.1.7:3557")
	nextDoorMapping = netip.AddrPortFrom(mapping.Addr(), 40007)
	nextDoorAddr    = teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: nextDoorMapping}.IP()
)

// newOnLink is a qualified client that discovers.
func newOnLink(t testing.TB, options ...option) *bench {
	t.Helper()
	b := newQualified(t, append(options, discovery)...)
	b.out.Reset()
	b.c.SubnetChanged(netip.MustParsePrefix("192.168.1.2/24"), b.now, &b.out)
	return b
}

func (b *bench) multicast(from netip.AddrPort, payload []byte) []string {
	b.out.Reset()
	b.c.HandleDiscovery(from, bytes.Clone(payload), b.now, &b.out)
	return b.show()
}

func TestDiscoveryBubble(t *testing.T) {
	b := newOnLink(t)
	if len(b.out.UDP) != 1 || b.out.UDP[0].To != client.Discovery || b.out.UDP[0].Socket != 0 {
		t.Fatalf("sent %q", b.show())
	}
	p, err := teredo.Parse(b.out.UDP[0].Payload)
	if err != nil || !teredo.IsBubble(p.IPv6) || p.IPv6.Src() != b.address() || p.IPv6.Dst() != teredo.AllNodes ||
		p.IPv6.HopLimit() != 1 || len(p.Trailers) != 0 {
		t.Errorf("bubble %x", b.out.UDP[0].Payload)
	}
	// The same network again is no news, another one is.
	b.out.Reset()
	b.c.SubnetChanged(netip.MustParsePrefix("192.168.1.9/24"), b.now, &b.out)
	b.want("same network", b.show())
	b.c.SubnetChanged(netip.MustParsePrefix("192.168.0.0/16"), b.now, &b.out)
	b.want("other network", b.show(), "to 224.0.0.253:3544: bubble")
}

func TestDiscoveryRules(t *testing.T) {
	say := func(src netip.Addr) []byte { return teredo.AppendLocalDiscovery(nil, src) }
	for _, tt := range []struct {
		name   string
		option option
		from   netip.AddrPort
		packet []byte
		want   []string
		drop   string
	}{
		{name: "neighbour", from: nextDoor, packet: say(nextDoorAddr), want: []string{"to 192.168.1.7:3557: bubble"}},
		{name: "neighbour, policy established", option: established, from: nextDoor, packet: say(nextDoorAddr)},
		{name: "source outside of our network", from: netip.MustParseAddrPort("192.168.2.7:3557"), packet: say(nextDoorAddr), drop: "not_local 1"},
		{name: "client behind another NAT", from: nextDoor, packet: say(peerAddr), drop: "not_local 1"},
		{name: "native address", from: nextDoor, packet: say(hostAddr), drop: "not_local 1"},
		{name: "mapped port 0", from: nextDoor, drop: "not_local 1",
			packet: say(teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: netip.AddrPortFrom(mapping.Addr(), 0)}.IP())},
		{name: "private mapped address", from: nextDoor, drop: "not_local 1",
			packet: say(teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: nextDoor}.IP())},
		{name: "port 0", from: netip.AddrPortFrom(nextDoor.Addr(), 0), packet: say(nextDoorAddr), drop: "not_local 1"},
		{name: "our own, come back", from: local, packet: say(nextDoorAddr), drop: "own_source 1"},
		{name: "not for all nodes", from: nextDoor, packet: bubble(nextDoorAddr, teredo.AllRouters, 0), drop: "not_discovery 1"},
		{name: "data for all nodes", from: nextDoor, packet: data(nextDoorAddr, teredo.AllNodes, "x"), drop: "not_discovery 1"},
		{name: "no packet", from: nextDoor, packet: []byte{0x60, 0}, drop: "truncated 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newOnLink(t, func(c *client.Config) {
				if tt.option != nil {
					tt.option(c)
				}
			})
			b.want("output", b.multicast(tt.from, tt.packet), tt.want...)
			if b.dropped() != tt.drop {
				t.Errorf("dropped %q, want %q", b.dropped(), tt.drop)
			}
		})
	}
	t.Run("not switched on", func(t *testing.T) {
		b := newQualified(t)
		b.c.SubnetChanged(netip.MustParsePrefix("192.168.1.0/24"), b.now, &b.out)
		b.want("output", b.multicast(nextDoor, say(nextDoorAddr)))
		if b.dropped() != "not_qualified 1" {
			t.Errorf("dropped %q", b.dropped())
		}
	})
	t.Run("by unicast", func(t *testing.T) {
		b := newOnLink(t)
		b.want("output", b.udp(nextDoor, say(nextDoorAddr)))
		if b.dropped() != "bad_destination 1" {
			t.Errorf("dropped %q", b.dropped())
		}
	})
	t.Run("without end", func(t *testing.T) {
		b := newOnLink(t)
		answers := 0
		for range 100 {
			answers += len(b.multicast(nextDoor, say(nextDoorAddr)))
		}
		if answers > 20 {
			t.Errorf("%d answers to 100 bubbles in no time", answers)
		}
	})
}

// A neighbour is proved by a packet from where it was heard, for 600 s.
func TestLocalPeer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		wait  time.Duration
		from  netip.AddrPort
		trust bool
	}{
		{"from where it was heard", 599 * time.Second, nextDoor, true},
		{"from elsewhere on the link", 0, netip.MustParseAddrPort("192.168.1.8:3557"), false},
		{"too late", 600 * time.Second, nextDoor, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newOnLink(t)
			b.multicast(nextDoor, teredo.AppendLocalDiscovery(nil, nextDoorAddr))
			// All timers but the server's, which would end the address.
			b.now = b.now.Add(tt.wait)
			got := b.udp(tt.from, data(nextDoorAddr, b.address(), "x"))
			if delivered := len(got) == 1 && got[0] == "host: x"; delivered != tt.trust {
				t.Errorf("output %q, dropped %q", got, b.dropped())
			}
			sent := b.ip(data(b.address(), nextDoorAddr, "y"))
			if toNeighbour := len(sent) == 1 && sent[0] == "to 192.168.1.7:3557: y"; toNeighbour != tt.trust {
				t.Errorf("sent %q", sent)
			}
		})
	}
}

// What comes by the NAT does not take a peer away from the link.
func TestLocalPeerStays(t *testing.T) {
	b := newOnLink(t)
	b.multicast(nextDoor, teredo.AppendLocalDiscovery(nil, nextDoorAddr))
	b.udp(nextDoor, data(nextDoorAddr, b.address(), "x"))
	b.want("by the NAT", b.udp(nextDoorMapping, data(nextDoorAddr, b.address(), "z")), "host: z")
	b.want("to it", b.ip(data(b.address(), nextDoorAddr, "y")), "to 192.168.1.7:3557: y")
}

// FuzzHandleDiscovery sends anything to the discovery address: nothing reaches the
// host, and at most one bubble goes back.
func FuzzHandleDiscovery(f *testing.F) {
	own := newOnLink(f).address()
	for _, src := range []netip.Addr{nextDoorAddr, peerAddr, own, hostAddr} {
		f.Add(teredo.AppendLocalDiscovery(nil, src), true)
		f.Add(teredo.AppendLocalDiscovery(teredo.AppendOrigin(nil, nextDoor), src), false)
	}
	f.Fuzz(func(t *testing.T, payload []byte, near bool) {
		b := newOnLink(t)
		from := foreign
		if near {
			from = nextDoor
		}
		b.ip(data(own, nextDoorAddr, "waits"))
		b.multicast(from, payload)
		if len(b.out.IP) > 0 || len(b.out.UDP) > 1 || len(b.out.UDP) == 1 && (!near || b.out.UDP[0].To != nextDoor) {
			t.Fatalf("output %q", b.show())
		}
		b.now = b.now.Add(time.Minute)
		b.c.Tick(b.now, &b.out)
	})
}
