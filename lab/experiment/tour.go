// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/teredo"
)

// Choices of the tour.
const (
	tourName     = "teredo"
	tourPings    = 200
	tourInterval = 5 * time.Millisecond
	tourBytes    = 64 << 20
)

// tourKind is the NAT of the tour: that of most home routers, which let only
// answers in.
const tourKind = lab.PortRestricted

// tourKinds are the boxes of the tour's two clients.
var tourKinds = []lab.NATKind{tourKind, tourKind}

// tour is what one maker's programs reached.
type tour struct {
	start    time.Duration // process start to address and route
	nat      natReport     // what the client says of its NAT
	firstOut lab.PingResult
	firstIn  lab.PingResult
	steady   lab.PingResult
	transfer lab.TransferResult
}

// teredoTour is the experiment: the same work by Isthmus and by Miredo.
func teredoTour(ctx context.Context, e *lab.Env) (err error) {
	e.Step("Teredo: a host that has only IPv4, behind a NAT, reaches IPv6 and is reached.")
	ours, n, err := takeTour(ctx, e, isthmus)
	if n != nil {
		// Last, since with Env.Keep it waits until the person has seen enough.
		defer func() { err = errors.Join(err, n.Close()) }()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", isthmus.title(), err)
	}
	peer, why, err := peerTour(ctx, e)
	if err != nil {
		return fmt.Errorf("%s: %w", miredo.title(), err)
	}
	r := tourReport(ours, peer, why)
	if e.PcapDir != "" {
		r.Notes = append(r.Notes, "For the captures segmentation offload was off, which makes the transfer slower.")
	}
	return finish(e, r)
}

// peerTour takes the tour with Miredo, or says why it cannot.
func peerTour(ctx context.Context, e *lab.Env) (*tour, string, error) {
	if why := missing(e, miredo); why != "" {
		e.Step("\nThe same with Miredo: left out, %s", why)
		return nil, why, nil
	}
	fleeting := *e
	fleeting.Keep = false
	t, n, err := takeTour(ctx, &fleeting, miredo)
	if n != nil {
		err = errors.Join(err, n.Close())
	}
	return t, "", err
}

// takeTour draws the topology and does everything in it once. The caller
// closes the topology, also after an error.
func takeTour(ctx context.Context, e *lab.Env, who maker) (*tour, *teredoNet, error) {
	name := tourName
	if who == miredo {
		name += "-miredo"
	}
	n, err := drawTeredo(ctx, e, name, teredoPlan{NATs: tourKinds})
	if err != nil {
		return nil, nil, err
	}
	g := &guide{env: e, net: n, who: who, tour: &tour{}, begin: time.Now()}
	return g.tour, n, g.lead(ctx)
}

// guide takes the tour and tells about it.
type guide struct {
	env   *lab.Env
	net   *teredoNet
	who   maker
	tour  *tour
	begin time.Time
}

// lead does the steps in order.
func (g *guide) lead(ctx context.Context) error {
	captures, err := g.net.capture()
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{g.core, g.qualify, g.outbound, g.askNAT, g.inbound, g.steady} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	// The transfer would add a hundred megabytes of the same.
	for _, c := range captures {
		if err := c.Stop(); err != nil {
			return err
		}
	}
	return g.transfer(ctx)
}

// core starts server and relay.
func (g *guide) core(ctx context.Context) error {
	g.env.Step("\n%s in all roles. The client, 192.168.1.2, is behind a %s NAT, %v.", g.who.title(), tourKind, g.net.clients[0].external)
	if err := g.net.startServer(ctx, g.who); err != nil {
		return err
	}
	g.say("The server listens on %v and %v, port %d.", serverAddr, serverAddr2, teredo.Port)
	if err := g.net.startRelay(ctx, g.who); err != nil {
		return err
	}
	g.say("The relay listens on %v and takes %v from the IPv6 network.", relayBind, teredo.Prefix)
	return nil
}

// qualify starts the client and takes its address apart.
func (g *guide) qualify(ctx context.Context) error {
	c := g.net.clients[0]
	g.say("The client starts and asks the server for an address.")
	err := g.traced(c, func() (err error) {
		if err = c.start(ctx, g.who); err == nil {
			g.tour.start, err = c.await(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	a, err := teredo.ParseAddr(c.addr, teredo.Prefix)
	if err != nil {
		return fmt.Errorf("the client has the address %v: %w", c.addr, err)
	}
	g.say("%.1f ms after its start the client has the address %v:", milliseconds(g.tour.start), c.addr)
	g.detail("server %v, flags %04x, and seen from outside as %v", a.Server, uint16(a.Flags), a.Mapped)
	return nil
}

// outbound sends the first packet from the client to the IPv6 host.
func (g *guide) outbound(ctx context.Context) error {
	c := g.net.clients[0]
	g.say("The client pings the IPv6 host %v for the first time.", hostAddr)
	err := g.traced(c, func() (err error) {
		g.tour.firstOut, err = c.node.Ping(ctx, lab.Ping{To: hostAddr, Timeout: answerWait})
		return err
	})
	g.saw("The host answered", g.tour.firstOut)
	return err
}

// askNAT has the client say behind what NAT it is.
func (g *guide) askNAT(ctx context.Context) (err error) {
	if g.who != isthmus {
		return nil // Miredo does not tell
	}
	g.tour.nat, err = g.net.clients[0].awaitNAT(ctx)
	g.say("The client found out about its NAT: %s.", g.tour.nat.Kind)
	return err
}

// inbound sends the first packet the other way. It goes to a second client,
// since the relay knows the first one by now.
func (g *guide) inbound(ctx context.Context) error {
	c := g.net.clients[1]
	if err := c.start(ctx, g.who); err != nil {
		return err
	}
	if _, err := c.await(ctx); err != nil {
		return err
	}
	g.say("A second client has the address %v; the IPv6 host pings it unasked.", c.addr)
	err := g.traced(c, func() (err error) {
		g.tour.firstIn, err = g.net.host.Ping(ctx, lab.Ping{To: c.addr, Timeout: answerWait})
		return err
	})
	g.saw("The client answered", g.tour.firstIn)
	return err
}

// steady measures the round trip when the way is known.
func (g *guide) steady(ctx context.Context) (err error) {
	g.say("%d more pings from the first client.", tourPings)
	g.tour.steady, err = g.net.clients[0].node.Ping(ctx, lab.Ping{To: hostAddr, Count: tourPings, Interval: tourInterval, Timeout: answerWait})
	g.say("%d answered, median %.3f ms.", g.tour.steady.Received(), milliseconds(g.tour.steady.Median()))
	return err
}

// transfer fetches data from the IPv6 host by TCP.
func (g *guide) transfer(ctx context.Context) (err error) {
	g.say("The client fetches %d MiB from the IPv6 host by TCP.", tourBytes>>20)
	g.tour.transfer, err = lab.Transfer(ctx, lab.TransferConfig{
		Server: g.net.host, Addr: hostAddr, Client: g.net.clients[0].node, Bytes: tourBytes,
	})
	if err != nil {
		return err
	}
	checksum := "the checksum is right"
	if !g.tour.transfer.Intact {
		checksum = "the checksum is WRONG"
	}
	g.say("It took %.2f s, %.0f Mbit/s; %s.", g.tour.transfer.Duration.Seconds(), megabits(g.tour.transfer), checksum)
	return nil
}

// judge finds wrong behaviour in a tour.
func (t *tour) judge(who maker, r *report.Report) {
	if t.firstOut.Lost() > 0 {
		r.Fault("%s: the first packet to the IPv6 host was lost", who.title())
	}
	if t.firstIn.Lost() > 0 {
		r.Fault("%s: the first packet from the IPv6 host was lost", who.title())
	}
	if t.steady.Lost() > 0 {
		r.Fault("%s: %d of %d pings were lost on a known way", who.title(), t.steady.Lost(), t.steady.Sent())
	}
	if behavior, err := tourKind.Behavior(); who == isthmus && (err != nil || t.nat.Symmetric == (behavior.Mapping == lab.EndpointIndependent)) {
		r.Fault("%s: the client takes its %s NAT for one with %s", who.title(), tourKind, t.nat.Kind)
	}
	if !t.transfer.Intact {
		r.Fault("%s: the transfer did not arrive as it was sent", who.title())
	}
}

// tourReport sets the two tours beside each other.
func tourReport(ours, peer *tour, why string) *report.Report {
	r := &report.Report{
		Experiment: tourName, Title: "Teredo tour, result", Peer: miredo.title(),
		Notes: []string{"One run each on bare veth. No figure of this kind has been published. Experiment teredo-start has medians."},
	}
	for _, f := range []struct {
		name, unit string
		decimals   int
		of         func(*tour) report.Value
	}{
		{"process start to address", "ms", 1, func(t *tour) report.Value { return report.Milliseconds(t.start) }},
		{"first packet out, round trip", "ms", 2, func(t *tour) report.Value { return roundTrip(t.firstOut) }},
		{"first packet in, round trip", "ms", 2, func(t *tour) report.Value { return roundTrip(t.firstIn) }},
		{"round trip on a known way, median", "ms", 3, func(t *tour) report.Value { return report.Milliseconds(t.steady.Median()) }},
		{"TCP transfer", "Mbit/s", 0, func(t *tour) report.Value { return report.Measured(megabits(t.transfer)) }},
	} {
		theirs := report.None(why)
		if peer != nil {
			theirs = f.of(peer)
		}
		r.Figures = append(r.Figures, report.Figure{Name: f.name, Unit: f.unit, Decimals: f.decimals, Peer: theirs, Isthmus: f.of(ours)})
	}
	ours.judge(isthmus, r)
	if peer != nil {
		peer.judge(miredo, r)
	}
	return r
}

// roundTrip is the time of the one ping of r.
func roundTrip(r lab.PingResult) report.Value {
	if r.First() < 0 {
		return report.None("lost")
	}
	return report.Milliseconds(r.First())
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func megabits(r lab.TransferResult) float64 { return r.Goodput() / 1e6 }

// upTeredo makes the Up of an experiment: the Teredo topology with clients
// behind these boxes and Isthmus in all roles, left running.
func upTeredo(name string, kinds []lab.NATKind) func(context.Context, *lab.Env) (*lab.Lab, error) {
	return func(ctx context.Context, e *lab.Env) (*lab.Lab, error) {
		n, err := drawTeredo(ctx, e, name, teredoPlan{NATs: kinds})
		if err != nil {
			return nil, err
		}
		if err := n.startAll(ctx); err != nil {
			return nil, errors.Join(err, n.Close())
		}
		for _, c := range n.clients {
			e.Step("%s (%s NAT) has the address %v.", c.name, c.kind, c.addr)
		}
		shell := fmt.Sprintf("%s lab shell --run %s client1 --", lab.Command(), n.lab.Name())
		e.Step("The IPv6 host is %v. Try:\n  %s ping -c 3 %v\n  %s isthmus status", hostAddr, shell, hostAddr, shell)
		return n.lab, nil
	}
}

// startAll starts captures, if wanted, and Isthmus in all roles.
func (n *teredoNet) startAll(ctx context.Context) error {
	if _, err := n.capture(); err != nil {
		return err
	}
	if err := n.startCore(ctx, isthmus, isthmus); err != nil {
		return err
	}
	return n.startClients(ctx, isthmus)
}
