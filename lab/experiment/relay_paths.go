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

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/teredo"
)

// relayPaths is the topology of the relay tables: several ways between the same
// two hosts, each through a router of its own over bare veth.
//
//	      2001:db8:N::/64               198.51.100.16N/28
//	        +---- kernel  (plain IPv6 forwarding) ----+
//	host ---+---- miredo  (relay)                 ----+--- client
//	        +---- xdp     (relay)                 ----+
//	        +-----------------------------------------+
//
// The client is the lab itself: two UDP sockets that play a Teredo client with an
// open mapping and its server. All ways exist at once, so that slices of a
// measurement take turns.
type relayPaths struct {
	host, client *lab.Node
	paths        []*relayPath
	dir          string // configurations and control sockets
}

// relayPath is one way. Interfaces of host and client have its name; its router's
// are "in6" and "out4".
type relayPath struct {
	way       way
	router    *lab.Node  // nil for a bare cable
	host6     netip.Addr // the host's address on this way
	router4   netip.AddrPort
	client4   netip.Addr // the client's address on this way
	client6   netip.Addr // where the host sends to: a Teredo address, or a native one
	hostMAC   net.HardwareAddr
	clientMAC net.HardwareAddr
	in6MAC    net.HardwareAddr // what the host sends to
	out4MAC   net.HardwareAddr // what the client sends to

	process              *lab.Proc   // of the relay
	teredo               *fakeClient // nil for a native way
	fromHost, fromClient *load.Sender
	toClient, toHost     *load.Meter
	closers              []io.Closer
	before               taken // what the relay forwarded until then
}

// Ports of the relay tables.
const (
	relayPort      = 3545
	fakeClientPort = 4096
)

// idleLink is a cable that nothing is sent on, for what wants an interface.
const idleLink = "idle"

// newRelayPaths draws the topology, starts the relays, and makes the client
// trusted by each.
func newRelayPaths(ctx context.Context, e *lab.Env, l *lab.Lab, ways []way) (*relayPaths, error) {
	r := &relayPaths{host: l.Node("host"), client: l.Node("client")}
	l.Link(r.host, idleLink, r.client, idleLink)
	for i, w := range ways {
		r.paths = append(r.paths, r.draw(l, w, i+1))
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	var err error
	if r.dir, err = os.MkdirTemp(l.Dir(), "relay-"); err != nil {
		return nil, err
	}
	for _, path := range r.paths {
		if err := path.prepare(ctx, e, r); err != nil {
			r.close()
			return nil, fmt.Errorf("path through %s: %w", path.way.title, err)
		}
	}
	return r, nil
}

// draw adds the n-th path to the topology.
func (r *relayPaths) draw(l *lab.Lab, w way, n int) *relayPath {
	at6 := func(host int) string { return fmt.Sprintf("2001:db8:%d::%d", n, host) }
	at4 := func(host int) string { return fmt.Sprintf("198.51.100.%d", 16*n+host) }
	name := w.name
	p := &relayPath{
		way:     w,
		host6:   netip.MustParseAddr(at6(2)),
		router4: netip.AddrPortFrom(netip.MustParseAddr(at4(1)), relayPort),
		client4: netip.MustParseAddr(at4(2)),
		client6: netip.MustParseAddr("2001:db8:100::2"),
	}
	if w.by == byCable {
		l.Link(r.host, name, r.client, name)
		return p
	}
	p.router = l.Node(name)
	l.Link(r.host, name, p.router, "in6")
	l.Link(p.router, "out4", r.client, name)
	p.router.Forward(true, true).Addr("in6", at6(1)+"/64").Addr("out4", at4(1)+"/28")
	r.host.Addr(name, at6(2)+"/64")
	r.client.Addr(name, at4(2)+"/28")
	if w == wayKernel {
		p.router.Addr("out4", "2001:db8:100::1/64")
		r.client.Addr(name, "2001:db8:100::2/64").Route(at6(0)+"/64", "2001:db8:100::1")
	} else {
		p.client6 = teredo.Addr{
			Prefix: teredo.Prefix, Server: p.client4, Mapped: netip.AddrPortFrom(p.client4, fakeClientPort),
		}.IP()
	}
	r.host.Route(p.client6.String()+"/128", at6(1))
	return p
}

// prepare starts the path's relay, opens what sends and counts, and makes the
// client trusted.
func (p *relayPath) prepare(ctx context.Context, e *lab.Env, r *relayPaths) error {
	if err := p.learn(r); err != nil {
		return err
	}
	if err := p.open(r); err != nil {
		return err
	}
	if p.way.by == byCable {
		return nil
	}
	if p.way == wayKernel {
		return p.warm(r)
	}
	if err := p.startRelay(ctx, e, r.dir); err != nil {
		return err
	}
	if err := p.befriend(ctx, r.client); err != nil || !p.way.ours() {
		return err
	}
	return p.awaitWay(ctx, r.dir)
}

// learn notes link addresses, and switches off what a wire does not have.
func (p *relayPath) learn(r *relayPaths) error {
	type end struct {
		node  *lab.Node
		iface string
		macs  []*net.HardwareAddr
	}
	name := p.way.name
	ends := []end{
		{r.host, name, []*net.HardwareAddr{&p.hostMAC}}, {p.router, "in6", []*net.HardwareAddr{&p.in6MAC}},
		{r.client, name, []*net.HardwareAddr{&p.clientMAC}}, {p.router, "out4", []*net.HardwareAddr{&p.out4MAC}},
	}
	if p.way.by == byCable {
		ends = []end{
			{r.host, name, []*net.HardwareAddr{&p.hostMAC, &p.out4MAC}},
			{r.client, name, []*net.HardwareAddr{&p.clientMAC, &p.in6MAC}},
		}
	}
	for _, m := range ends {
		link, err := m.node.Netlink().LinkByName(m.iface)
		if err != nil {
			return err
		}
		for _, mac := range m.macs {
			*mac = link.Attrs().HardwareAddr
		}
		// A relay may hand the kernel several packets as one. On a veth they would
		// stay one, and be counted as one.
		if err := m.node.DisableOffloads(m.iface); err != nil {
			return err
		}
	}
	return nil
}

// open opens what sends and what counts at both ends.
func (p *relayPath) open(r *relayPaths) (err error) {
	name := p.way.name
	if p.toClient, err = load.NewMeter(); err != nil {
		return err
	}
	p.closers = append(p.closers, p.toClient)
	if p.toHost, err = load.NewMeter(); err != nil {
		return err
	}
	p.closers = append(p.closers, p.toHost)
	for _, side := range []struct {
		node    *lab.Node
		sender  **load.Sender
		out, in *load.Meter
	}{{r.host, &p.fromHost, p.toClient, p.toHost}, {r.client, &p.fromClient, p.toHost, p.toClient}} {
		err := side.node.Do(func() (err error) {
			if *side.sender, err = load.OpenQueuedSender(name); err != nil {
				return err
			}
			p.closers = append(p.closers, *side.sender)
			return errors.Join(side.out.Departure(name), side.in.Arrival(name, sink))
		})
		if err != nil {
			return err
		}
	}
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

// touch keeps the client trusted: a relay forgets a peer that is silent for 30
// seconds (RFC 4380 section 5.2.4).
func (p *relayPath) touch() error {
	if p.teredo == nil {
		return nil
	}
	return p.teredo.bubble()
}

// frame is one of the host or of the client, of an IPv6 packet of size bytes; the
// client's is in UDP where the path is a relay.
func (p *relayPath) frame(d direction, size int) []byte {
	if d == toIPv4 {
		return load.Frame6(p.hostMAC, p.in6MAC, load.Packet(p.host6, p.client6, size))
	}
	inner := load.Packet(p.client6, p.host6, size)
	if !p.way.runs() {
		return load.Frame6(p.clientMAC, p.out4MAC, inner)
	}
	return load.Frame4(p.clientMAC, p.out4MAC, netip.AddrPortFrom(p.client4, fakeClientPort), p.router4, inner)
}

// ends are what sends and what counts in that direction.
func (p *relayPath) ends(d direction) (*load.Sender, *load.Meter) {
	if d == toIPv4 {
		return p.fromHost, p.toClient
	}
	return p.fromClient, p.toHost
}

// healthy tells of a relay that ended.
func (r *relayPaths) healthy() error {
	var errs []error
	for _, p := range r.paths {
		if p.process == nil {
			continue
		}
		select {
		case <-p.process.Done():
			errs = append(errs, fmt.Errorf("%s ended by itself: %w", p.way.title, errors.Join(p.process.Wait(), errEarly)))
		default:
		}
	}
	return errors.Join(errs...)
}

// close closes the ends; the lab stops the relays.
func (r *relayPaths) close() {
	for _, p := range r.paths {
		for _, c := range p.closers {
			_ = c.Close()
		}
	}
}
