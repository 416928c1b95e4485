// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// Addresses of the Teredo topology.
var (
	serverAddr  = netip.MustParseAddr("203.0.113.1")
	serverAddr2 = netip.MustParseAddr("203.0.113.2")
	relayBind   = netip.MustParseAddrPort("203.0.113.3:3545")
	hostRelay   = netip.MustParseAddrPort("203.0.113.5:3545") // of a host-specific relay
	relayAddr6  = netip.MustParseAddr("2001:db8::3")
	hostAddr    = netip.MustParseAddr("2001:db8::5")
)

// publicNet is for boxes that must not have a documentation address, which
// miniupnpd refuses to reserve ports at: that of the example of RFC 4380 section
// 5.1.1. Nothing leaves the lab.
const publicNet = "1.2.3.0/24"

// answerWait bounds the wait for an answer that must come. It takes milliseconds;
// the rest is for a machine that leaves a program without a processor for a while.
const answerWait = 20 * time.Second

// clientPort is the UDP port of every client. They live behind boxes of their
// own, so that one port does for all.
const clientPort = 3551

// maxClients is how many NAT boxes have an address below 203.0.113.0/24.
const maxClients = 24

// teredoPlan says how the Teredo topology is drawn.
type teredoPlan struct {
	// NATs has one box, with one client behind it, for each entry.
	NATs []lab.NATKind
	// Delay is that of every IPv4 link, one way; 0 is a bare cable.
	Delay time.Duration
	// Public numbers the boxes from publicNet instead of 203.0.113.0/24.
	Public bool
	// Fallback has the relay carry between clients, which all name it.
	Fallback bool
	// Core has the clients be UEs of a mobile core each, whose GGSN is the box.
	Core bool
	// SingleAddress leaves the server its first address only.
	SingleAddress bool
}

// teredoNet is the topology of all Teredo experiments:
//
//	    IPv6 network 2001:db8::/64; 2001::/32 is routed to the relay
//	 ---+-----------------+-----------------------------+---
//	    | ::1             | ::3                         | ::5
//	+--------+        +-------+                     +--------+
//	| server |        | relay |                     |  host  |
//	+--------+        +-------+                     +--------+
//	    | .1 .2           | .3                          | .5
//	 ---+-----------------+------+------------------+---+---
//	    IPv4 Internet            | .10              | .20
//	    203.0.113.0/24       +------+           +------+
//	                         | nat1 |           | nat2 |  ...
//	                         +------+           +------+
//	                             | 192.168.1.1      | 192.168.2.1
//	                             |                  |
//	                             | 192.168.1.2      | 192.168.2.2
//	                        +---------+        +---------+
//	                        | client1 |        | client2 |  ...
//	                        +---------+        +---------+
//
// The host speaks IPv4 only when it is its own, host-specific relay.
type teredoNet struct {
	lab                 *lab.Lab
	server, relay, host *lab.Node
	clients             []*teredoClient
	daemons             *daemons
	single, fallback    bool
	bridge4, bridge6    *lab.Node // the IPv4 Internet, the IPv6 network
}

// teredoClient is a client and the box in front of it.
type teredoClient struct {
	net       *teredoNet
	node, nat *lab.Node
	kind      lab.NATKind
	local     netip.Addr // 192.168.N.2
	external  netip.Addr // of the box
	name      string
	sgsn      *lab.Node // of a UE, with the addresses of its core; else nil
	core      gsns
	settings  string   // more lines of an Isthmus client's section
	port      uint16   // UDP port if not clientPort
	lines     []string // of its configuration, beside those of all
	// Of Isthmus: more servers than the usual one, and several interfaces.
	servers    []netip.Addr
	interfaces []string

	// Set by start:
	who     maker
	process *lab.Proc
	arrival *arrival
	// Set by await:
	addr netip.Addr
}

// drawTeredo draws the topology. Nothing runs in it yet.
func drawTeredo(ctx context.Context, e *lab.Env, name string, plan teredoPlan) (*teredoNet, error) {
	if len(plan.NATs) > maxClients {
		return nil, fmt.Errorf("the Teredo topology has room for %d clients, not %d", maxClients, len(plan.NATs))
	}
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, err
	}
	n := &teredoNet{lab: l, daemons: &daemons{env: e, dir: l.Dir(), ctx: ctx}, single: plan.SingleAddress, fallback: plan.Fallback}
	ipv4, ipv6 := l.Bridge("ipv4"), l.Bridge("ipv6")
	n.bridge4, n.bridge6 = ipv4, ipv6
	n.server, n.relay, n.host = l.Node("server"), l.Node("relay"), l.Node("host")
	for _, node := range []*lab.Node{n.server, n.relay, n.host} {
		plan.link(l, node, "v4", ipv4, "")
		l.Link(node, "v6", ipv6, "")
	}
	n.server.Addr("v4", "203.0.113.1/24").Addr("v6", "2001:db8::1/64").Route("2001::/32", "2001:db8::3").Forward(false, true)
	if !plan.SingleAddress {
		n.server.Addr("v4", "203.0.113.2/24")
	}
	n.relay.Addr("v4", "203.0.113.3/24").Addr("v6", "2001:db8::3/64").Forward(false, true)
	n.host.Addr("v6", "2001:db8::5/64").Route("2001::/32", "2001:db8::3")
	if plan.Public {
		n.server.Route(publicNet, "v4")
		n.relay.Route(publicNet, "v4")
	}
	for i, kind := range plan.NATs {
		n.clients = append(n.clients, n.drawClient(plan, i+1, kind, ipv4))
	}
	err = l.Err()
	if err == nil && plan.Core {
		_, err = together(len(n.clients), func(i int) (*lab.Proc, error) { return n.clients[i].attach(ctx) })
	}
	if err == nil {
		err = n.meetNeighbours(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return n, nil
}

// meetNeighbours has every box and the relay resolve the link addresses of the
// others. On the Internet routers have long done so; here a first packet would
// wait for it, one round trip of a link.
func (n *teredoNet) meetNeighbours(ctx context.Context) error {
	type pair struct {
		from *lab.Node
		to   netip.Addr
	}
	pairs := []pair{{n.relay, serverAddr}, {n.relay, hostAddr}, {n.server, hostAddr}, {n.server, relayAddr6}}
	for _, c := range n.clients {
		pairs = append(pairs, pair{c.node, serverAddr}, pair{c.nat, relayBind.Addr()}, pair{c.nat, serverAddr})
	}
	_, err := together(len(pairs), func(i int) (lab.PingResult, error) {
		r, err := pairs[i].from.Ping(ctx, lab.Ping{To: pairs[i].to, Timeout: answerWait})
		if err == nil && r.Lost() > 0 {
			err = fmt.Errorf("node %s cannot reach %v", pairs[i].from.Name(), pairs[i].to)
		}
		return r, err
	})
	return err
}

// drawClient draws the client of that number and its box.
func (n *teredoNet) drawClient(plan teredoPlan, number int, kind lab.NATKind, ipv4 *lab.Node) *teredoClient {
	l := n.lab
	c := &teredoClient{
		net: n, kind: kind, name: fmt.Sprintf("client%d", number),
		local:    netip.AddrFrom4([4]byte{192, 168, byte(number), 2}),
		external: netip.AddrFrom4([4]byte{203, 0, 113, byte(10 * number)}),
	}
	if plan.Public {
		c.external = netip.AddrFrom4([4]byte{1, 2, 3, byte(10 * number)})
	}
	c.node = l.Node(c.name)
	if plan.Core {
		c.drawCore(number)
	} else {
		c.drawLAN(plan, number)
	}
	plan.link(l, c.nat, "e4", ipv4, "")
	c.nat.Addr("e4", c.external.String()+"/24")
	if plan.Public {
		c.nat.Route("203.0.113.0/24", "e4")
	}
	return c
}

// drawLAN puts a box in front of the client.
func (c *teredoClient) drawLAN(plan teredoPlan, number int) {
	l, gateway := c.net.lab, netip.AddrFrom4([4]byte{192, 168, byte(number), 1})
	c.nat = l.NAT(fmt.Sprintf("nat%d", number), lab.NATConfig{Kind: c.kind, InputDrop: true, External: c.external})
	plan.link(l, c.node, "eth0", c.nat, "l1")
	c.nat.Addr("l1", gateway.String()+"/24")
	c.node.Addr("eth0", c.local.String()+"/24").Route("default", gateway.String())
}

// capture records the links of clients, server, relay and host, if captures
// were asked for. Segmentation offload goes off first: with it one frame holds
// what a wire would carry as many.
func (n *teredoNet) capture() (all []*lab.Capture, err error) {
	dir := n.daemons.env.PcapDir
	if dir == "" {
		return nil, nil
	}
	type end struct {
		node  *lab.Node
		iface string
	}
	ends := []end{{n.server, "v4"}, {n.relay, "v4"}, {n.host, "v6"}}
	for _, c := range n.clients {
		if c.sgsn != nil {
			ends = append(ends, end{c.sgsn, "gn"})
			continue
		}
		ends = append(ends, end{c.node, "eth0"})
	}
	for _, x := range ends {
		if err := x.node.DisableOffloads(x.iface); err != nil {
			return nil, err
		}
		file := fmt.Sprintf("%s-%s-%s.pcap", n.lab.Name(), x.node.Name(), x.iface)
		c, err := n.lab.Capture(x.node, x.iface, filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Close ends everything. A daemon that had ended by itself is an error.
func (n *teredoNet) Close() error {
	err := n.daemons.healthy()
	return errors.Join(err, n.lab.Close())
}

// startCore starts server and relay and waits until they serve.
func (n *teredoNet) startCore(ctx context.Context, server, relay maker) error {
	if err := n.startServer(ctx, server); err != nil {
		return err
	}
	return n.startRelay(ctx, relay)
}

// startAll starts captures, if they are wanted, and one maker's programs in all roles.
func (n *teredoNet) startAll(ctx context.Context, who maker) error {
	if _, err := n.capture(); err != nil {
		return err
	}
	if err := n.startCore(ctx, who, who); err != nil {
		return err
	}
	return n.startClients(ctx, who)
}

// startClients starts all clients at once and waits for their addresses.
func (n *teredoNet) startClients(ctx context.Context, who maker) error {
	for _, c := range n.clients {
		if err := c.start(ctx, who); err != nil {
			return err
		}
	}
	for _, c := range n.clients {
		if _, err := c.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// link joins two ends of an IPv4 link, by a wire if the plan has a delay. The
// first failure is kept by the lab.
func (p teredoPlan) link(l *lab.Lab, a *lab.Node, ifaceA string, b *lab.Node, ifaceB string) {
	if p.Delay == 0 {
		l.Link(a, ifaceA, b, ifaceB)
		return
	}
	lane := lab.LaneConfig{Delay: p.Delay}
	_, _ = l.Wire(a, ifaceA, b, ifaceB, lab.WireConfig{AtoB: lane, BtoA: lane})
}
