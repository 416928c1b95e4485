// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar/registrarrole"
)

// Ports, names and metrics of the topology.
const (
	sipPort    = 5060
	sipSecret  = "only in the lab"
	sipUE      = "sip:ue@example.net"
	sipPrefer  = 50  // of the route by b, when calls are to leave a
	sipUsual   = 100 // of the route by a
	sipStandby = 200 // of the route by b
)

// What is lost where something is, and how soon a re-INVITE is repeated where that is not after T1.
const (
	sipLoss, sipLittleLoss = 0.2, 0.05
	sipRepeat              = 80 * time.Millisecond
)

// sipNet is a mobile host with two links to a router, behind which are the SIP server and the
// hosts that it calls. What is behind a wire is as far away by either link.
//
//	    +-- a --+          +------ server
//	ue -|       |- router -+------ host 0 ms
//	    +-- b --+          +~~~~~~ host 50 ms, 200 ms, …
type sipNet struct {
	*walk
	sipWorld
	mobile, router *lab.Node
	server         *lab.Node
	ue             *sipPhone
}

// sipHost is a host that is called.
type sipHost struct {
	name       string
	trip       time.Duration // from the router to it and back
	loss       float64       // of SIP, each way
	everything bool          // is lost at this rate, not SIP alone
	latch      bool          // media follow the address that they come from
	kinds      []sipKind     // of the moves that are measured with it
	node       *lab.Node
	phone      *sipPhone
}

// lane is a direction of the wire to it.
func (h *sipHost) lane() lab.LaneConfig {
	c := lab.LaneConfig{Delay: h.trip / 2, Loss: h.loss}
	if !h.everything {
		c.Lossy = lab.UDP(sipPort, "")
	}
	return c
}

// lan is a subnet with the router at its first address.
type lan struct {
	number int
	ipv6   bool
}

// at is an address of the subnet.
func (l lan) at(host int) netip.Addr {
	if l.ipv6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::%x", l.number, host))
	}
	return netip.AddrFrom4([4]byte{10, 0, byte(l.number), byte(host)})
}

// with is an address with the subnet's prefix length.
func (l lan) with(host int) string {
	if l.ipv6 {
		return l.at(host).String() + "/64"
	}
	return l.at(host).String() + "/24"
}

// Numbers of the subnets; those of hosts follow.
const (
	sipLinkA = 1 + iota
	sipLinkB
	sipLinkServer
	sipLinkHosts = 16
)

func (n *sipNet) lan(number int) lan { return lan{number, n.ipv6} }

// drawSIP draws the topology and has all of it run.
func drawSIP(ctx context.Context, e *lab.Env, world sipWorld) (_ *sipNet, err error) {
	family := "4"
	if world.ipv6 {
		family = "6"
	}
	w, err := newWalk(ctx, e, sipMobilityName+family)
	if err != nil {
		return nil, err
	}
	n := &sipNet{walk: w, sipWorld: world}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	n.draw()
	if err := n.lab.Err(); err != nil {
		return nil, err
	}
	if err := errors.Join(e.Capture(n.mobile, "a"), e.Capture(n.mobile, "b"), n.stand()); err != nil {
		return nil, err
	}
	return n, n.start(ctx)
}

// draw draws nodes, links and addresses.
func (n *sipNet) draw() {
	l := n.lab
	n.mobile, n.router, n.server = l.Node("ue"), l.Node("router"), l.Node("server")
	n.router.Forward(!n.ipv6, n.ipv6)
	for number, iface := range map[int]string{sipLinkA: "a", sipLinkB: "b"} {
		n.join(n.mobile, iface, iface, lab.LaneConfig{Delay: n.access / 2}, uint64(number))
		n.router.Addr(iface, n.lan(number).with(1))
		n.mobile.Addr(iface, n.lan(number).with(2))
	}
	l.Link(n.server, "eth0", n.router, "server")
	n.attach(n.server, "server", sipLinkServer)
	for i, h := range n.hosts {
		h.node = l.Node(h.name)
		n.join(h.node, "eth0", h.name, h.lane(), uint64(i)+1)
		n.attach(h.node, h.name, sipLinkHosts+i)
	}
}

// join joins a node with the router, by a wire if there is something for it to do.
func (n *sipNet) join(node *lab.Node, iface, far string, lane lab.LaneConfig, seed uint64) {
	if lane.Delay == 0 && lane.Loss == 0 {
		n.lab.Link(node, iface, n.router, far)
		return
	}
	_, _ = n.lab.Wire(node, iface, n.router, far, lab.WireConfig{AtoB: lane, BtoA: lane, Seed: seed}) // the lab keeps the error
}

// attach gives addresses to a link between a node and the router.
func (n *sipNet) attach(node *lab.Node, iface string, number int) {
	n.router.Addr(iface, n.lan(number).with(1))
	node.Addr("eth0", n.lan(number).with(2)).Route("default", n.lan(number).at(1).String())
}

// stand sets the routes by which a is used and b stands by.
func (n *sipNet) stand() error {
	return errors.Join(n.route("a", sipLinkA, sipUsual), n.route("b", sipLinkB, sipStandby))
}

func (n *sipNet) route(iface string, number, metric int) error {
	return setRoute((*lab.Kernel).RouteReplace).byDefault(n.mobile, iface, n.lan(number).at(1).String(), metric)
}

// sipKamailio is the mode of a server that is Kamailio, a proxy.
const sipKamailio = "Kamailio"

// start starts the server and all telephones. The hosts are of another domain, and strangers to
// the server.
func (n *sipNet) start(ctx context.Context) (err error) {
	at := n.lan(sipLinkServer).at(2)
	if n.mode == sipKamailio {
		err = n.serveKamailio(ctx, n.server, kamailioAt(at))
	} else {
		err = n.serveIsthmus(ctx, at)
	}
	if err != nil {
		return err
	}
	for _, h := range n.hosts {
		if h.phone, err = startPhone(ctx, h.node, phoneSettings("sip:"+h.name+"@example.org", at, h.latch)); err != nil {
			return err
		}
	}
	set := terminalSettings(at)
	set.UA.FirstRepeat = n.repeat
	if n.ue, err = startPhone(ctx, n.mobile, set); err != nil {
		return err
	}
	return n.settle(ctx)
}

// serveIsthmus starts our server at an address.
func (n *sipNet) serveIsthmus(ctx context.Context, at netip.Addr) error {
	sections, err := sipServer(n.dir, at, n.mode)
	if err != nil {
		return err
	}
	return n.serve(ctx, n.server, sections)
}

// sipServer is the configuration of our server at an address, at which the terminal may register.
func sipServer(dir string, at netip.Addr, mode string) (sections string, err error) {
	file := filepath.Join(dir, "subscribers.toml")
	text := fmt.Sprintf("[[subscriber]]\nprivate_id = \"ue\"\npublic_ids = [%q]\npassword = %q\n", sipUE, sipSecret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	return fmt.Sprintf(`[[registrar]]
domains = ["example.net"]
listen = [%q]
subscribers_file = %q
mode = %q
record_route = false
keep_state = false
`, at, file, mode), nil
}

// settle waits until the terminal is registered by a, with b on standby.
func (n *sipNet) settle(ctx context.Context) error {
	if err := n.registered(ctx, sipLinkA); err != nil {
		return err
	}
	return n.ue.awaitPaths(ctx, n.lan(sipLinkA).at(2), 1)
}

// registered waits until the server has a binding of the terminal on a link.
func (n *sipNet) registered(ctx context.Context, link int) error {
	return awaitBinding(ctx, n.bindings, n.lan(link).at(2))
}

// awaitBinding waits until an address is among the contacts that a server has of the terminal.
func awaitBinding(ctx context.Context, list func(context.Context) ([]string, error), want netip.Addr) error {
	err := poll(ctx, sipWait, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
		contacts, err := list(ctx)
		for _, contact := range contacts {
			if u, e := message.ParseURI(contact); e == nil && u.Host == want.String() {
				return true, err
			}
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("the terminal has no binding for %v: %w", want, err)
	}
	return nil
}

// bindings are the contacts of the terminal at the server.
func (n *sipNet) bindings(ctx context.Context) (contacts []string, err error) {
	if n.mode == sipKamailio {
		return kamailioServer{kamailioAt(n.lan(sipLinkServer).at(2)), n.env, n.dir, n.server}.bindings(ctx)
	}
	return instance{n.server, n.env.Binary, n.dir, n.server.Name()}.bindings(ctx, sipUE)
}

// bindings are the contacts of an address of record at this registrar.
func (i instance) bindings(ctx context.Context, aor string) (contacts []string, err error) {
	var list registrarrole.Bindings
	err = i.ask(ctx, "registrar", "bindings", map[string]any{"address": aor, "limit": 100}, &list)
	for _, b := range list.Bindings {
		contacts = append(contacts, b.Contact)
	}
	return contacts, err
}

// close ends telephones, server and topology.
func (n *sipNet) close() error {
	var err error
	for _, h := range n.hosts {
		err = errors.Join(err, h.phone.close())
	}
	return errors.Join(err, n.ue.close(), n.walk.close())
}

// uriHost is an address as it stands in a URI.
func uriHost(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}
