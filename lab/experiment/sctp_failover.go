// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/traffic"
	"github.com/isthmus-net/isthmus/sctp"
)

const sctpFailoverName = "sctp-failover"

// sctpFailover is the experiment sctp-failover.
var sctpFailover = lab.Experiment{
	Name:      sctpFailoverName,
	Summary:   "what a silent cut does to SCTP associations of two ways: the clocks of the RFCs, the interruption, a hundred cuts",
	NeedsRoot: true,
	Run:       runSCTPFailover,
}

// sctpFailoverForm is how much is measured.
type sctpFailoverForm struct {
	rto    []time.Duration // RTO.Min = RTO.Max
	most   []int           // Path.Max.Retrans
	silent int             // cuts with default parameters
	beside int             // of them beside MPTCP
	row    int             // cuts in a row, of a host with one address
	curves sctpCurves
}

// sctpCuts is how many silent cuts with default parameters there are, and sctpCutsBeside how many beside MPTCP, each of which
// takes a new connection.
const sctpCuts, sctpCutsBeside = 20, 12

var (
	longSCTPFailover  = sctpFailoverForm{[]time.Duration{200, 500, 1000, 2000}, []int{0, 2, 5}, sctpCuts, sctpCutsBeside, 100, longSCTPCurves}
	shortSCTPFailover = sctpFailoverForm{[]time.Duration{200}, []int{0, 2}, 1, 1, 4, shortSCTPCurves}
)

// sctpClock is what one association has shown after a cut, and what the law says.
type sctpClock struct {
	rto           time.Duration
	most          int
	failing       bool          // RFC 7829 is on
	first, down   time.Duration // data on the other way; the path inactive
	fresh         time.Duration // new data on the other way
	srtt          time.Duration // of the way that is cut, right before
	firstL, downL time.Duration // by the law
}

// sctpFound is all that the experiment has measured.
type sctpFound struct {
	clocks        []sctpClock
	strict, early []sctpCut
	mptcp, beside []sctpCut // silent cuts of MPTCP, and of ours at the same instants
	noMPTCP       string    // why there are none
	alive         int       // cuts of a row that the association has survived
	row           int
	wrong         atomic.Int64 // messages that were not what was sent, in their order
	silence       time.Duration
}

// sctpCut is one silent cut.
type sctpCut struct {
	gap time.Duration // longest time between two deliveries
	rtt time.Duration // of the new path, right before
	rto time.Duration // of the old one
}

// runSCTPFailover is the experiment.
func runSCTPFailover(ctx context.Context, e *lab.Env) error {
	form := longSCTPFailover
	if e.Runs > 0 && e.Runs < longRun {
		form = shortSCTPFailover
	}
	form.silent = cmp.Or(min(e.Runs, form.silent), form.silent)
	form.beside = min(form.silent, form.beside)
	found := &sctpFound{row: form.row}
	curves := form.curves
	e.Step("side by side, each in a lab of its own: cuts in a row of a host with one address, and the study's cuts")
	err := eachInLab(ctx, e, form, map[string]failoverStep{
		"cuts in a row":    found.measureRow,
		"the study's cuts": func(ctx context.Context, e *lab.Env, _ sctpFailoverForm) error { return curves.measureWires(ctx, e) },
	})
	if err != nil {
		return err
	}
	err = e.Alone(func() error {
		e.Step("silent cuts with default parameters, and beside MPTCP")
		err := eachInLab(ctx, e, form, map[string]failoverStep{"silent cuts": found.measureCuts, "cuts beside MPTCP": found.measureMPTCP})
		if err != nil {
			return err
		}
		e.Step("the clocks of the RFCs")
		if err := found.measureClocks(ctx, e, form); err != nil {
			return fmt.Errorf("the clocks of the RFCs: %w", err)
		}
		e.Step("the study's figures 3 to 5 and 7, in virtual time")
		return curves.draw()
	})
	if err != nil {
		return err
	}
	return finish(e, sctpFailoverReport(found, &curves))
}

// failoverStep is a part of the experiment, in labs of its own.
type failoverStep func(context.Context, *lab.Env, sctpFailoverForm) error

// eachInLab takes steps side by side.
func eachInLab(ctx context.Context, e *lab.Env, form sctpFailoverForm, steps map[string]failoverStep) error {
	shared := sideBySide(e)
	working, ctx := errgroup.WithContext(ctx)
	for what, step := range steps {
		working.Go(func() error {
			if err := step(ctx, shared, form); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	return working.Wait()
}

// sideBySide is what labs side by side are given: their lines of progress stay whole.
func sideBySide(e *lab.Env) *lab.Env {
	b := *e
	b.Progress = &oneByOne{to: cmp.Or(e.Progress, e.Out, io.Discard)}
	return &b
}

// What flows carry.
const (
	cutPort  = 5000
	cutSize  = 100
	cutEvery = 10 * time.Millisecond
	cutBack  = 50 * time.Millisecond // from the terminal: the study's UMTS carries 384 kbit/s that way
)

// measureClocks cuts one way under many associations at once, each with its own parameters.
func (f *sctpFound) measureClocks(ctx context.Context, e *lab.Env, form sctpFailoverForm) (err error) {
	lane := lab.LaneConfig{Rate: 100e6, Delay: 5 * time.Millisecond}
	wire := lab.WireConfig{AtoB: lane, BtoA: lane}
	n, err := drawCuts(ctx, e, [2]lab.WireConfig{wire, wire}, false)
	if err != nil {
		return err
	}
	defer closing(&err, n.close)
	var flows []*cutFlow
	for _, rto := range form.rto {
		for _, most := range form.most {
			for _, failing := range []bool{false, true} {
				par := sctp.Defaults()
				rto := rto * time.Millisecond
				par.RTOInitial, par.RTOMin, par.RTOMax, par.SACKDelay = rto, rto, rto, 0
				par.Strict()
				par.PathMaxRetrans, par.AssociationMaxRetrans, par.PotentiallyFailedMaxRetrans = most, 100, most
				if failing {
					par.PotentiallyFailedMaxRetrans = 0
				}
				flow, err := n.flow(ctx, par)
				if err != nil {
					return err
				}
				flow.clock = &sctpClock{rto: rto, most: most, failing: failing, firstL: rto, downL: time.Duration(most+1) * rto}
				flows = append(flows, flow)
			}
		}
	}
	watch, err := watchSCTP(n)
	if err != nil {
		return err
	}
	// Each RTO one path is asked that the peer has only named: until the last one is known to work.
	if err := pause(ctx, 4*slices.Max(form.rto)*time.Millisecond+time.Second); err != nil {
		return err
	}
	for _, flow := range flows {
		flow.clock.srtt = flow.path(0).SRTT
	}
	cut := time.Now()
	n.wires[0].Cut()
	longest := time.Duration(slices.Max(form.most)+2) * slices.Max(form.rto) * time.Millisecond
	if err := pause(ctx, longest+time.Second); err != nil {
		return err
	}
	end := time.Now()
	for _, flow := range flows {
		c := flow.clock
		seen := studySeen{cutAt: cut, end: end, data: watch.of(flow.port)}
		seen.read()
		c.first, c.fresh = seen.first, seen.fresh
		if at, ok := flow.inactive(); ok {
			c.down = at.Sub(cut)
		}
		f.clocks = append(f.clocks, *c)
	}
	n.wires[0].Restore()
	return f.end(flows...)
}

// end stops flows, and counts what has not arrived as it was sent.
func (f *sctpFound) end(flows ...*cutFlow) error {
	for _, flow := range flows {
		wrong, err := flow.stop()
		if err != nil {
			return err
		}
		f.wrong.Add(int64(wrong))
	}
	return nil
}

// silentCut is how long a silent cut lasts: what comes by the law has come by then.
const silentCut = 2 * time.Second

// umtsWithoutJitter is the study's UMTS at its mean delay.
func umtsWithoutJitter() lab.WireConfig {
	w := lab.UMTS()
	w.AtoB.Jitter, w.BtoA.Jitter = 0, 0
	return w
}

// measureCuts cuts the WLAN under two associations with default parameters, of which one probes early, and brings it
// back.
func (f *sctpFound) measureCuts(ctx context.Context, e *lab.Env, form sctpFailoverForm) (err error) {
	n, err := drawCuts(ctx, e, [2]lab.WireConfig{lab.WLAN(), umtsWithoutJitter()}, false)
	if err != nil {
		return err
	}
	defer closing(&err, n.close)
	strict := sctp.Defaults()
	strict.Strict()
	var flows []*cutFlow
	for _, par := range []sctp.Parameters{strict, sctp.Defaults()} {
		flow, err := n.flow(ctx, par)
		if err != nil {
			return err
		}
		flows = append(flows, flow)
	}
	if err := pause(ctx, 3*time.Second); err != nil { // the other way is measured
		return err
	}
	for range form.silent {
		before := [2]sctpCut{}
		for i, flow := range flows {
			before[i] = sctpCut{rtt: flow.path(1).SRTT, rto: flow.path(0).RTO}
			flow.resetGap()
		}
		n.wires[0].Cut()
		if err := pause(ctx, silentCut); err != nil {
			return err
		}
		for i, flow := range flows {
			before[i].gap = flow.gap()
		}
		f.strict, f.early = append(f.strict, before[0]), append(f.early, before[1])
		e.Step("  nothing came for %v by RFC 7829, for %v with early probes", before[0].gap.Round(time.Millisecond), before[1].gap.Round(time.Millisecond))
		n.wires[0].Restore()
		for _, flow := range flows {
			if err := flow.awaitPrimary(ctx); err != nil {
				return err
			}
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return f.end(flows...)
}

// measureMPTCP cuts the WLAN under an association with default parameters and a connection of MPTCP, a new one each time,
// of a host with two ways to a host with one address.
func (f *sctpFound) measureMPTCP(ctx context.Context, e *lab.Env, form sctpFailoverForm) (err error) {
	n, err := drawCuts(ctx, e, [2]lab.WireConfig{lab.WLAN(), umtsWithoutJitter()}, true)
	if err != nil {
		return err
	}
	defer closing(&err, n.close)
	if f.noMPTCP, err = allowMPTCP(ctx, n.server, n.ue, wireTerminal[1], cutLinks[1]); err != nil || f.noMPTCP != "" {
		return err
	}
	ours, err := n.flow(ctx, sctp.Defaults())
	if err != nil {
		return err
	}
	for range form.beside {
		theirs, err := startMPTCP(ctx, n.server, n.ue, cutSingle)
		if errors.Is(err, traffic.ErrNoMPTCP) {
			f.noMPTCP = noMPTCP
			break
		}
		if err != nil {
			return err
		}
		if err := f.cutBeside(ctx, n, ours, theirs); err != nil {
			return errors.Join(err, theirs.stop())
		}
		if err := theirs.stop(); err != nil {
			return err
		}
		e.Step("  nothing came for %v by MPTCP, for %v with early probes", last(f.mptcp).gap.Round(time.Millisecond), last(f.beside).gap.Round(time.Millisecond))
	}
	return f.end(ours)
}

// cutBeside makes one silent cut under both.
func (f *sctpFound) cutBeside(ctx context.Context, n *cutNet, ours *cutFlow, theirs *mptcpFlow) error {
	if err := pause(ctx, 2*time.Second); err != nil { // the other ways are measured
		return err
	}
	seen := sctpCut{rtt: ours.path(1).SRTT, rto: ours.path(0).RTO}
	ours.resetGap()
	theirs.end.reset()
	n.wires[0].Cut()
	if err := pause(ctx, silentCut); err != nil {
		return err
	}
	f.mptcp = append(f.mptcp, sctpCut{gap: theirs.end.gap()})
	seen.gap = ours.gap()
	f.beside = append(f.beside, seen)
	n.wires[0].Restore()
	return errors.Join(ours.awaitBoth(ctx), ours.awaitPrimary(ctx))
}

// measureRow cuts the two ways of a host to a host with one address in turn.
func (f *sctpFound) measureRow(ctx context.Context, e *lab.Env, form sctpFailoverForm) (err error) {
	n, err := drawCuts(ctx, e, [2]lab.WireConfig{lab.WLAN(), umtsWithoutJitter()}, true)
	if err != nil {
		return err
	}
	defer closing(&err, n.close)
	flow, err := n.flow(ctx, sctp.Defaults())
	if err != nil {
		return err
	}
	if err := pause(ctx, 3*time.Second); err != nil {
		return err
	}
	for i := range form.row {
		flow.resetGap()
		n.wires[i%2].Cut()
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		n.wires[i%2].Restore()
		if err := flow.awaitBoth(ctx); err != nil {
			e.Step("  after cut %d: %v", i+1, err)
			break
		}
		f.alive++
		gap := flow.gap()
		if f.silence = max(f.silence, gap); gap > time.Second {
			e.Step("  cut %d, of %s: nothing came for %v", i+1, cutLinks[i%2], gap.Round(time.Millisecond))
		}
		e.Status(fmt.Sprintf("  %d cuts", f.alive))
	}
	return f.end(flow)
}
