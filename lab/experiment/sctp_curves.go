// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// What the study has set in its figures 3 to 5.
const (
	studyHeartbeat = 10 * time.Second
	studyRetrans   = 5
	// studyEvery is between two messages of runs in virtual time.
	studyEvery = 20 * time.Millisecond
)

// sctpCurves are figures 3 to 5 and 7 of the study, by the engine in virtual time.
type sctpCurves struct {
	runs     int
	rto      []time.Duration // RTO.Min = RTO.Max of figures 3 and 4
	ceilings []time.Duration // of figures 5 and 7
	beats    []time.Duration // HB.Interval, for what the study claims of it

	lead time.Duration // by WLAN, of figure 7; twice as long by UMTS

	labs                      int                // side by side, of each case on real wires
	ours, theirs              []assoc.Parameters // on real wires: of our media server, and of usrsctp
	backedOff                 []time.Duration    // RTO.Min with the default RTO.Max, by both
	cuts, usrsctp             []wireSeen
	jittered, jitteredUsrsctp []wireSeen

	charts []report.Chart
	tables []report.Table
}

var (
	longSCTPCurves = sctpCurves{
		runs: studyRuns, rto: inTime(0.5, 1, 2, 3, 4, 6, 8), ceilings: inTime(0.1, 0.18, 0.3, 0.5, 1, 2, 4, 8), beats: inTime(1, 2, 5, 10, 30),
		lead: 20 * time.Second, labs: 3, ours: studyOnWires(0, 1, 2, 3, 4, 5), theirs: studyOnWires(2, 5),
		backedOff: append(inTime(0.5, 1, 2, 4), studyRTO),
	}
	shortSCTPCurves = sctpCurves{
		runs: 1, rto: inTime(0.5), ceilings: inTime(0.18, 0.3), beats: inTime(1, 10),
		lead: time.Second, labs: 1, ours: []assoc.Parameters{studyFixed(300 * time.Millisecond)}, theirs: []assoc.Parameters{studyFixed(300 * time.Millisecond)},
	}
)

// studyFixed are the study's parameters of figure 3.
func studyFixed(rto time.Duration) assoc.Parameters {
	return studyParameters(rto, studyRetrans, studyHeartbeat)
}

// rtoPair is RTO.Min and RTO.Max.
type rtoPair struct{ least, most time.Duration }

func (p rtoPair) parameters(retrans int) assoc.Parameters {
	par := studyParameters(p.least, retrans, studyHeartbeat)
	par.RTOMax = p.most
	return par
}

// retransPairs are those of figure 5: RTO.Min = RTO.Max, and the default pair, in which the RTO doubles.
var retransPairs = []rtoPair{{time.Second, time.Second}, {4 * time.Second, 4 * time.Second}, {time.Second, time.Minute}}

// beatRTO is the RTO with which it is tested whether the detection depends on HB.Interval.
const beatRTO = 4 * time.Second

// studyOnWires are parameters of figures 3 to 5, of these Path.Max.Retrans, and of other HB.Intervals.
func studyOnWires(retrans ...int) (all []assoc.Parameters) {
	for _, rto := range inTime(0.5, 2) {
		all = append(all, studyFixed(rto))
	}
	for _, pair := range retransPairs {
		for _, most := range retrans {
			all = append(all, pair.parameters(most))
		}
	}
	for _, beat := range inTime(1, 2, 5, 30) {
		all = append(all, studyParameters(beatRTO, studyRetrans, beat))
	}
	return all
}

func inTime(list ...float64) (all []time.Duration) {
	for _, s := range list {
		all = append(all, time.Duration(s*float64(time.Second)))
	}
	return all
}

// Names of what is beside the curves in virtual time.
const (
	mediaOnWires   = "Isthmus's media server on real wires"
	usrsctpOnWires = "usrsctp on real wires"
)

// measureWires has our media server and usrsctp go over cuts of real wires, and over one to UMTS with its jitter, all side
// by side. What the RTO doubles in takes minutes, and has wires of its own.
func (f *sctpCurves) measureWires(ctx context.Context, e *lab.Env) error {
	jittered := wireCase{wires: studyWires(true), lead: f.lead, cut: 2 * f.lead, every: studyEvery}
	for _, ceiling := range f.ceilings {
		jittered.pars = append(jittered.pars, studyFixed(ceiling))
	}
	var deep [2][]wireSeen
	working, all := errgroup.WithContext(ctx)
	working.Go(func() (err error) {
		f.cuts, f.usrsctp, err = onWires(all, e, f.over(f.ours, wireEvery), f.over(f.theirs, wireEvery))
		return err
	})
	working.Go(func() (err error) {
		ours, theirs := f.defaultsOnWires()
		deep[0], deep[1], err = onWires(all, e, f.over(ours, 2*wireEvery), f.over(theirs, 2*wireEvery))
		return err
	})
	working.Go(func() (err error) {
		f.jittered, f.jitteredUsrsctp, err = onWires(all, e, &jittered, &jittered)
		return err
	})
	err := working.Wait()
	f.cuts, f.usrsctp = append(f.cuts, deep[0]...), append(f.usrsctp, deep[1]...)
	return err
}

// over is a case of these parameters, with so much from message to message: a cut for as long as it takes by the law to find it with any of them.
func (f *sctpCurves) over(pars []assoc.Parameters, every time.Duration) *wireCase {
	c := &wireCase{pars: pars, wires: studyWires(false), lead: time.Second, tail: time.Second, every: every, labs: f.labs}
	for _, p := range pars {
		c.cut = max(c.cut, lawDown(p.RTOMin, p.RTOMax, p.PathMaxRetrans)*11/10+time.Second)
	}
	return c
}

// wireEvery is between two messages of transfers that share real wires.
const wireEvery = 50 * time.Millisecond

// draw draws all of them.
func (f *sctpCurves) draw() error {
	for _, draw := range []func() error{f.overRTO, f.overRetrans, f.overCeiling, f.overHeartbeat, f.defaults} {
		if err := draw(); err != nil {
			return err
		}
	}
	return nil
}

// sweep is the runs of a cut for as long as it takes by the law to find it, and some seconds.
func (f *sctpCurves) sweep(par assoc.Parameters) ([]studySeen, error) {
	return studySweep(studyCase{
		par: par, wires: studyWires(false), lead: 5 * time.Second, every: studyEvery,
		cut: lawDown(par.RTOMin, par.RTOMax, par.PathMaxRetrans) + par.RTOMax/10 + 5*time.Second,
	}, f.runs)
}

// overRTO draws figures 3 and 4.
func (f *sctpCurves) overRTO() error {
	const x = "RTO.Min, s"
	interrupt := &report.Plot{X: x, Y: "interruption of data, s"}
	recovery := &report.Plot{X: x, Y: "cut to first data by UMTS, s"}
	for _, add := range []func(interrupt, recovery *report.Plot) error{
		func(i, r *report.Plot) error { return f.addFamily("RTO.Max = RTO.Min", "4", studyFixed, i, r) },
		func(i, r *report.Plot) error { return f.addFamily("RTO.Max 1m, the default", "3", studyDefaults, i, r) },
		f.addBeyond,
	} {
		if err := add(interrupt, recovery); err != nil {
			return err
		}
	}
	f.charts = append(f.charts,
		report.Chart{Name: "fig3", Title: "Figure 3: interruption of data over the RTO: last data by WLAN to first new data by UMTS", Plot: interrupt},
		report.Chart{Name: "fig4", Title: "Figure 4: recovery from the failure of a link over the RTO", Plot: recovery})
	return nil
}

// addFamily adds the curves of one choice of RTO.Max, by RFC 9260 alone: the study's equation and the RFC's law, the engine
// in virtual time, and on real wires our media server and usrsctp.
func (f *sctpCurves) addFamily(name, equation string, of func(time.Duration) assoc.Parameters, interrupt, recovery *report.Plot) error {
	study := report.Curve{Name: name + ": the study's equation " + equation, Role: report.Published}
	law := report.Curve{Name: name + ": RFC 9260 section 8.2, one timeout more", Role: report.Reference}
	one := report.Curve{Name: name + ": RFC 9260 section 6.3.3, one timeout", Role: report.Reference}
	interrupted := report.Curve{Name: name + ": Isthmus in virtual time", Role: report.Ours}
	recovered := interrupted
	for _, rto := range f.rto {
		par, s := of(rto), rto.Seconds()
		all, err := f.sweep(par)
		if err != nil {
			return err
		}
		study.Add(s, report.Measured(lawDown(rto, par.RTOMax, par.PathMaxRetrans-1).Seconds()))
		law.Add(s, report.Measured(lawDown(rto, par.RTOMax, par.PathMaxRetrans).Seconds()))
		one.Add(s, report.Measured(s))
		interrupted.Add(s, inSeconds(all, (*studySeen).interrupted))
		recovered.Add(s, inSeconds(all, (*studySeen).recovered))
	}
	interrupt.Curves = append(interrupt.Curves, study, law, interrupted)
	recovery.Curves = append(recovery.Curves, study, one, recovered)
	for _, wires := range []struct {
		name string
		role report.Role
		seen []wireSeen
	}{{mediaOnWires, report.OursXDP, f.cuts}, {usrsctpOnWires, report.Peer, f.usrsctp}} {
		interrupted := report.Curve{Name: name + ": " + wires.name, Role: wires.role, Dots: true}
		recovered := interrupted
		at := func(p *assoc.Parameters) (float64, bool) { return p.RTOMin.Seconds(), *p == of(p.RTOMin) }
		addWires(&interrupted, wires.seen, at, (*studySeen).interrupted)
		addWires(&recovered, wires.seen, at, (*studySeen).recovered)
		interrupt.Curves, recovery.Curves = append(interrupt.Curves, interrupted), append(recovery.Curves, recovered)
	}
	return nil
}

// addBeyond adds what RFC 7829 makes of the interruption, and early probes of the recovery, in virtual time.
func (f *sctpCurves) addBeyond(interrupt, recovery *report.Plot) error {
	failing := report.Curve{Name: "RTO.Max = RTO.Min, with RFC 7829: Isthmus in virtual time", Role: report.OursTC}
	early := report.Curve{Name: "RTO.Max = RTO.Min, with early probes: Isthmus in virtual time", Role: report.OursTC}
	for _, rto := range f.rto {
		par := studyFixed(rto)
		par.PotentiallyFailedMaxRetrans = 0
		all, err := f.sweep(par)
		if err != nil {
			return err
		}
		failing.Add(rto.Seconds(), inSeconds(all, (*studySeen).interrupted))
		par.EarlyProbe = true
		if all, err = f.sweep(par); err != nil {
			return err
		}
		early.Add(rto.Seconds(), inSeconds(all, (*studySeen).recovered))
	}
	interrupt.Curves, recovery.Curves = append(interrupt.Curves, failing), append(recovery.Curves, early)
	return nil
}

func (s *studySeen) interrupted() time.Duration { return s.interrupt }
func (s *studySeen) recovered() time.Duration   { return s.firstCame }
func (s *studySeen) declared() time.Duration    { return s.down }

// overRetrans draws figure 5: RTO.Min = RTO.Max, and the default pair, in which the RTO doubles.
func (f *sctpCurves) overRetrans() error {
	p := &report.Plot{X: "Path.Max.Retrans", Y: "cut to the path inactive, s"}
	for _, pair := range retransPairs {
		name := fmt.Sprintf("RTO %v", pair.least)
		if pair.least != pair.most {
			name = fmt.Sprintf("RTO.Min %v, RTO.Max %v", pair.least, pair.most)
		}
		theirs := report.Curve{Name: name + ": the study's equations 3 and 4", Role: report.Published}
		law := report.Curve{Name: name + ": RFC 9260", Role: report.Reference}
		ours := report.Curve{Name: name + ": Isthmus, in virtual time", Role: report.Ours}
		for most := range studyRetrans + 1 {
			all, err := f.sweep(pair.parameters(most))
			if err != nil {
				return err
			}
			theirs.Add(float64(most), report.Measured((lawDown(pair.least, pair.most, most) - min(pair.least<<most, pair.most)).Seconds()))
			law.Add(float64(most), report.Measured(lawDown(pair.least, pair.most, most).Seconds()))
			ours.Add(float64(most), inSeconds(all, (*studySeen).declared))
		}
		real := report.Curve{Name: name + ": " + mediaOnWires, Role: report.OursXDP, Dots: true}
		peer := report.Curve{Name: name + ": " + usrsctpOnWires, Role: report.Peer, Dots: true}
		over := func(par *assoc.Parameters) (float64, bool) {
			return float64(par.PathMaxRetrans), *par == pair.parameters(par.PathMaxRetrans)
		}
		addWires(&real, f.cuts, over, (*studySeen).declared)
		addWires(&peer, f.usrsctp, over, (*studySeen).declared)
		p.Curves = append(p.Curves, theirs, law, ours, real, peer)
	}
	f.charts = append(f.charts, report.Chart{Name: "fig5", Title: "Figure 5: recovery over Path.Max.Retrans and RTO.Max", Plot: p})
	return nil
}

// overCeiling draws figure 7: what is repeated over a cut from WLAN to UMTS with the study's jitter.
func (f *sctpCurves) overCeiling() error {
	p := &report.Plot{X: "RTO.Max = RTO.Min, s", Y: "data sent again, %", Curves: []report.Curve{
		{Name: "Isthmus, in virtual time: 20 s by WLAN, 40 s by UMTS with its jitter", Role: report.Ours},
		{Name: mediaOnWires + ": the same", Role: report.OursXDP, Dots: true},
		{Name: usrsctpOnWires + ": the same", Role: report.Peer, Dots: true},
	}}
	for _, ceiling := range f.ceilings {
		all, err := studySweep(studyCase{
			par: studyParameters(ceiling, studyRetrans, studyHeartbeat), wires: studyWires(true),
			lead: 20 * time.Second, cut: 40 * time.Second, every: studyEvery,
		}, f.runs)
		if err != nil {
			return err
		}
		p.Curves[0].Add(ceiling.Seconds(), repeated(all))
	}
	for i, all := range [][]wireSeen{f.jittered, f.jitteredUsrsctp} {
		for k := range all {
			p.Curves[1+i].Add(all[k].par.RTOMax.Seconds(), repeated([]studySeen{all[k].studySeen}))
		}
	}
	f.charts = append(f.charts, report.Chart{Name: "fig7", Title: "Figure 7: retransmissions over RTO.Max", Plot: p})
	return nil
}

// repeated is the share of data of runs that had left before, in percent.
func repeated(all []studySeen) (v report.Value) {
	for i := range all {
		if all[i].chunks > 0 {
			v.Samples = append(v.Samples, 100*float64(all[i].again)/float64(all[i].chunks))
		}
	}
	return v
}

// overHeartbeat tests the claim that the detection of a failure does not depend on HB.Interval: each one against the
// longest, whose heartbeats do not come while data is missed.
func (f *sctpCurves) overHeartbeat() error {
	t := report.Table{
		Title:   fmt.Sprintf("Does the detection depend on HB.Interval? RTO %v, Path.Max.Retrans %d; the study: no, %v", beatRTO, studyRetrans, studyRetrans*beatRTO),
		Columns: []string{"HB.Interval, s", "cut to the path inactive, s", mediaOnWires + ", s", usrsctpOnWires + ", s", "RFC 9260, timeouts of data, s", "heartbeats counted beside, at the earliest, s", "does it, by virtual time?"},
	}
	rows := make([]report.Value, len(f.beats))
	for i, beat := range f.beats {
		all, err := f.sweep(studyParameters(beatRTO, studyRetrans, beat))
		if err != nil {
			return err
		}
		rows[i] = inSeconds(all, (*studySeen).declared)
	}
	for i, beat := range f.beats {
		cells := []string{fmt.Sprint(beat.Seconds()), spread(rows[i].Samples, 2)}
		for _, wires := range [][]wireSeen{f.cuts, f.usrsctp} {
			times := timesOnWires(wires, (*studySeen).declared, func(p *assoc.Parameters) bool { return *p == studyParameters(beatRTO, studyRetrans, beat) })
			cells = append(cells, spread(times.Samples, 2))
		}
		t.Rows = append(t.Rows, append(cells, fmt.Sprint(lawDown(beatRTO, beatRTO, studyRetrans).Seconds()), fmt.Sprint(lawWithBeats(beatRTO, beat, studyRetrans).Seconds()), depends(rows[len(rows)-1].Samples, rows[i].Samples)))
	}
	f.tables = append(f.tables, t)
	return nil
}
