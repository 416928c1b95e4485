// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/server"
)

// The world of these tests: the real server and relay engines, NATs, clients and
// one IPv6 host, in memory.
//
//	client -- NAT --+                +-- relay -- IPv6 host 2001:db8::1
//	client -- NAT --+-- IPv4, 10 ms --+-- server 203.0.113.1 and .2
var (
	start     = time.Unix(1_700_000_000, 0)
	primary   = netip.MustParseAddr("203.0.113.1")
	second    = netip.MustParseAddr("203.0.113.2")
	relayAddr = netip.MustParseAddrPort("203.0.113.3:3545")
	hostAddr  = netip.MustParseAddr("2001:db8::1")

	natA = netip.MustParseAddr("198.51.100.10")
	natB = netip.MustParseAddr("192.0.2.20")
)

const delay = 10 * time.Millisecond

// seeded is a source of randomness that is the same in each run.
func seeded(n byte) *rand.ChaCha8 { return rand.NewChaCha8([32]byte{n}) }

type world struct {
	t      testing.TB
	net    *nattest.Network
	server *serverNode
	relay  *relayNode
	ids    byte
	all    []option // of all clients
}

// newWorld makes the world; the options are for all clients.
func newWorld(t testing.TB, all ...option) *world {
	w := &world{t: t, net: nattest.NewNetwork(start, delay), all: all}
	e, err := server.New(server.Config{Primary: primary, Secondary: second, Rand: seeded(101)})
	if err != nil {
		t.Fatal(err)
	}
	w.server = &serverNode{w: w, engine: e}
	w.net.Attach(w.server, primary, second)
	r, err := relay.New(relay.Config{
		Prefixes: []netip.Prefix{teredo.Prefix}, Serve: []netip.Prefix{netip.MustParsePrefix("2000::/3")},
		Own: []netip.Addr{relayAddr.Addr()}, Port: relayAddr.Port(), MTU: 1280, MaxPeers: 1000, PeerTimeout: 30 * time.Second,
		QueuePackets: 16, QueueBytes: 1 << 16, QueueTotalBytes: 1 << 20, EchoThroughServer: true,
	}, start, seeded(102))
	if err != nil {
		t.Fatal(err)
	}
	w.relay = &relayNode{w: w, engine: r}
	w.net.Attach(w.relay, relayAddr.Addr())
	return w
}

// native carries a packet on the IPv6 Internet: to the host, or to the relay for
// Teredo clients. The host answers echo requests and "ping".
func (w *world) native(p packet.IPv6) {
	switch {
	case teredo.Prefix.Contains(p.Dst()):
		w.relay.handleIP(p)
	case p.Dst() == hostAddr:
		if reply := answer(p); reply != nil {
			w.native(reply)
		} else {
			w.relay.host = append(w.relay.host, string(p.Payload()))
		}
	}
}

// answer returns what a friendly node answers to p, or nil.
func answer(p packet.IPv6) packet.IPv6 {
	if m, ok := p.ICMPv6(); ok && m[0] == packet.ICMPv6EchoRequest {
		return packet.AppendICMPv6(nil, p.Dst(), p.Src(), 64, packet.ICMPv6EchoReply, 0, m[4:])
	}
	if s, ok := strings.CutPrefix(string(p.Payload()), "ping"); ok && p.NextHeader() == packet.ProtoUDP {
		return data(p.Dst(), p.Src(), "pong"+s)
	}
	return nil
}

// data is a packet that says s.
func data(src, dst netip.Addr, s string) packet.IPv6 {
	return append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, len(s), src, dst), s...)
}

type serverNode struct {
	w      *world
	engine *server.Engine
	deaf   bool
	out    packet.Batch
}

func (s *serverNode) Receive(from, to netip.AddrPort, payload []byte, now time.Time) {
	if s.deaf || to.Port() != teredo.Port {
		return
	}
	local := server.Primary
	if to.Addr() == second {
		local = server.Secondary
	}
	s.out.Reset()
	s.engine.HandleUDP(from, local, payload, now, &s.out)
	for _, d := range s.out.UDP {
		s.w.net.Send(netip.AddrPortFrom([]netip.Addr{primary, second}[d.Socket], teredo.Port), d.To, d.Payload)
	}
	for _, p := range s.out.IP {
		s.w.native(p)
	}
}

func (s *serverNode) Tick(time.Time)  {}
func (s *serverNode) Next() time.Time { return time.Time{} }

type relayNode struct {
	w      *world
	engine *relay.Relay
	host   []string // what reached the IPv6 host
	deaf   bool
}

func (r *relayNode) do(f func(out *packet.Batch)) {
	var out packet.Batch
	f(&out)
	for _, d := range out.UDP {
		r.w.net.Send(relayAddr, d.To, d.Payload)
	}
	for _, p := range out.IP {
		r.w.native(p)
	}
}

func (r *relayNode) Receive(from, _ netip.AddrPort, payload []byte, now time.Time) {
	r.do(func(out *packet.Batch) { r.engine.HandleUDP(from, payload, now, out) })
}

func (r *relayNode) handleIP(p packet.IPv6) {
	if r.deaf {
		return
	}
	r.do(func(out *packet.Batch) { r.engine.HandleIP(p, r.w.net.Now(), out) })
}

func (r *relayNode) Tick(now time.Time) {
	r.do(func(out *packet.Batch) { r.engine.Tick(now, out) })
}
func (r *relayNode) Next() time.Time { return r.engine.Next() }

// clientNode is a host with a Teredo client.
type clientNode struct {
	w      *world
	engine *client.Client
	local  netip.AddrPort
	got    []string // payloads that reached the host's stack
	errors int      // ICMPv6 errors that reached it
	events []string
	mute   bool           // the host does not answer
	ports  map[int]uint16 // open random ports by their socket
	fast   *fastModel     // nil: none
}

// options change the configuration of a client.
type option func(*client.Config)

// withoutPorts leaves the extensions that predict ports out.
func withoutPorts(c *client.Config) { c.RandomPorts = -1 }

func established(c *client.Config) { c.Inbound = client.Established }

func standby(c *client.Config) { c.Standby = true }

// client adds a started client behind a NAT; nat may be nil.
func (w *world) client(nat *nattest.NAT, options ...option) *clientNode {
	w.ids++
	cfg := client.Config{Rand: seeded(w.ids)}
	for _, o := range slices.Concat(w.all, options) {
		o(&cfg)
	}
	engine, err := client.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	n := &clientNode{w: w, engine: engine, local: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, w.ids}), 3550+uint16(w.ids))}
	if cfg.FastPeers > 0 {
		n.fast = &fastModel{n: n, established: cfg.Inbound == client.Established, peers: map[[16]byte]*client.FastChange{}}
	}
	if nat == nil {
		n.local = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 100 + w.ids}), n.local.Port())
		w.net.Attach(n, n.local.Addr())
	} else {
		w.net.AttachBehind(nat, n, n.local.Addr())
	}
	n.do(func(now time.Time, out *client.Out) {
		engine.Start(now, out)
		engine.LocalChanged(n.local, nil, now, out)
		engine.SetServers([]client.Server{{Primary: primary, Secondary: second}}, now, out)
	})
	return n
}

// qualified adds a client and waits until it has its address.
func (w *world) qualified(nat *nattest.NAT, options ...option) *clientNode {
	w.t.Helper()
	n := w.client(nat, options...)
	if !w.net.RunUntil(time.Second, func() bool { return n.engine.Snapshot().State == client.Qualified }) {
		w.t.Fatal("not qualified")
	}
	w.net.Run(4 * delay)
	return n
}

func (n *clientNode) do(f func(now time.Time, out *client.Out)) {
	var out client.Out
	f(n.w.net.Now(), &out)
	for _, s := range out.Sockets {
		n.change(s)
	}
	if n.fast != nil {
		n.fast.follow()
	}
	for _, d := range out.UDP {
		n.transmit(d.Socket, d.To, d.Payload, d.TTL)
	}
	for _, e := range out.Events {
		n.events = append(n.events, describe(e))
	}
	for _, p := range out.IP {
		n.deliver(p)
	}
}

// transmit sends a datagram from one of the client's sockets.
func (n *clientNode) transmit(socket int, to netip.AddrPort, payload []byte, ttl ...uint8) {
	from := n.local
	if socket != 0 {
		if n.ports[socket] == 0 {
			n.w.t.Fatalf("datagram for socket %d, which is closed", socket)
		}
		from = netip.AddrPortFrom(n.local.Addr(), n.ports[socket])
	}
	n.w.net.Send(from, to, payload, ttl...)
}

// describe puts an event in words.
func describe(e client.Event) string {
	switch e.Kind {
	case client.GotAddress:
		return fmt.Sprintf("got address by %s for %s, MTU %d", e.Server, e.Mapping, e.MTU)
	case client.AddressChanged:
		return fmt.Sprintf("address changed, for %s", e.Mapping)
	case client.AddressLost:
		return "lost: " + e.Cause.String()
	case client.NATDetermined:
		return "NAT: " + e.NAT.String()
	case client.ServerSilent:
		return "silent: " + e.Server.String()
	case client.ServerRefused:
		return "refused: " + e.Server.String()
	case client.SearchEnded:
		return "search ended with " + e.Wait.String()
	case client.Doubted:
		return "doubted: " + e.Server.String()
	case client.Confirmed:
		return fmt.Sprintf("confirmed, for %s", e.Mapping)
	case client.StandbyChanged:
		return fmt.Sprintf("standby %v, %s", e.Standby, e.Address)
	}
	return "off-line"
}

func (n *clientNode) deliver(p packet.IPv6) {
	if reply := answer(p); reply != nil && !n.mute {
		n.send(reply)
		return
	}
	if m, ok := p.ICMPv6(); ok && m[0] < 128 {
		n.errors++
		return
	}
	n.got = append(n.got, string(p.Payload()))
}

// send hands a packet of the host's stack to the client.
func (n *clientNode) send(p packet.IPv6) {
	if n.fast != nil && n.fast.fromHost(p) {
		return
	}
	n.do(func(now time.Time, out *client.Out) { n.engine.HandleIP(p, now, out) })
}

// say sends s to dst.
func (n *clientNode) say(dst netip.Addr, s string) { n.send(data(n.address(), dst, s)) }

func (n *clientNode) address() netip.Addr { return n.engine.Snapshot().Address }

// change opens or closes the socket of a random port.
func (n *clientNode) change(s client.SocketChange) {
	if n.ports == nil {
		n.ports = map[int]uint16{}
	}
	if (n.ports[s.Socket] == 0) == (s.Port == 0) {
		n.w.t.Fatalf("socket %d opened twice or closed twice", s.Socket)
	}
	if n.ports[s.Socket] = s.Port; s.Port == 0 {
		delete(n.ports, s.Socket)
	}
}

func (n *clientNode) Receive(from, to netip.AddrPort, payload []byte, _ time.Time) {
	socket := -1
	if to.Port() == n.local.Port() {
		socket = 0
	}
	for i, port := range n.ports {
		if port == to.Port() {
			socket = i
		}
	}
	if socket >= 0 && (n.fast == nil || !n.fast.fromNet(socket, from, payload)) {
		n.do(func(now time.Time, out *client.Out) { n.engine.HandleUDPOn(socket, from, payload, now, out) })
	}
}

func (n *clientNode) Tick(now time.Time) {
	if n.fast != nil {
		n.fast.report(now)
	}
	n.do(func(now time.Time, out *client.Out) { n.engine.Tick(now, out) })
}

func (n *clientNode) Next() time.Time {
	next := n.engine.Next()
	if n.fast == nil {
		return next
	}
	if at := n.fast.next(); next.IsZero() || !at.IsZero() && at.Before(next) {
		return at
	}
	return next
}

// dropped lists what the client dropped, by reason.
func (n *clientNode) dropped() string {
	var list []string
	for r, count := range n.engine.Stats().Dropped {
		if count > 0 {
			list = append(list, fmt.Sprintf("%s %d", client.Reason(r), count))
		}
	}
	return strings.Join(list, ", ")
}
