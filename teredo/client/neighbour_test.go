// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// link is an IPv4 link behind one NAT: what neighbours send to each other or by
// multicast does not leave it, and takes no time.
type link struct {
	w     *world
	nat   *nattest.NAT
	nodes []*linkHost
	heard int // multicast datagrams
	// hairpins is what the network does behind a NAT that hairpins.
	hairpins bool
}

// linkHost is a host with a client on a link.
type linkHost struct {
	l      *link
	engine *client.Client
	local  netip.AddrPort
	ports  map[int]uint16 // of open sockets
	got    []string
	errors int
	events []client.Event
}

func discovery(c *client.Config) { c.LocalDiscovery = true }

func withoutHairpin(c *client.Config) { c.NoHairpin = true }

func newLink(w *world, kind nattest.Kind) *link {
	return &link{w: w, nat: nattest.NewNAT(kind, natA)}
}

// add adds a client and waits until it has its address.
func (l *link) add(options ...option) *linkHost {
	l.w.t.Helper()
	l.w.ids++
	cfg := client.Config{Rand: seeded(l.w.ids)}
	for _, o := range options {
		o(&cfg)
	}
	engine, err := client.New(cfg)
	if err != nil {
		l.w.t.Fatal(err)
	}
	ip := netip.AddrFrom4([4]byte{192, 168, 1, l.w.ids})
	n := &linkHost{l: l, engine: engine, local: netip.AddrPortFrom(ip, 3550+uint16(l.w.ids)), ports: map[int]uint16{}}
	n.ports[0] = n.local.Port()
	l.nodes = append(l.nodes, n)
	l.w.net.AttachBehind(l.nat, n, ip)
	n.do(func(now time.Time, out *client.Out) {
		engine.Start(now, out)
		engine.LocalChanged(n.local, nil, now, out)
		engine.SubnetChanged(netip.PrefixFrom(ip, 24), now, out)
		engine.SetServers([]client.Server{{Primary: primary, Secondary: second}}, now, out)
	})
	if !l.w.net.RunUntil(time.Second, func() bool { return engine.Snapshot().State == client.Qualified }) {
		l.w.t.Fatal("not qualified")
	}
	l.w.net.Run(time.Second)
	return n
}

func (n *linkHost) do(f func(now time.Time, out *client.Out)) {
	var out client.Out
	f(n.l.w.net.Now(), &out)
	n.events = append(n.events, out.Events...)
	for _, s := range out.Sockets {
		n.ports[s.Socket] = s.Port
	}
	for _, d := range out.UDP {
		n.l.send(n, netip.AddrPortFrom(n.local.Addr(), n.ports[d.Socket]), d.To, d.Payload)
	}
	for _, b := range out.IP {
		p := packet.IPv6(b)
		if reply := answer(p); reply != nil {
			n.do(func(now time.Time, out *client.Out) { n.engine.HandleIP(reply, now, out) })
		} else if m, ok := p.ICMPv6(); ok && m[0] < 128 {
			n.errors++
		} else {
			n.got = append(n.got, string(p.Payload()))
		}
	}
}

func (l *link) send(n *linkHost, from, to netip.AddrPort, payload []byte) {
	switch {
	case to == client.Discovery:
		l.heard++
		for _, other := range l.nodes {
			if other != n {
				other.do(func(now time.Time, out *client.Out) { other.engine.HandleDiscovery(from, payload, now, out) })
			}
		}
	case to.Addr() == l.nat.Public && !l.hairpins:
	case to.Addr().IsPrivate():
		for _, other := range l.nodes {
			if other.local == to {
				other.Receive(from, to, payload, l.w.net.Now())
			}
		}
	default:
		l.w.net.Send(from, to, payload)
	}
}

func (n *linkHost) Receive(from, to netip.AddrPort, payload []byte, _ time.Time) {
	n.do(func(now time.Time, out *client.Out) {
		for socket, port := range n.ports {
			if port == to.Port() {
				n.engine.HandleUDPOn(socket, from, payload, now, out)
				return
			}
		}
	})
}

func (n *linkHost) Tick(time.Time) {
	n.do(func(now time.Time, out *client.Out) { n.engine.Tick(now, out) })
}

func (n *linkHost) Next() time.Time     { return n.engine.Next() }
func (n *linkHost) address() netip.Addr { return n.engine.Snapshot().Address }

func (n *linkHost) say(dst netip.Addr, s string) {
	p := data(n.address(), dst, s)
	n.do(func(now time.Time, out *client.Out) { n.engine.HandleIP(p, now, out) })
}

// pingNeighbour sends pings, one a second, and returns how many were answered and
// how long the first answer took.
func (l *link) pingNeighbour(a, b *linkHost) (answered int, first time.Duration) {
	since := l.w.net.Now()
	first = time.Hour
	for i := range pings {
		a.say(b.address(), fmt.Sprintf("ping %d", i))
		l.w.net.RunUntil(time.Second, func() bool { return len(a.got) > 0 })
		if len(a.got) > 0 && first == time.Hour {
			first = l.w.net.Now().Sub(since)
		}
		l.w.net.Run(time.Second)
	}
	l.w.net.Run(10 * time.Second)
	return len(a.got), first
}

// Two clients behind one NAT that does not hairpin, of every kind: they meet on
// their link, whoever came first and whoever begins, and lose no packet.
func TestDiscoveredNeighbours(t *testing.T) {
	for _, kind := range nattest.AllKinds {
		for _, turn := range []string{"elder begins", "younger begins"} {
			t.Run(kind.Name+", "+turn, func(t *testing.T) {
				l := newLink(newWorld(t), kind)
				a, b := l.add(discovery), l.add(discovery)
				if turn == "younger begins" {
					a, b = b, a
				}
				if n, first := l.pingNeighbour(a, b); n != pings || first > 10*time.Millisecond {
					t.Errorf("%d of %d answered, the first after %v", n, pings, first)
				}
				if s := a.engine.Stats(); s.IndirectBubbles > 0 {
					t.Errorf("%d bubbles went by the server", s.IndirectBubbles)
				}
			})
		}
	}
}

// Discovery bubbles may be lost: then the first attempt seeks, the second finds.
func TestNeighboursThatHaveNotMet(t *testing.T) {
	l := newLink(newWorld(t), nattest.PortRestricted)
	a := l.add(discovery)
	l.nodes = nil // no one hears the younger one come
	b := l.add(discovery)
	l.nodes = append(l.nodes, a)
	if n, first := l.pingNeighbour(a, b); n != pings || first > time.Second {
		t.Errorf("%d of %d answered, the first after %v", n, pings, first)
	}
}

// Without discovery at one end there is no way but the NAT's.
func TestNeighboursWithoutDiscovery(t *testing.T) {
	l := newLink(newWorld(t), nattest.PortRestricted)
	a, b := l.add(discovery, withoutHairpin), l.add(withoutHairpin)
	if n, _ := l.pingNeighbour(a, b); n != 0 || a.errors == 0 {
		t.Errorf("%d answered, %d errors", n, a.errors)
	}
}

// The policy for unsolicited packets holds on the link too.
func TestNeighboursUnsolicited(t *testing.T) {
	l := newLink(newWorld(t), nattest.PortRestricted)
	a, b := l.add(discovery), l.add(discovery, established)
	if n, _ := l.pingNeighbour(a, b); n != 0 || len(b.got) != 0 {
		t.Errorf("%d answered, %q came in", n, b.got)
	}
	if n, _ := l.pingNeighbour(b, a); n != pings {
		t.Errorf("the other way: %d of %d answered", n, pings)
	}
}

// Clients of a link send each other no bubble for nothing: 200 to 300 s lie
// between those of one client, but for those that greet a newcomer.
func TestDiscoveryIntervals(t *testing.T) {
	l := newLink(newWorld(t), nattest.PortRestricted)
	for range 5 {
		l.add(discovery)
	}
	l.w.net.Run(10 * time.Second)
	before := l.heard
	l.w.net.Run(time.Hour)
	if per := float64(l.heard-before) / 5; per < 12 || per > 18 {
		t.Errorf("%v bubbles of one client in an hour, want 12 to 18", per)
	}
}

// A neighbour that has left the link is sought there first, then by the NAT.
func TestNeighbourLeaves(t *testing.T) {
	l := newLink(newWorld(t), nattest.FullCone)
	l.hairpins = true
	a, b := l.add(discovery), l.add(discovery)
	a.say(b.address(), "ping 0")
	l.w.net.Run(time.Minute)
	l.nodes = l.nodes[:1]
	a.say(b.address(), "ping 1")
	l.w.net.Run(20 * time.Second)
	s := a.engine.Stats()
	if s.IndirectBubbles == 0 || len(a.got) == 0 {
		t.Errorf("%q, %d indirect bubbles", a.got, s.IndirectBubbles)
	}
}
