// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/teredo"
)

// Choices of the tour.
const (
	tourName     = "teredo"
	tourRounds   = 5 // behind what is told
	tourPings    = 40
	tourInterval = 5 * time.Millisecond
	tourBytes    = 8 << 20 // of the transfer that is checked byte by byte
)

// tourKind is the NAT of the tour: that of most home routers, which let only
// answers in.
const tourKind = lab.PortRestricted

// tourKinds are the boxes of the tour's two clients.
var tourKinds = []lab.NATKind{tourKind, tourKind}

// tour is what one maker's programs reached, once for each round.
type tour struct {
	start    []time.Duration // process start to address and route, of all clients
	nat      natReport       // what the client says of its NAT
	firstOut []lab.PingResult
	firstIn  []lab.PingResult
	steady   []lab.PingResult
	transfer lab.TransferResult
	stream   streamed // one, when all else is over
}

// teredoTour is the experiment: the same work by Isthmus and by Miredo.
func teredoTour(ctx context.Context, e *lab.Env) (err error) {
	e.Step("Teredo: a host that has only IPv4, behind a NAT, reaches IPv6 and is reached.")
	ours, err := takeTour(ctx, e, isthmus)
	if ours != nil {
		// Last, since with Env.Keep it waits until the person has seen enough.
		defer func() { err = errors.Join(err, ours.net.Close()) }()
	}
	if err != nil {
		return err
	}
	guides, why := []*guide{ours}, missing(e, miredo)
	var theirs *tour
	if why != "" {
		e.Step("\nThe same with Miredo: left out, %s", why)
	} else {
		fleeting := *e
		fleeting.Keep = false
		peer, err := takeTour(ctx, &fleeting, miredo)
		if peer != nil {
			defer func() { err = errors.Join(err, peer.net.Close()) }()
		}
		if err != nil {
			return err
		}
		guides, theirs = append(guides, peer), peer.tour
	}
	if err := goAgain(ctx, e, guides); err != nil {
		return err
	}
	r := tourReport(ours.tour, theirs, why)
	if e.PcapDir != "" {
		r.Notes = append(r.Notes, "For the captures segmentation offload was off, which makes transfers slower.")
	}
	return finish(e, r)
}

// takeTour draws the topology and does everything in it once, and tells about it. The
// caller closes the topology of the guide, also after an error.
func takeTour(ctx context.Context, e *lab.Env, who maker) (*guide, error) {
	name := tourName
	if who == miredo {
		name += "-miredo"
	}
	n, err := drawTeredo(ctx, e, name, teredoPlan{NATs: tourKinds})
	if err != nil {
		return nil, err
	}
	g := &guide{env: e, net: n, who: who, tour: &tour{}, begin: time.Now()}
	if err := g.lead(ctx); err != nil {
		return g, fmt.Errorf("%s: %w", who.title(), err)
	}
	return g, nil
}

// goAgain does the same in turns, so that one sample says nothing, and then measures TCP.
func goAgain(ctx context.Context, e *lab.Env, guides []*guide) error {
	rounds := cmp.Or(e.Runs, tourRounds)
	e.Step("\nThe same again, %d times in turns, each time with clients that nobody knows.", rounds)
	for round := range rounds {
		for _, g := range guides {
			if err := g.again(ctx, round); err != nil {
				return fmt.Errorf("%s: %w", g.who.title(), err)
			}
		}
	}
	_, length := streamForm(e.Runs)
	e.Step("TCP from the IPv6 host to the client, %v with each.", length)
	for _, g := range guides {
		if err := g.stream(ctx, length); err != nil {
			return fmt.Errorf("%s: %w", g.who.title(), err)
		}
	}
	return nil
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
	for _, step := range []func(context.Context) error{g.core, g.qualify, g.outbound, g.askNAT, g.inbound, g.known} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	// The transfer would add megabytes of the same.
	for _, c := range captures {
		if err := c.Stop(); err != nil {
			return err
		}
	}
	return g.download(ctx)
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
	var took time.Duration
	err := g.traced(c, func() (err error) {
		took, err = g.startClient(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	a, err := teredo.ParseAddr(c.addr, teredo.Prefix)
	if err != nil {
		return fmt.Errorf("the client has the address %v: %w", c.addr, err)
	}
	g.say("%.1f ms after its start the client has the address %v:", milliseconds(took), c.addr)
	g.detail("server %v, flags %04x, and seen from outside as %v", a.Server, uint16(a.Flags), a.Mapped)
	return nil
}

// outbound sends the first packet from the client to the IPv6 host.
func (g *guide) outbound(ctx context.Context) error {
	c := g.net.clients[0]
	g.say("The client pings the IPv6 host %v for the first time.", hostAddr)
	err := g.traced(c, func() error { return g.firstOut(ctx) })
	if err == nil {
		g.saw("The host answered", last(g.tour.firstOut))
	}
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
	if _, err := g.startClient(ctx, c); err != nil {
		return err
	}
	g.say("A second client has the address %v; the IPv6 host pings it unasked.", c.addr)
	err := g.traced(c, func() error { return g.firstIn(ctx) })
	if err == nil {
		g.saw("The client answered", last(g.tour.firstIn))
	}
	return err
}

// known measures the round trip when the way is known.
func (g *guide) known(ctx context.Context) error {
	g.say("%d more pings from the first client.", tourPings)
	if err := g.steady(ctx); err != nil {
		return err
	}
	r := last(g.tour.steady)
	g.say("%d answered, median %.3f ms.", r.Received(), milliseconds(r.Median()))
	return nil
}

// download fetches data from the IPv6 host by TCP, which is checked. It is over too soon to tell a rate.
func (g *guide) download(ctx context.Context) (err error) {
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
	g.say("All came; %s.", checksum)
	return nil
}

// judge finds wrong behaviour in a tour.
func (t *tour) judge(who maker, r *report.Report) {
	for _, x := range []struct {
		pings []lab.PingResult
		what  string
	}{{t.firstOut, "first packets to the IPv6 host"}, {t.firstIn, "first packets from the IPv6 host"}, {t.steady, "pings on a known way"}} {
		sent, lost := 0, 0
		for _, p := range x.pings {
			sent, lost = sent+p.Sent(), lost+p.Lost()
		}
		if lost > 0 {
			r.Fault("%s: %d of %d %s were lost", who.title(), lost, sent, x.what)
		}
	}
	if behavior, err := tourKind.Behavior(); who == isthmus && (err != nil || t.nat.Symmetric == (behavior.Mapping == lab.EndpointIndependent)) {
		r.Fault("%s: the client takes its %s NAT for one with %s", who.title(), tourKind, t.nat.Kind)
	}
	if !t.transfer.Intact {
		r.Fault("%s: a transfer did not arrive as it was sent", who.title())
	}
}

// tourReport sets the two tours beside each other.
func tourReport(ours, peer *tour, why string) *report.Report {
	r := &report.Report{
		Experiment: tourName, Title: "Teredo tour, result", Peer: miredo.title(),
		Notes: []string{
			"Median (lowest to highest), in turns, on bare veth; each client is new to its NAT, the server and the relay. No figure of this kind has been published.",
			"TCP is one stream with each. CPU is what programs, both ends and receiving in the kernel need on all CPUs for each segment.",
		},
	}
	for _, f := range []struct {
		name, unit string
		decimals   int
		of         func(*tour) report.Value
	}{
		{"process start to address", "ms", 1, func(t *tour) report.Value { return report.Milliseconds(t.start...) }},
		{"first packet out, round trip", "ms", 2, func(t *tour) report.Value { return roundTrips(t.firstOut, lab.PingResult.First) }},
		{"first packet in, round trip", "ms", 2, func(t *tour) report.Value { return roundTrips(t.firstIn, lab.PingResult.First) }},
		{"round trip on a known way, median", "ms", 3, func(t *tour) report.Value { return roundTrips(t.steady, lab.PingResult.Median) }},
		{"TCP stream", "Mbit/s", 0, func(t *tour) report.Value { return report.Measured(t.stream.rate) }},
		{"TCP stream, CPU for a packet", "microseconds", 1, func(t *tour) report.Value { return t.stream.spent() }},
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

// roundTrips is one time of each result that has one.
func roundTrips(results []lab.PingResult, of func(lab.PingResult) time.Duration) report.Value {
	times := each(results, of)
	times = slices.DeleteFunc(times, func(d time.Duration) bool { return d < 0 })
	if len(times) == 0 {
		return report.None("lost")
	}
	return report.Milliseconds(times...)
}

func each[T, V any](list []T, of func(T) V) []V {
	values := make([]V, len(list))
	for i, x := range list {
		values[i] = of(x)
	}
	return values
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// upTeredo makes the Up of an experiment: the Teredo topology with clients
// behind these boxes and Isthmus in all roles, left running.
func upTeredo(name string, kinds []lab.NATKind) func(context.Context, *lab.Env) (*lab.Lab, error) {
	return func(ctx context.Context, e *lab.Env) (*lab.Lab, error) {
		n, err := drawTeredo(ctx, e, name, teredoPlan{NATs: kinds})
		if err != nil {
			return nil, err
		}
		if err := n.startAll(ctx, isthmus); err != nil {
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
