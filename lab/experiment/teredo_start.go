// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the start experiment.
const (
	startName = "teredo-start"
	startRuns = 9
	// startDelay is that of every IPv4 link, one way, when first packets are
	// measured.
	startDelay = 25 * time.Millisecond
	// firstRuns is how many clients send and receive a first packet.
	firstRuns = 3
	firstWait = answerWait
	warmPings = 5
	warmGap   = 20 * time.Millisecond
)

// startPlan says how often to measure.
type startPlan struct {
	Runs  int // starts with each kind of server
	First int // first packets each way
}

// starts is what one maker's programs reached.
type starts struct {
	dual, single []time.Duration // process start to address and route
	out, back    []float64       // first packet out: until there, and its answer, in round trips
	in           []float64       // first packet in, until there, in round trips
}

// teredoStart is the experiment.
func teredoStart(ctx context.Context, e *lab.Env) error {
	plan := startPlan{Runs: startRuns, First: firstRuns}
	if e.Runs > 0 {
		plan = startPlan{Runs: e.Runs, First: min(e.Runs, maxClients/2)}
	}
	// Its many topologies come and go: there is none to keep.
	fleeting := *e
	fleeting.Keep = false
	ours, peer, err := measureStarts(ctx, &fleeting, plan)
	if err != nil {
		return err
	}
	return finish(e, startReport(ours, peer, missing(e, miredo)))
}

// measureStarts measures all parts; peer is nil if it cannot run.
func measureStarts(ctx context.Context, e *lab.Env, plan startPlan) (ours, peer *starts, err error) {
	ours = &starts{}
	makers, into := []maker{isthmus}, []*starts{ours}
	if missing(e, miredo) == "" {
		peer = &starts{}
		makers, into = append(makers, miredo), append(into, peer)
	}
	e.Step("client cold start, %d times each, server with two addresses", plan.Runs)
	times, err := coldStarts(ctx, e, makers, plan.Runs, false)
	if err != nil {
		return nil, nil, err
	}
	for i := range into {
		into[i].dual = times[i]
	}
	e.Step("client cold start, %d times, server with one address", plan.Runs)
	if times, err = coldStarts(ctx, e, makers[:1], plan.Runs, true); err != nil {
		return nil, nil, err
	}
	ours.single = times[0]
	for i, who := range makers {
		e.Step("first packets of %s, %v one way on each IPv4 link", who.title(), startDelay)
		if err := firstPackets(ctx, e, who, plan.First, into[i]); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", who.title(), err)
		}
	}
	return ours, peer, nil
}

// coldStarts starts and stops clients, the makers taking turns, and gives the
// times of each maker. Each maker has a topology of its own, with its own
// server.
func coldStarts(ctx context.Context, e *lab.Env, makers []maker, runs int, single bool) (times [][]time.Duration, err error) {
	times = make([][]time.Duration, len(makers))
	nets := make([]*teredoNet, len(makers))
	for i, who := range makers {
		n, err := drawTeredo(ctx, e, "start-"+string(who), teredoPlan{NATs: []lab.NATKind{tourKind}, SingleAddress: single})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, n.Close()) }()
		if err := n.startServer(ctx, who); err != nil {
			return nil, err
		}
		nets[i] = n
	}
	for range runs {
		for i, who := range makers {
			took, err := coldStart(ctx, nets[i].clients[0], who)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", who.title(), err)
			}
			times[i] = append(times[i], took)
		}
	}
	return times, nil
}

// coldStart starts the client once.
func coldStart(ctx context.Context, c *teredoClient, who maker) (time.Duration, error) {
	if err := c.start(ctx, who); err != nil {
		return 0, err
	}
	took, err := c.await(ctx)
	return took, errors.Join(err, c.stop())
}

// firstPackets measures first packets over long links: half of the clients
// send one, the others get one. Each client is used once, so that each packet
// finds the relay without knowledge of it.
func firstPackets(ctx context.Context, e *lab.Env, who maker, count int, into *starts) (err error) {
	plan := teredoPlan{Delay: startDelay}
	for range 2 * count {
		plan.NATs = append(plan.NATs, tourKind)
	}
	n, err := drawTeredo(ctx, e, "first-"+string(who), plan)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.startAll(ctx, who); err != nil {
		return err
	}
	for i, c := range n.clients {
		if err := c.firstPacket(ctx, i < count, into); err != nil {
			return err
		}
	}
	return nil
}

// firstPacket measures the first packet from or to a client in units of the
// round trip between client and host, which is measured afterwards.
func (c *teredoClient) firstPacket(ctx context.Context, outbound bool, into *starts) error {
	from, to, addr := c.node, c.net.host, hostAddr
	if !outbound {
		from, to, addr = c.net.host, c.node, c.addr
	}
	first, err := probe(ctx, from, to, addr, firstWait)
	if err != nil {
		return err
	}
	warm, err := c.node.Ping(ctx, lab.Ping{To: hostAddr, Count: warmPings, Interval: warmGap, Timeout: answerWait})
	if err != nil {
		return err
	}
	if warm.Lost() > 0 {
		return fmt.Errorf("%s lost %d of %d pings to the host on a known way", c.name, warm.Lost(), warm.Sent())
	}
	// The shortest: a busy machine makes the others longer, and what is
	// measured in them would look shorter.
	trip := slices.Min(warm.RTT)
	there := float64(first.There) / float64(trip)
	if outbound {
		into.out = append(into.out, there)
		into.back = append(into.back, float64(first.Back)/float64(trip))
	} else {
		into.in = append(into.in, there)
	}
	return nil
}

// startReport sets the makers beside each other; peer is nil if it could not
// run, for the reason given.
func startReport(ours, peer *starts, why string) *report.Report {
	r := &report.Report{
		Experiment: startName, Title: "Teredo start, result", Peer: miredo.title(),
		Notes: []string{
			"Starts are over bare veth behind a " + string(tourKind) + " NAT, in turns; the address counts once its default route is set.",
			fmt.Sprintf("First packets: %v one way on each IPv4 link, in round trips between client and host on a known way, from the moment of sending.", startDelay),
		},
	}
	theirs := func(value func(*starts) report.Value) report.Value {
		if peer == nil {
			return report.None(why)
		}
		return value(peer)
	}
	add := func(f report.Figure, value func(*starts) report.Value) *report.Figure {
		f.Isthmus, f.Peer = value(ours), theirs(value)
		r.Figures = append(r.Figures, f)
		return &r.Figures[len(r.Figures)-1]
	}
	add(report.Figure{Name: figureStartDual, Unit: "ms", Decimals: 1, Must: must(startName, figureStartDual)},
		func(s *starts) report.Value { return report.Milliseconds(s.dual...) })
	add(report.Figure{Name: figureStartSingle, Unit: "ms", Decimals: 1, Must: must(startName, figureStartSingle)},
		func(s *starts) report.Value { return report.Milliseconds(s.single...) })
	if peer != nil {
		r.Figures[1].Peer = report.None("needs two addresses")
	}
	add(report.Figure{Name: "first packet out, cold, until it is there", Unit: "RTT", Decimals: 2},
		func(s *starts) report.Value { return report.Measured(s.out...) })
	add(report.Figure{Name: figureFirstOut, Unit: "RTT", Decimals: 2, Must: must(startName, figureFirstOut)},
		func(s *starts) report.Value { return report.Measured(s.back...) })
	add(report.Figure{Name: "first packet in, cold, until it is there", Unit: "RTT", Decimals: 2},
		func(s *starts) report.Value { return report.Measured(s.in...) })
	return r
}
