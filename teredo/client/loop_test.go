// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/nattest"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/server"
)

// TestNoLoops throws forged packets at two servers, a relay, a host-specific
// relay and two clients, with addresses that name one another in every way: what
// follows from one packet must come to its end.
func TestNoLoops(t *testing.T) {
	for seed := range uint64(3000) {
		c := newChaos(t, seed)
		c.throw()
		if c.throw(); c.seen > mostFromTwo {
			t.Errorf("seed %d: two forged packets made %d", seed, c.seen)
		}
	}
}

// mostFromTwo bounds the datagrams that two forged ones may cause: each can start
// a connectivity test with all its retries, which takes 9, and the clients may
// refresh their addresses meanwhile.
const mostFromTwo = 30

var (
	otherServer = netip.MustParseAddr("203.0.113.9")
	farRelay    = netip.MustParseAddrPort("203.0.113.10:3545")
)

// chaos is a world in which no one's source address can be believed.
type chaos struct {
	*world
	rand   *rand.Rand
	points []netip.AddrPort // every socket, and some that are none
	hosts  []netip.Addr
	seen   int // datagrams that arrived
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{world: newWorld(t), rand: rand.New(rand.NewPCG(seed, 4))}
	var nat *nattest.NAT
	if c.rand.IntN(2) == 0 {
		nat = nattest.NewNAT([]nattest.Kind{nattest.FullCone, nattest.SymmetricRandom}[c.rand.IntN(2)], natA)
	}
	a, b := c.qualified(nat), c.qualified(nil)
	c.addServer()
	c.addRelay()
	c.points = []netip.AddrPort{
		primaryPort, secondPort, netip.AddrPortFrom(otherServer, teredo.Port), relayAddr, farRelay,
		a.engine.Snapshot().Mapping, b.engine.Snapshot().Mapping, netip.MustParseAddrPort("192.0.2.99:9"),
		netip.AddrPortFrom(a.engine.Snapshot().Mapping.Addr(), teredo.Port),
	}
	c.hosts = []netip.Addr{
		hostAddr, a.address(), b.address(), netip.MustParseAddr("fe80::1"), teredo.LinkLocal(teredo.FlagCone, primaryPort),
	}
	c.net.Trace = func(_, _ netip.AddrPort, _ []byte, _ bool) { c.seen++ }
	return c
}

// throw sends one forged packet and waits for what follows.
func (c *chaos) throw() {
	p := c.packet()
	if v, _, ok := packet.ParseIPv6(p); ok && c.rand.IntN(6) == 0 {
		c.native(v)
	} else {
		c.net.Send(c.point(), c.point(), p)
	}
	c.net.Run(10 * time.Second)
}

func (c *chaos) point() netip.AddrPort { return c.points[c.rand.IntN(len(c.points))] }

// address is one that someone has, or a Teredo address made of any two points.
func (c *chaos) address() netip.Addr {
	if i := c.rand.IntN(2 * len(c.hosts)); i < len(c.hosts) {
		return c.hosts[i]
	}
	return teredo.Addr{Prefix: teredo.Prefix, Server: c.point().Addr(), Mapped: c.point()}.IP()
}

func (c *chaos) packet() (p []byte) {
	src, dst := c.address(), c.address()
	switch c.rand.IntN(4) {
	case 0:
		p = teredo.AppendBubble(nil, src, dst)
	case 1:
		p = icmp(src, dst, packet.ICMPv6EchoRequest, make([]byte, 20))
	case 2:
		p = icmp(src, dst, packet.ICMPv6EchoReply, make([]byte, 20))
	case 3:
		p = data(src, dst, "ping")
	}
	if c.rand.IntN(4) == 0 {
		p = append(teredo.AppendOrigin(nil, c.point()), p...)
	}
	return p
}

// forwarder is a server or relay on one socket.
type forwarder struct {
	w      *world
	socket netip.AddrPort
	handle func(from netip.AddrPort, payload []byte, now time.Time, out *packet.Batch)
	tick   func(now time.Time, out *packet.Batch)
	next   func() time.Time
}

func (f *forwarder) do(work func(out *packet.Batch)) {
	var out packet.Batch
	work(&out)
	for _, d := range out.UDP {
		f.w.net.Send(f.socket, d.To, d.Payload)
	}
	for _, p := range out.IP {
		f.w.native(p)
	}
}

func (f *forwarder) Receive(from, to netip.AddrPort, payload []byte, now time.Time) {
	if to == f.socket {
		f.do(func(out *packet.Batch) { f.handle(from, payload, now, out) })
	}
}

func (f *forwarder) Tick(now time.Time) { f.do(func(out *packet.Batch) { f.tick(now, out) }) }
func (f *forwarder) Next() time.Time    { return f.next() }

// addServer adds a server of someone else.
func (c *chaos) addServer() {
	e, err := server.New(server.Config{Primary: otherServer, Rand: seeded(103)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.net.Attach(&forwarder{
		w: c.world, socket: netip.AddrPortFrom(otherServer, teredo.Port), tick: e.Tick, next: e.Next,
		handle: func(from netip.AddrPort, payload []byte, now time.Time, out *packet.Batch) {
			e.HandleUDP(from, server.Primary, payload, now, out)
		},
	}, otherServer)
}

// addRelay adds a host-specific relay behind a NAT, which sends most.
func (c *chaos) addRelay() {
	r, err := relay.New(relay.Config{
		Host: true, BehindNAT: true, EchoThroughServer: true,
		Prefixes: []netip.Prefix{teredo.Prefix}, Serve: []netip.Prefix{netip.MustParsePrefix("2000::/3")},
		Address: netip.MustParseAddr("2001:db8::77"), Own: []netip.Addr{farRelay.Addr()}, Port: farRelay.Port(),
		MTU: 1280, MaxPeers: 1000, PeerTimeout: 30 * time.Second,
		QueuePackets: 16, QueueBytes: 1 << 16, QueueTotalBytes: 1 << 20,
	}, start, seeded(104))
	if err != nil {
		c.t.Fatal(err)
	}
	c.net.Attach(&forwarder{w: c.world, socket: farRelay, handle: r.HandleUDP, tick: r.Tick, next: r.Next}, farRelay.Addr())
}
