// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// natCase is a pair of clients that the matrix has no place for.
type natCase struct {
	name string
	// draw draws the pair; number is that of the case, from 1.
	draw func(n *teredoNet, number int) (from, to *teredoClient)
	// lines are Isthmus's configuration beside the usual one. A case that is about
	// them alone is not for Miredo.
	lines    []string
	oursOnly bool
	// trap marks a case that shows what may go wrong.
	trap bool
	// timed marks cases whose first answer must come in time.
	timed bool
	// rewriting marks boxes that change addresses in payloads, which is proved first.
	rewriting bool
}

// natCases are the cases, in the order of the table.
//
//	+---------+  +---------+                   one box: the clients are behind l1 and l2
//	| client1 |  | client2 |                   of the same NAT, or on one link behind it
//	+---------+  +---------+
//	     | l1         | l2
//	    +---------------+                      open boxes: nat1 and nat2 have no input
//	    |      nat      |                      filter, and a router lies between them
//	    +---------------+
//	            | e4                                nat1 --- core --- nat2
//
// Boxes that rewrite are NATs of their own with a wire to the client, on which the
// client's address in a payload becomes the box's, and back.
var natCases = []natCase{
	{name: "one NAT that hairpins", draw: oneBox(true)},
	{name: "one NAT without hairpinning, two links", draw: oneBox(false), timed: true},
	{name: "one NAT without hairpinning, one link, local_discovery alone", draw: oneLink, timed: true,
		lines: []string{"hairpin = false", "local_discovery = true"}},
	{name: "two masquerading boxes without input filter", draw: openBoxes, trap: true},
	{name: "the same, opening_ttl = 2", draw: openBoxes, lines: []string{"opening_ttl = 2"}, oursOnly: true},
	{name: "two NATs that rewrite addresses in payloads (generic ALG)", draw: rewritingBoxes, rewriting: true},
}

// Addresses of the cases: boxes on the IPv4 Internet, and the network behind the
// router.
const (
	caseBox     = 200 // 203.0.113.200 and following
	secondLink  = 10  // between the two inner networks of a case
	coreAddr    = "203.0.113.250"
	farCoreAddr = "198.51.100.1"
	farNet      = "198.51.100.0/24"
)

func caseAddr(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, byte(caseBox + number)})
}

// caseClient draws a client on a link to node, by interface iface, which is its
// gateway or the bridge of its link.
func (n *teredoNet) caseClient(name string, port uint16, node *lab.Node, iface string, local, gateway netip.Addr) *teredoClient {
	c := &teredoClient{net: n, kind: lab.PortRestricted, name: name, port: port, local: local, node: n.lab.Node(name), nat: node}
	n.lab.Link(c.node, "eth0", node, iface)
	c.node.Addr("eth0", local.String()+"/24").Route("default", gateway.String())
	n.clients = append(n.clients, c)
	return c
}

func caseInner(number, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 168, byte(caseBox + number), byte(host)})
}

// caseNAT draws a box on the IPv4 Internet.
func (n *teredoNet) caseNAT(number int, c lab.NATConfig) *lab.Node {
	c.External = caseAddr(number)
	nat := n.lab.NAT(fmt.Sprintf("casenat%d", number), c)
	n.lab.Link(nat, "e4", n.bridge4, "")
	return nat.Addr("e4", c.External.String()+"/24").Route(farNet, coreAddr)
}

// oneBox is one box with the clients on two links.
func oneBox(hairpin bool) func(*teredoNet, int) (from, to *teredoClient) {
	return func(n *teredoNet, number int) (from, to *teredoClient) {
		nat := n.caseNAT(number, lab.NATConfig{Kind: lab.PortRestricted, InputDrop: true, Hairpin: hairpin, Inside: []string{"l1", "l2"}})
		from = n.caseClient(fmt.Sprintf("case%da", number), clientPort, nat, "l1", caseInner(number, 2), caseInner(number, 1))
		second := number + secondLink
		to = n.caseClient(fmt.Sprintf("case%db", number), clientPort+1, nat, "l2", caseInner(second, 2), caseInner(second, 1))
		nat.Addr("l1", caseInner(number, 1).String()+"/24").Addr("l2", caseInner(second, 1).String()+"/24")
		return from, to
	}
}

// oneLink is one box with the clients on one link.
func oneLink(n *teredoNet, number int) (from, to *teredoClient) {
	nat := n.caseNAT(number, lab.NATConfig{Kind: lab.PortRestricted, InputDrop: true})
	link := n.lab.Bridge(fmt.Sprintf("link%d", number))
	n.lab.Link(nat, "l1", link, "")
	nat.Addr("l1", caseInner(number, 1).String()+"/24")
	from = n.caseClient(fmt.Sprintf("case%da", number), clientPort, link, "", caseInner(number, 2), caseInner(number, 1))
	to = n.caseClient(fmt.Sprintf("case%db", number), clientPort+1, link, "", caseInner(number, 3), caseInner(number, 1))
	return from, to
}

// openBoxes are two boxes that take a packet from outside that no mapping lets in
// for themselves, which spoils the port for the answer.
func openBoxes(n *teredoNet, number int) (from, to *teredoClient) {
	near := n.caseNAT(number, lab.NATConfig{Kind: lab.PortRestricted})
	external := netip.AddrFrom4([4]byte{198, 51, 100, byte(caseBox + number)})
	far := n.lab.NAT(fmt.Sprintf("farnat%d", number), lab.NATConfig{Kind: lab.PortRestricted, External: external})
	n.lab.Link(far, "e4", n.lab.Lookup("far"), "")
	far.Addr("e4", external.String()+"/24").Route("default", farCoreAddr)
	second := number + secondLink
	from = n.caseClient(fmt.Sprintf("case%da", number), clientPort, near, "l1", caseInner(number, 2), caseInner(number, 1))
	to = n.caseClient(fmt.Sprintf("case%db", number), clientPort, far, "l1", caseInner(second, 2), caseInner(second, 1))
	near.Addr("l1", caseInner(number, 1).String()+"/24")
	far.Addr("l1", caseInner(second, 1).String()+"/24")
	return from, to
}

// rewritingBoxes are two NATs that put their own address in the place of the client's
// wherever it stands in a payload: Teredo's obfuscation is there for them (RFC 4380
// section 5.1.1).
func rewritingBoxes(n *teredoNet, number int) (from, to *teredoClient) {
	box := func(number int, name string) *teredoClient {
		nat := n.caseNAT(number, lab.NATConfig{Kind: lab.PortRestricted, InputDrop: true})
		c := &teredoClient{
			net: n, kind: lab.PortRestricted, name: name, port: clientPort, node: n.lab.Node(name), nat: nat,
			local: caseInner(number, 2), external: caseAddr(number),
		}
		// An error is the lab's to tell.
		_, _ = n.lab.Wire(c.node, "eth0", nat, "l1", lab.WireConfig{
			AtoB: lab.LaneConfig{Rewrite: lab.RewriteAddress(c.local, c.external)},
			BtoA: lab.LaneConfig{Rewrite: lab.RewriteAddress(c.external, c.local)},
		})
		nat.Addr("l1", caseInner(number, 1).String()+"/24")
		c.node.Addr("eth0", c.local.String()+"/24").Route("default", caseInner(number, 1).String())
		n.clients = append(n.clients, c)
		return c
	}
	return box(number, fmt.Sprintf("case%da", number)), box(number+secondLink, fmt.Sprintf("case%db", number))
}

// proveRewriting sends the client's address in the payload of a datagram: the server must
// find the box's there, and in the answer with the box's address the client its own.
func (c *teredoClient) proveRewriting() error {
	const word = "my address is "
	server, err := listenUDP(c.net.server, netip.AddrPortFrom(serverAddr, 0))
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := listenUDP(c.node, netip.AddrPortFrom(c.local, 0))
	if err != nil {
		return err
	}
	defer client.Close()
	deadline := time.Now().Add(answerWait)
	if err := errors.Join(server.SetDeadline(deadline), client.SetDeadline(deadline)); err != nil {
		return err
	}
	inside, outside := c.local.As4(), c.external.As4()
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	if _, err := client.WriteToUDPAddrPort(append([]byte(word), inside[:]...), at); err != nil {
		return err
	}
	got := make([]byte, 64)
	k, from, err := server.ReadFromUDPAddrPort(got)
	if err != nil {
		return fmt.Errorf("%s: nothing comes through the box: %w", c.name, err)
	}
	if want := append([]byte(word), outside[:]...); !bytes.Equal(got[:k], want) {
		return fmt.Errorf("%s: the box does not rewrite: %q arrived, not %q", c.name, got[:k], want)
	}
	if _, err := server.WriteToUDPAddrPort(got[:k], from); err != nil {
		return err
	}
	if k, _, err = client.ReadFromUDPAddrPort(got); err != nil {
		return fmt.Errorf("%s: nothing comes back through the box: %w", c.name, err)
	}
	if want := append([]byte(word), inside[:]...); !bytes.Equal(got[:k], want) {
		return fmt.Errorf("%s: the box does not rewrite what comes back: %q arrived, not %q", c.name, got[:k], want)
	}
	return nil
}

// caseResults are the pings of each case; the zero result was not measured.
type caseResults []lab.PingResult

// measureCases measures all cases with one maker's programs, at once.
func measureCases(ctx context.Context, e *lab.Env, who maker, plan matrixPlan) (results caseResults, err error) {
	its := *e
	its.Keep = false
	n, err := drawTeredo(ctx, &its, "cases-"+string(who), teredoPlan{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	core, far := n.lab.Node("core"), n.lab.Bridge("far")
	n.lab.Link(core, "up", n.bridge4, "")
	n.lab.Link(core, "down", far, "")
	core.Addr("up", coreAddr+"/24").Addr("down", farCoreAddr+"/24").Forward(true, false)
	n.server.Route(farNet, coreAddr)
	n.relay.Route(farNet, coreAddr)
	type pair struct{ from, to *teredoClient }
	pairs := map[int]pair{}
	for i, c := range natCases {
		if who == isthmus || !c.oursOnly {
			from, to := c.draw(n, i+1)
			from.lines, to.lines = c.lines, c.lines
			pairs[i] = pair{from, to}
		}
	}
	if err := n.lab.Err(); err != nil {
		return nil, err
	}
	for i, p := range pairs {
		if natCases[i].rewriting {
			if err := errors.Join(p.from.proveRewriting(), p.to.proveRewriting()); err != nil {
				return nil, err
			}
		}
	}
	if err := n.startCore(ctx, who, who); err != nil {
		return nil, err
	}
	if err := n.startClients(ctx, who); err != nil {
		return nil, err
	}
	return together(len(natCases), func(i int) (lab.PingResult, error) {
		p, ok := pairs[i]
		if !ok {
			return lab.PingResult{}, nil
		}
		ping := lab.Ping{To: p.to.addr, Count: plan.Pings, Interval: plan.Interval}
		if who == isthmus && !natCases[i].trap {
			ping.Timeout = plan.Patience
		}
		return p.from.node.Ping(ctx, ping)
	})
}

// firstAnswer is the time from the first ping until any is answered, negative for
// never.
func firstAnswer(r lab.PingResult, interval time.Duration) time.Duration {
	for i, rtt := range r.RTT {
		if rtt >= 0 {
			return time.Duration(i)*interval + rtt
		}
	}
	return -1
}

// addCases adds the cases to the report; theirs is nil if it was not measured.
func addCases(r *report.Report, ours, theirs caseResults, why string, plan matrixPlan) {
	t := report.Table{
		Title:   "Pairs outside of the matrix, cold: answered pings, and time of the first in ms",
		Columns: []string{"case", "Miredo", "Isthmus"},
	}
	worst := time.Duration(0)
	for i, c := range natCases {
		peer := why
		switch {
		case c.oursOnly:
			peer = "-"
		case theirs != nil:
			peer = withFirst(theirs[i])
		}
		t.Rows = append(t.Rows, []string{c.name, peer, withFirst(ours[i])})
		if !connected(ours[i]) {
			if c.trap {
				continue
			}
			r.Fault("%s: the clients do not connect (%d of %d pings)", c.name, ours[i].Received(), ours[i].Sent())
		} else if c.timed {
			worst = max(worst, firstAnswer(ours[i], plan.Interval))
		}
	}
	r.Tables = append(r.Tables, t)
	r.Figures = append(r.Figures, report.Figure{Name: figureOneNAT, Unit: "ms", Isthmus: report.Measured(milliseconds(worst)), Must: must(matrixName, figureOneNAT)})
}

// others are what is measured beside the matrix.
type others struct {
	fallback     *matrix
	ours, theirs caseResults
}

// measureOthers measures the matrix with the fall-back and the cases, side by
// side: their times are of seconds, and none needs the machine for itself.
func measureOthers(ctx context.Context, e *lab.Env, plan matrixPlan) (*others, error) {
	var o others
	step := func(format string, args ...any) { e.Step("  "+format, args...) }
	work := []func() error{
		func() (err error) { o.fallback, err = measureFallback(ctx, e, plan, step); return err },
		func() (err error) { o.ours, err = measureCases(ctx, e, isthmus, plan); return err },
	}
	if missing(e, miredo) == "" {
		work = append(work, func() (err error) { o.theirs, err = measureCases(ctx, e, miredo, plan); return err })
	}
	_, err := together(len(work), func(i int) (struct{}, error) { return struct{}{}, work[i]() })
	return &o, err
}

// addTo adds all to the report of the matrix.
func (o *others) addTo(r *report.Report, why string, plan matrixPlan) {
	o.fallback.addFallback(r)
	addCases(r, o.ours, o.theirs, why, plan)
}
