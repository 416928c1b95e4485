// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the experiment.
const (
	announceName = "announce-failover"
	announceRuns = 3
	// moveWait bounds the wait for traffic to flow again.
	moveWait = time.Minute
)

// quickChecks find a failure in less than a second; the default takes some.
const quickChecks = "check_interval = \"200ms\"\ncheck_timeout = \"200ms\"\nfall = 2\nrise = 2\nhold_down = \"1s\"\n"

// calmChecks never find a failure where there is none, however busy the machine is,
// and soon announce again if the one that starts again does.
const calmChecks = "check_timeout = \"5s\"\nhold_down = \"1s\"\n"

// patientStop has a relay that is stopped serve on for longer than by default: on a
// busy machine a client takes longer to notice.
const patientStop = "drain_time = \"15s\"\n"

// checkIPv4 has a relay ping the Teredo server, which stands for the IPv4
// Internet.
var checkIPv4 = fmt.Sprintf("check = [%q]\n", serverAddr)

// failover is one way in which the first relay goes, and comes back.
type failover struct {
	name    string
	extra   string // lines of the section [announce]
	lossy   bool   // packets are lost until someone notices
	goes    func(n *announceNet, ctx context.Context, r *announceRelay) error
	returns func(n *announceNet, ctx context.Context, r *announceRelay) error
}

var failovers = []failover{
	{name: "is drained", extra: calmChecks, goes: (*announceNet).drain, returns: (*announceNet).undrain},
	{name: "is stopped", extra: calmChecks, goes: (*announceNet).stopRelay, returns: (*announceNet).startAnnounced},
	{name: "is killed", extra: calmChecks, lossy: true, goes: (*announceNet).killRelay, returns: (*announceNet).startAnnounced},
	{name: "fails its check", extra: checkIPv4 + "hold_down = \"1s\"\n", lossy: true, goes: (*announceNet).cut, returns: (*announceNet).restore},
	{name: "fails its check, five a second", extra: checkIPv4 + quickChecks, lossy: true, goes: (*announceNet).cut, returns: (*announceNet).restore},
}

func (n *announceNet) drain(ctx context.Context, r *announceRelay) error {
	_, err := n.control(r).Drain(ctx, "", true)
	return err
}

func (n *announceNet) undrain(ctx context.Context, r *announceRelay) error {
	_, err := n.control(r).Drain(ctx, "", false)
	return err
}

// stopRelay asks the relay to stop, and gives it the time to drain.
func (n *announceNet) stopRelay(ctx context.Context, r *announceRelay) error {
	if err := r.process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.process.Done():
		return n.daemons.stop(r.process)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *announceNet) killRelay(_ context.Context, r *announceRelay) error {
	return errors.Join(r.process.Signal(os.Kill), n.daemons.stop(r.process))
}

func (n *announceNet) cut(_ context.Context, r *announceRelay) error { r.wire.Cut(); return nil }
func (n *announceNet) restore(_ context.Context, r *announceRelay) error {
	r.wire.Restore()
	return nil
}

// passage is what became of the packets while traffic moved from one relay to the
// other.
type passage struct {
	there, back float64       // lost from host to client, and of the answers
	gap         time.Duration // at the client
	moved       time.Duration // until the router sent to the other relay
	slowest     time.Duration // packet on its way to the client, about the move
	waited      float64       // packets that waited in the other relay for its bubble
}

// outcome holds the passages of one way to go, away and back again.
type outcome struct{ away, home []passage }

// announceFailover is the experiment.
func announceFailover(ctx context.Context, e *lab.Env) error {
	runs := cmp.Or(e.Runs, announceRuns)
	r := &report.Report{
		Experiment: announceName, Title: "Two relays announce 2001::/32: traffic moves when the first one goes",
		Notes: []string{
			fmt.Sprintf("A flow of a packet each %v from the IPv6 host to the client behind a port-restricted NAT, which sends each back.", flowGap),
			"Both relays announce by BGP to one router (BIRD 2); it prefers the first by its MED. The second learns the client by its own bubbles, for which the first packets wait in its queue.",
			"Killed is SIGKILL; the kernel closes the session at once. A failed check is a relay cut off from the IPv4 Internet, whose session with the router lives; it notices by three pings in vain, one a second, or by two of five a second.",
			"A client sends to the relay that its last test proved. It tests again when a host's packets have come by another one for 2 s; until then its answers to a relay that has gone are lost. A relay that is stopped serves on for 2.5 s.",
			"Published: none. The papers give no figures for a relay that fails.",
		},
	}
	if runs < announceRuns {
		r.Notes = append(r.Notes, "In this short form all ways to go were measured at once, and a relay that is stopped served on for 15 s.")
	}
	outcomes, err := measureFailovers(ctx, e, runs)
	if err != nil {
		return err
	}
	for i, f := range failovers {
		f.report(r, outcomes[i])
	}
	return finish(e, r)
}

// measureFailovers measures all ways to go, one after the other; in short form, which
// shows that they work, all at once.
func measureFailovers(ctx context.Context, e *lab.Env, runs int) ([]outcome, error) {
	measure := func(f failover) (outcome, error) {
		e.Step("the first relay %s, %d times", f.name, runs)
		o, err := f.measure(ctx, e, runs)
		if err != nil {
			err = fmt.Errorf("the first relay %s: %w", f.name, err)
		}
		return o, err
	}
	if runs < announceRuns {
		return together(len(failovers), func(i int) (outcome, error) {
			f := failovers[i]
			f.extra += patientStop
			return measure(f)
		})
	}
	var all []outcome
	for _, f := range failovers {
		o, err := measure(f)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// measure draws the topology and lets the first relay go and come back.
func (f *failover) measure(ctx context.Context, e *lab.Env, runs int) (o outcome, err error) {
	name := fmt.Sprintf("announce-%d", time.Now().UnixNano()%1e9)
	n, err := drawAnnounce(ctx, e, name, f.extra)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	for i := range runs {
		if i > 0 {
			if err := n.forget(ctx); err != nil {
				return o, err
			}
		}
		if err := f.once(ctx, n, &o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// forget starts the second relay again, so that it knows no client.
func (n *announceNet) forget(ctx context.Context) error {
	second := n.relays[1]
	return errors.Join(n.killRelay(ctx, second), n.startAnnounced(ctx, second), n.awaitSessions(ctx))
}

// once measures the way away and the way back in one flow.
func (f *failover) once(ctx context.Context, n *announceNet, o *outcome) error {
	first, second := n.relays[0], n.relays[1]
	flow, err := startFlow(ctx, n.host, n.clients[0].node, n.clients[0].addr)
	if err != nil {
		return err
	}
	err = flow.await(ctx, time.Time{}, moveWait)
	var away, home step
	if err == nil {
		away, err = n.move(ctx, flow, second, func() error { return f.goes(n, ctx, first) })
	}
	if err == nil {
		home, err = n.move(ctx, flow, first, func() error { return f.returns(n, ctx, first) })
	}
	packets := flow.end()
	if err != nil {
		return err
	}
	o.away = append(o.away, away.passage(packets))
	o.home = append(o.home, home.passage(packets))
	return nil
}

// step is one move of the traffic.
type step struct {
	moment
	moved  time.Time // the router sent to the other relay
	steady time.Time // the flow had found its new way
	waited float64
}

// move does something and waits until the router sends to a relay, and the flow is
// steady by it.
func (n *announceNet) move(ctx context.Context, f *flow, to *announceRelay, do func() error) (s step, err error) {
	before := n.queued(ctx, to)
	s.began = time.Now()
	moved := make(chan error, 1)
	go func() {
		err := n.awaitRelay(ctx, to)
		s.moved = time.Now()
		moved <- err
	}()
	err = do()
	s.ended = time.Now()
	if err := errors.Join(err, <-moved); err != nil {
		return s, err
	}
	if err := f.await(ctx, s.moved, moveWait); err != nil {
		return s, fmt.Errorf("traffic by %s: %w; its log ends:\n%s", to.node.Name(), err, lastLines(to.process.Log()))
	}
	s.steady = time.Now()
	s.waited = n.queued(ctx, to) - before
	return s, nil
}

// queued is how many packets have waited in a relay for a client; 0 for a relay
// that does not run.
func (n *announceNet) queued(ctx context.Context, r *announceRelay) float64 {
	values, err := n.daemons.isthmus(r.node, "relay").values(ctx)
	if err != nil {
		return 0
	}
	return values["queued_total"]
}

// passage counts what became of the packets of a step.
func (s *step) passage(packets []flowPacket) passage {
	p := passage{gap: gapAcross(packets, moment{s.began, s.began}), moved: s.moved.Sub(s.began), waited: s.waited}
	for _, x := range packets {
		// An answer takes a moment: what was sent just before may be lost, too.
		if x.sent.Before(s.began.Add(-flowGap)) || x.sent.After(s.steady) {
			continue
		}
		switch {
		case x.there.IsZero():
			p.there++
		case x.back.IsZero():
			p.back++
		}
		if !x.there.IsZero() && x.sent.Before(s.moved.Add(2*flowGap)) {
			p.slowest = max(p.slowest, x.there.Sub(x.sent))
		}
	}
	return p
}

// report adds the rows of one way to go.
func (f *failover) report(r *report.Report, o outcome) {
	add := func(what, unit string, decimals int, of []passage, value func(passage) float64) {
		var samples []float64
		for _, p := range of {
			samples = append(samples, value(p))
		}
		r.Figures = append(r.Figures, report.Figure{Name: f.name + ": " + what, Unit: unit, Decimals: decimals, Isthmus: report.Measured(samples...)})
	}
	add("packets lost on the way to the client", "", 0, o.away, func(p passage) float64 { return p.there })
	add("answers lost", "", 0, o.away, func(p passage) float64 { return p.back })
	add("router sends to the second relay after", "ms", 0, o.away, func(p passage) float64 { return milliseconds(p.moved) })
	add("gap at the client", "ms", 0, o.away, func(p passage) float64 { return milliseconds(p.gap) })
	add("slowest packet to the client about the move", "ms", 1, o.away, func(p passage) float64 { return milliseconds(p.slowest) })
	add("packets that waited for the second relay's bubble", "", 0, o.away, func(p passage) float64 { return p.waited })
	add("packets and answers lost when it is back", "", 0, o.home, func(p passage) float64 { return p.there + p.back })
	if lost := slices.MaxFunc(o.away, func(a, b passage) int { return int(a.there + a.back - b.there - b.back) }); !f.lossy && lost.there+lost.back > 0 {
		r.Fault("%.0f packets were lost although the relay %s in order", lost.there+lost.back, f.name)
	}
}

// announceExperiment is the experiment as it is listed.
var announceExperiment = lab.Experiment{
	Name:      announceName,
	Summary:   "how many packets are lost when one of two relays that announce a prefix by BGP goes",
	NeedsRoot: true,
	Needs:     []string{"bird", "nft"},
	Run:       announceFailover,
}
