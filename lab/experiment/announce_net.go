// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/teredo"
)

// Numbers of the networks in the announce experiment.
const (
	announceAS = 64512 // of the relays
	routerAS   = 64513
)

// announceRelay is one of several relays that announce the Teredo prefix.
type announceRelay struct {
	node    *lab.Node
	bind    netip.AddrPort
	addr    netip.Addr // on the link to the router
	med     int        // the lowest is used
	extra   string     // more lines of the section [announce]
	process *lab.Proc
	wire    *lab.Wire // to the IPv4 Internet
}

// announceNet is a router that chooses between two relays:
//
//	 IPv6 network 2001:db8::/64
//	---+--------------+------------------------+---
//	   | ::1          | ::fe                   | ::5
//	+--------+    +--------+  BIRD          +------+
//	| server |    | router |                | host |
//	+--------+    +--------+                +------+
//	   |            |      |
//	   |   2001:db8:1::  2001:db8:2::    BGP, 2001::/32
//	   |            |      |
//	   |      +--------+ +--------+
//	   |      | relay1 | | relay2 |
//	   |      +--------+ +--------+
//	   | .1 .2    | .3      | .4
//	---+----------+---------+---+----
//	 IPv4 Internet 203.0.113.0/24 | .10
//	                          +------+
//	                          | nat1 |--- client1
//	                          +------+
type announceNet struct {
	*teredoNet
	router *lab.Node
	relays []*announceRelay
	bird   peers.Bird
}

// drawAnnounce draws the topology, starts BIRD, the server, the relays and the
// client, and waits until the router uses the first relay.
func drawAnnounce(ctx context.Context, e *lab.Env, name string, extra string) (n *announceNet, err error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, err
	}
	n = &announceNet{teredoNet: &teredoNet{lab: l, daemons: &daemons{env: e, dir: l.Dir(), ctx: ctx}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	ipv4, ipv6 := l.Bridge("ipv4"), l.Bridge("ipv6")
	n.server, n.host, n.router = l.Node("server"), l.Node("host"), l.Node("router")
	l.Link(n.server, "v4", ipv4, "")
	for _, node := range []*lab.Node{n.server, n.host, n.router} {
		l.Link(node, "v6", ipv6, "")
	}
	n.router.Addr("v6", "2001:db8::fe/64").Forward(false, true)
	n.server.Addr("v4", "203.0.113.1/24", "203.0.113.2/24").Addr("v6", "2001:db8::1/64").Route("default6", "2001:db8::fe").Forward(false, true)
	n.host.Addr("v6", "2001:db8::5/64").Route("default6", "2001:db8::fe")
	n.bird = peers.Bird{Name: "router", RouterID: netip.MustParseAddr("192.0.2.254"), AS: routerAS}
	for i := range 2 {
		n.drawRelay(i+1, ipv4, extra)
	}
	n.clients = []*teredoClient{n.drawClient(teredoPlan{}, 1, lab.PortRestricted, ipv4)}
	if err := l.Err(); err != nil {
		return nil, err
	}
	return n, n.start(ctx)
}

// drawRelay draws the relay of that number, its link to the router and its wire to
// the IPv4 Internet.
func (n *announceNet) drawRelay(number int, ipv4 *lab.Node, extra string) {
	l := n.lab
	r := &announceRelay{
		node: l.Node(fmt.Sprintf("relay%d", number)),
		bind: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(2 + number)}), relayBind.Port()),
		addr: netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::2", number)),
		med:  10 * (number - 1), extra: extra,
	}
	near := netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::1", number))
	port := fmt.Sprintf("r%d", number)
	l.Link(n.router, port, r.node, "v6")
	r.wire, _ = l.Wire(r.node, "v4", ipv4, "", lab.WireConfig{})
	n.router.Addr(port, near.String()+"/64")
	r.node.Addr("v6", r.addr.String()+"/64").Addr("v4", r.bind.Addr().String()+"/24").Route("default6", near.String()).Forward(false, true)
	n.relays = append(n.relays, r)
	n.bird.Sessions = append(n.bird.Sessions, peers.BirdSession{
		Name: r.node.Name(), Local: near, Neighbor: r.addr, AS: announceAS, Passive: true,
	})
}

func (n *announceNet) start(ctx context.Context) error {
	if err := n.startServer(ctx, isthmus); err != nil {
		return err
	}
	command, err := peersOf(n.daemons.env).Bird(n.daemons.dir, n.bird)
	if _, err := n.daemons.startPeer(ctx, n.router, "bird", command, err); err != nil {
		return err
	}
	for _, r := range n.relays {
		if err := n.startAnnounced(ctx, r); err != nil {
			return err
		}
	}
	if err := n.awaitSessions(ctx); err != nil {
		return err
	}
	if err := n.awaitRelay(ctx, n.relays[0]); err != nil {
		return err
	}
	return n.startClients(ctx, isthmus)
}

// startAnnounced starts a relay that announces its prefix to the router.
func (n *announceNet) startAnnounced(ctx context.Context, r *announceRelay) (err error) {
	near := n.bird.Sessions[r.number()-1].Local
	r.process, err = n.daemons.startIsthmus(ctx, r.node, "relay", fmt.Sprintf(`bind = %q
announce = true
fast_path = "off"
[announce]
method = "bgp"
local_as = %d
router_id = %q
med = %d
%s
[[announce.neighbor]]
address = %q
as = %d
`, r.bind, announceAS, r.bind.Addr(), r.med, r.extra, near, routerAS))
	if err != nil {
		return err
	}
	return serving(ctx, r.node, r.process, r.bind.Port())
}

func (r *announceRelay) number() int {
	return int(r.bind.Addr().As4()[3]) - 2
}

// announceWait bounds the wait for a session, and for a route to move: a speaker
// that was refused calls again after some seconds.
const announceWait = time.Minute

// awaitSessions waits until the router has heard of the prefix from all relays.
func (n *announceNet) awaitSessions(ctx context.Context) error {
	return n.until(ctx, "the router has not heard from all relays", func() (bool, error) {
		routes, err := n.ask("show route for 2001::/32 all")
		return strings.Count(routes, "BGP.origin") == len(n.relays), err
	})
}

// awaitRelay waits until the router sends to a relay.
func (n *announceNet) awaitRelay(ctx context.Context, r *announceRelay) error {
	return n.until(ctx, "the router does not send to "+r.node.Name(), func() (bool, error) {
		hop, err := nextHop6(n.router, teredo.Prefix)
		return hop == r.addr, err
	})
}

// until polls, since a kernel's route and an answer of BIRD have no common event.
func (n *announceNet) until(ctx context.Context, problem string, done func() (bool, error)) error {
	err := poll(ctx, announceWait, 5*time.Millisecond, func(context.Context) (bool, error) { return done() })
	if err != nil {
		seen, _ := n.ask("show route all")
		return fmt.Errorf("%s after %v: %w; its routes:\n%s", problem, announceWait, err, seen)
	}
	return nil
}

// ask asks BIRD. One that has just been started may not listen yet.
func (n *announceNet) ask(command string) (answer string, err error) {
	socket := filepath.Clean(n.bird.Socket(n.daemons.dir))
	for end := time.Now().Add(daemonStart); ; time.Sleep(10 * time.Millisecond) {
		answer, err = peers.AskBird(socket, command)
		if err == nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) || time.Now().After(end) {
			return answer, err
		}
	}
}

// nextHop6 is the next hop of a node's route to a prefix; not valid if there is
// none.
func nextHop6(node *lab.Node, p netip.Prefix) (netip.Addr, error) {
	routes, err := node.Kernel().RouteList(nil, netlink.FAMILY_V6)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return netip.Addr{}, nil // the next look will tell
	}
	for _, r := range routes {
		if r.Dst != nil && r.Dst.String() == p.String() {
			hop, _ := netip.AddrFromSlice(r.Gw)
			return hop, err
		}
	}
	return netip.Addr{}, err
}

// control is a client of the relay's control socket.
func (n *announceNet) control(r *announceRelay) *control.Client {
	return control.NewClient(n.daemons.isthmus(r.node, "relay").socket())
}
