// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/teredo"
)

// relayPaths is the topology of the relay tables: three ways between the same two
// hosts, each through a router of its own over bare veth.
//
//	      2001:db8:N::/64               198.51.100.16N/28
//	        +---- kernel  (plain IPv6 forwarding) ----+
//	host ---+---- miredo  (relay)                 ----+--- client
//	        +---- isthmus (relay)                 ----+
//
// The client is the lab itself: two UDP sockets that play a Teredo client with an
// open mapping and its server. All three ways exist at once, so that slices of a
// measurement take turns.
type relayPaths struct {
	host, client *lab.Node
	paths        []*relayPath
	dir          string // configurations and control socket
}

// relayPath is one way through one router. Interfaces of host and client have its
// name; its router's are "in6" and "out4".
type relayPath struct {
	name      string
	router    *lab.Node
	host6     netip.Addr // the host's address on this way
	router4   netip.AddrPort
	client4   netip.Addr // the client's address on this way
	client6   netip.Addr // where the host sends to: a Teredo address, or a native one
	hostMAC   net.HardwareAddr
	clientMAC net.HardwareAddr
	in6MAC    net.HardwareAddr
	out4MAC   net.HardwareAddr

	teredo               *fakeClient // nil for plain forwarding
	fromHost, fromClient *load.Sender
	atHost, atClient     *load.Tap
	closers              []io.Closer
}

// Ports of the relay tables.
const (
	relayPort      = 3545
	fakeClientPort = 4096
)

// newRelayPaths draws the topology, starts the relays named in with, and makes
// the client trusted by each.
func newRelayPaths(ctx context.Context, l *lab.Lab, isthmus string, p *peers.Peers) (*relayPaths, error) {
	r := &relayPaths{host: l.Node("host"), client: l.Node("client")}
	names := []string{"kernel", "isthmus"}
	if p != nil {
		names = []string{"kernel", "miredo", "isthmus"}
	}
	for i, name := range names {
		r.paths = append(r.paths, r.draw(l, name, i+1))
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	var err error
	if r.dir, err = os.MkdirTemp("", "isthmus-relay-"); err != nil {
		return nil, err
	}
	for _, path := range r.paths {
		if err := path.prepare(ctx, r, isthmus, p); err != nil {
			r.close()
			return nil, fmt.Errorf("path through %s: %w", path.name, err)
		}
	}
	if err := r.quiet(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// draw adds the n-th path to the topology.
func (r *relayPaths) draw(l *lab.Lab, name string, n int) *relayPath {
	at6 := func(host int) string { return fmt.Sprintf("2001:db8:%d::%d", n, host) }
	at4 := func(host int) string { return fmt.Sprintf("198.51.100.%d", 16*n+host) }
	p := &relayPath{
		name:    name,
		router:  l.Node(name),
		host6:   netip.MustParseAddr(at6(2)),
		router4: netip.AddrPortFrom(netip.MustParseAddr(at4(1)), relayPort),
		client4: netip.MustParseAddr(at4(2)),
	}
	l.Link(r.host, name, p.router, "in6")
	l.Link(p.router, "out4", r.client, name)
	p.router.Forward(true, true).Addr("in6", at6(1)+"/64").Addr("out4", at4(1)+"/28")
	r.host.Addr(name, at6(2)+"/64")
	r.client.Addr(name, at4(2)+"/28")
	if name == "kernel" {
		p.client6 = netip.MustParseAddr("2001:db8:100::2")
		p.router.Addr("out4", "2001:db8:100::1/64")
		r.client.Addr(name, "2001:db8:100::2/64").Route("2001:db8:1::/64", "2001:db8:100::1")
	} else {
		p.client6 = teredo.Addr{
			Prefix: teredo.Prefix, Server: p.client4, Mapped: netip.AddrPortFrom(p.client4, fakeClientPort),
		}.IP()
	}
	r.host.Route(p.client6.String()+"/128", at6(1))
	return p
}

// prepare starts the path's relay, makes the client trusted by it, and opens what
// sends and stamps.
func (p *relayPath) prepare(ctx context.Context, r *relayPaths, isthmus string, all *peers.Peers) error {
	for _, m := range []struct {
		node  *lab.Node
		iface string
		mac   *net.HardwareAddr
	}{
		{r.host, p.name, &p.hostMAC}, {p.router, "in6", &p.in6MAC},
		{r.client, p.name, &p.clientMAC}, {p.router, "out4", &p.out4MAC},
	} {
		link, err := m.node.Netlink().LinkByName(m.iface)
		if err != nil {
			return err
		}
		*m.mac = link.Attrs().HardwareAddr
		// A relay may hand the kernel several packets as one. On a veth they would
		// stay one, and be counted as one.
		if err := m.node.DisableOffloads(m.iface); err != nil {
			return err
		}
	}
	for _, side := range []struct {
		node   *lab.Node
		sender **load.Sender
		tap    **load.Tap
	}{{r.host, &p.fromHost, &p.atHost}, {r.client, &p.fromClient, &p.atClient}} {
		if err := side.node.Do(func() error { return p.open(side.sender, side.tap) }); err != nil {
			return err
		}
	}
	if p.name == "kernel" {
		return p.warm(r)
	}
	if err := p.startRelay(ctx, r.dir, isthmus, all); err != nil {
		return err
	}
	return p.befriend(ctx, r.client)
}

// open opens what sends and what stamps at one end, in the namespace of the
// calling thread.
func (p *relayPath) open(sender **load.Sender, tap **load.Tap) (err error) {
	if *sender, err = load.OpenSender(p.name); err != nil {
		return err
	}
	p.closers = append(p.closers, *sender)
	if *tap, err = load.OpenTap(p.name); err != nil {
		return err
	}
	p.closers = append(p.closers, *tap)
	return nil
}

// warm lets the kernel path resolve its neighbours, by one packet each way.
func (p *relayPath) warm(r *relayPaths) error {
	if err := r.host.Do(func() error { return sendUDP(p.host6, p.client6) }); err != nil {
		return err
	}
	return r.client.Do(func() error { return sendUDP(p.client6, p.host6) })
}

func sendUDP(from, to netip.Addr) error {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, load.DiscardPort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("warm"))
	return err
}

// startRelay runs the relay that the path is named after.
func (p *relayPath) startRelay(ctx context.Context, dir, isthmus string, all *peers.Peers) error {
	if p.name == "miredo" {
		c, err := all.MiredoRelay(dir, peers.MiredoRelay{Name: "relay", Bind: p.router4})
		if err != nil {
			return err
		}
		_, err = p.router.Start(ctx, lab.Process{Name: "miredo", Path: c.Path, Args: c.Args, Env: c.Env})
		return err
	}
	file := filepath.Join(dir, "isthmus.toml")
	text := fmt.Sprintf("[control]\nsocket = %q\n\n[[relay]]\nname = \"relay\"\nbind = %q\n",
		filepath.Join(dir, "control.sock"), p.router4)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	_, err := p.router.Start(ctx, lab.Process{Name: "isthmus", Path: isthmus, Args: []string{"run", "-c", file}})
	return err
}

// befriend makes the relay trust the client: the host's packets make the relay
// send a bubble to the client's server, which is the fake client too, and it
// answers until a packet of the host comes through.
func (p *relayPath) befriend(ctx context.Context, client *lab.Node) error {
	fake, err := newFakeClient(client, p.client4, p.client6)
	if err != nil {
		return err
	}
	p.teredo = fake
	p.closers = append(p.closers, fake.service, fake.server)
	frame := load.Frame6(p.hostMAC, p.in6MAC, load.Packet(p.host6, p.client6, load.MinTaggedSize))
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := p.fromHost.Stream(frame, 0, 1, 0); err != nil {
			return err
		}
		if !p.atClient.Take(0, 1, 200*time.Millisecond)[0].IsZero() {
			return nil
		}
	}
	return fmt.Errorf("the relay did not come to trust its client within 10 seconds")
}

// quiet makes both hosts drop test packets as soon as they have been counted, so
// that no host answers them with errors.
func (r *relayPaths) quiet(ctx context.Context) error {
	for _, side := range []struct {
		node *lab.Node
		port uint16
	}{{r.host, load.DiscardPort}, {r.client, fakeClientPort}} {
		rules := "table netdev quiet {\n"
		for _, p := range r.paths {
			rules += fmt.Sprintf("chain %s {\ntype filter hook ingress device %q priority 0\nudp dport { %d, %d } drop\n}\n",
				p.name, p.name, load.DiscardPort, side.port)
		}
		if _, err := side.node.Run(ctx, "nft", rules+"}\n"); err != nil {
			return err
		}
	}
	return nil
}

// touch keeps the client trusted: a relay forgets a peer that is silent for 30
// seconds (RFC 4380 section 5.2.4).
func (p *relayPath) touch() error {
	if p.teredo == nil {
		return nil
	}
	return p.teredo.bubble()
}

// toClient is a frame from the host, of an IPv6 packet of size bytes.
func (p *relayPath) toClient(size int) []byte {
	return load.Frame6(p.hostMAC, p.in6MAC, load.Packet(p.host6, p.client6, size))
}

// toHost is a frame from the client, of an IPv6 packet of size bytes, in UDP
// where the path is a relay.
func (p *relayPath) toHost(size int) []byte {
	inner := load.Packet(p.client6, p.host6, size)
	if p.teredo == nil {
		return load.Frame6(p.clientMAC, p.out4MAC, inner)
	}
	return load.Frame4(p.clientMAC, p.out4MAC, netip.AddrPortFrom(p.client4, fakeClientPort), p.router4, inner)
}

// fakeClient plays a Teredo client with an open mapping, and its server.
type fakeClient struct {
	address netip.Addr
	service *net.UDPConn // the client's service port
	server  *net.UDPConn // port 3544
	relay   chan bubbleOrigin
	last    bubbleOrigin
}

// bubbleOrigin is who asked for a direct bubble.
type bubbleOrigin struct {
	relay  netip.AddrPort
	source netip.Addr
}

func newFakeClient(client *lab.Node, ip4, address netip.Addr) (*fakeClient, error) {
	f := &fakeClient{address: address, relay: make(chan bubbleOrigin, 1)}
	err := client.Do(func() (err error) {
		if f.service, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip4, fakeClientPort))); err != nil {
			return err
		}
		f.server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip4, teredo.Port)))
		return err
	})
	if err != nil {
		return nil, err
	}
	go f.serve()
	return f, nil
}

// serve answers each bubble that reaches the server with a direct one from the
// client, as RFC 4380 section 5.2.3 wants of clients, until the sockets close.
func (f *fakeClient) serve() {
	buf := make([]byte, 2048)
	for {
		n, from, err := f.server.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		p, err := teredo.Parse(buf[:n])
		if err != nil || !teredo.IsBubble(p.IPv6) {
			continue
		}
		origin := bubbleOrigin{relay: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), source: p.IPv6.Src()}
		select {
		case <-f.relay:
		default:
		}
		f.relay <- origin
		_ = f.send(origin)
	}
}

// bubble sends the relay one more direct bubble.
func (f *fakeClient) bubble() error {
	select {
	case f.last = <-f.relay:
	default:
	}
	if !f.last.relay.IsValid() {
		return errors.New("the relay has not asked for a bubble")
	}
	return f.send(f.last)
}

func (f *fakeClient) send(to bubbleOrigin) error {
	b := teredo.AppendBubble(make([]byte, 0, packet.IPv6HeaderLen), f.address, to.source)
	_, err := f.service.WriteToUDPAddrPort(b, to.relay)
	return err
}

// close closes the ends; the lab stops the relays.
func (r *relayPaths) close() {
	for _, p := range r.paths {
		for _, c := range p.closers {
			_ = c.Close()
		}
	}
	_ = os.RemoveAll(r.dir)
}
