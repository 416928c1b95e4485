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
	// studyAnchor is what the study has measured with default parameters, on average.
	studyAnchor = 227.0 // s
	// studyRTO is the RTO at the cut by which the law says that.
	studyRTO = 7100 * time.Millisecond
)

// sctpCurves are figures 3 to 5 and 7 of the study, by the engine in virtual time.
type sctpCurves struct {
	runs     int
	rto      []time.Duration // RTO.Min = RTO.Max of figures 3 and 4
	ceilings []time.Duration // of figures 5 and 7
	beats    []time.Duration // HB.Interval, for what the study claims of it

	lead time.Duration // by WLAN, of figure 7; twice as long by UMTS

	ours, theirs              []assoc.Parameters // on real wires: of our media server, and of usrsctp
	cuts, usrsctp             []wireSeen
	jittered, jitteredUsrsctp []wireSeen

	charts []report.Chart
	tables []report.Table
}

var (
	longSCTPCurves = sctpCurves{
		runs: studyRuns, rto: inTime(0.5, 1, 2, 3, 4, 6, 8), ceilings: inTime(0.1, 0.18, 0.3, 0.5, 1, 2, 4, 8), beats: inTime(1, 2, 5, 10, 30),
		lead: 20 * time.Second, ours: studyOnWires(0, 1, 2, 3, 4, 5), theirs: studyOnWires(2, 5),
	}
	shortSCTPCurves = sctpCurves{
		runs: 1, rto: inTime(0.5, 1), ceilings: inTime(0.18, 0.3), beats: inTime(1, 10),
		lead: time.Second, ours: []assoc.Parameters{studyFixed(300 * time.Millisecond)}, theirs: []assoc.Parameters{studyFixed(300 * time.Millisecond)},
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

// measureWires has our media server and usrsctp go over a cut of real wires, and over one to UMTS with its jitter, all side
// by side.
func (f *sctpCurves) measureWires(ctx context.Context, e *lab.Env) error {
	over := wireCase{wires: studyWires(false), lead: time.Second, tail: time.Second, every: wireEvery}
	ours, theirs := over, over
	ours.pars, theirs.pars = f.ours, f.theirs
	for _, c := range []*wireCase{&ours, &theirs} {
		for _, p := range c.pars {
			c.cut = max(c.cut, lawDown(p.RTOMin, p.RTOMax, p.PathMaxRetrans)*11/10+time.Second)
		}
	}
	jittered := wireCase{wires: studyWires(true), lead: f.lead, cut: 2 * f.lead, every: studyEvery}
	for _, ceiling := range f.ceilings {
		jittered.pars = append(jittered.pars, studyFixed(ceiling))
	}
	working, all := errgroup.WithContext(ctx)
	working.Go(func() (err error) {
		f.cuts, f.usrsctp, err = onWires(all, e, &ours, &theirs)
		return err
	})
	working.Go(func() (err error) {
		f.jittered, f.jitteredUsrsctp, err = onWires(all, e, &jittered, &jittered)
		return err
	})
	return working.Wait()
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
	const x = "RTO.Min = RTO.Max, s"
	interrupt := &report.Plot{X: x, Y: "interruption of data, s", Curves: []report.Curve{
		{Name: "the study's equation 4: Path.Max.Retrans x RTO", Role: report.Published},
		{Name: "RFC 9260 section 8.2: one timeout more", Role: report.Reference},
		{Name: "Isthmus, RFC 9260 alone, in virtual time: last data by WLAN to first new data by UMTS", Role: report.Ours},
		{Name: "the same with RFC 7829", Role: report.OursTC},
		{Name: mediaOnWires + ", RFC 9260 alone", Role: report.OursXDP, Dots: true},
		{Name: usrsctpOnWires, Role: report.Peer, Dots: true},
	}}
	recovery := &report.Plot{X: x, Y: "cut to first data by UMTS, s", Curves: []report.Curve{
		{Name: "RFC 9260 section 6.3.3: one timeout", Role: report.Reference},
		{Name: "Isthmus, RFC 9260 alone, in virtual time", Role: report.Ours},
		{Name: "the same with early probes", Role: report.OursTC},
		{Name: mediaOnWires, Role: report.OursXDP, Dots: true},
		{Name: usrsctpOnWires, Role: report.Peer, Dots: true},
	}}
	for _, rto := range f.rto {
		par := studyParameters(rto, studyRetrans, studyHeartbeat)
		failing, early := par, par
		failing.PotentiallyFailedMaxRetrans = 0
		early.PotentiallyFailedMaxRetrans, early.EarlyProbe = 0, true
		var all [3][]studySeen
		for i, p := range []assoc.Parameters{par, failing, early} {
			var err error
			if all[i], err = f.sweep(p); err != nil {
				return err
			}
		}
		s := rto.Seconds()
		interrupt.Curves[0].Add(s, report.Measured(studyRetrans*s))
		interrupt.Curves[1].Add(s, report.Measured((studyRetrans+1)*s))
		interrupt.Curves[2].Add(s, inSeconds(all[0], (*studySeen).interrupted))
		interrupt.Curves[3].Add(s, inSeconds(all[1], (*studySeen).interrupted))
		recovery.Curves[0].Add(s, report.Measured(s))
		recovery.Curves[1].Add(s, inSeconds(all[0], (*studySeen).recovered))
		recovery.Curves[2].Add(s, inSeconds(all[2], (*studySeen).recovered))
	}
	fixed := func(p *assoc.Parameters) (float64, bool) {
		return p.RTOMin.Seconds(), *p == studyFixed(p.RTOMin)
	}
	for i, all := range [][]wireSeen{f.cuts, f.usrsctp} {
		addWires(&interrupt.Curves[4+i], all, fixed, (*studySeen).interrupted)
		addWires(&recovery.Curves[3+i], all, fixed, (*studySeen).recovered)
	}
	f.charts = append(f.charts,
		report.Chart{Name: "fig3", Title: "Figure 3: interruption of data over the RTO", Plot: interrupt},
		report.Chart{Name: "fig4", Title: "Figure 4: recovery from the failure of a link over the RTO", Plot: recovery})
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

// defaults compares what default parameters make of a silent cut, also where the RTO has grown before it to what the
// study's 227 s demand.
func (f *sctpCurves) defaults() error {
	t := report.Table{
		Title:   fmt.Sprintf("Default parameters; the study: %.0f s on average, of an RTO that it does not tell", studyAnchor),
		Columns: []string{"", "RTO at the cut, s", "first data, s", "new data, s", "path inactive, s", "RFC 9260, s", "longest without a delivery, s"},
	}
	for _, row := range []struct {
		name   string
		rto    time.Duration
		change func(*assoc.Parameters)
	}{
		{"RFC 9260 alone", time.Second, func(*assoc.Parameters) {}},
		{"RFC 9260 alone, the RTO of " + fmt.Sprint(studyRTO), studyRTO, func(*assoc.Parameters) {}},
		{"with RFC 7829", time.Second, func(p *assoc.Parameters) { p.PotentiallyFailedMaxRetrans = 0 }},
		{"with early probes", time.Second, func(p *assoc.Parameters) { p.PotentiallyFailedMaxRetrans, p.EarlyProbe = 0, true }},
	} {
		par := studyParameters(row.rto, studyRetrans, assoc.Defaults().HeartbeatInterval)
		par.RTOMax = assoc.Defaults().RTOMax
		row.change(&par)
		all, err := f.sweep(par)
		if err != nil {
			return err
		}
		cells := []string{row.name}
		for _, of := range []func(*studySeen) time.Duration{
			func(s *studySeen) time.Duration { return s.rto }, func(s *studySeen) time.Duration { return s.first },
			func(s *studySeen) time.Duration { return s.fresh }, (*studySeen).declared,
		} {
			cells = append(cells, spread(inSeconds(all, of).Samples, 2))
		}
		cells = append(cells, fmt.Sprint(lawDown(row.rto, par.RTOMax, studyRetrans).Seconds()), spread(inSeconds(all, func(s *studySeen) time.Duration { return s.gap }).Samples, 2))
		t.Rows = append(t.Rows, cells)
	}
	f.tables = append(f.tables, t)
	return nil
}
