// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"time"

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

	charts []report.Chart
	tables []report.Table
}

var (
	longSCTPCurves = sctpCurves{
		runs: studyRuns, rto: inTime(0.5, 1, 2, 3, 4, 6, 8), ceilings: inTime(0.1, 0.18, 0.3, 0.5, 1, 2, 4, 8), beats: inTime(1, 2, 5, 10, 30),
	}
	shortSCTPCurves = sctpCurves{runs: 1, rto: inTime(0.5, 1), ceilings: inTime(0.18, 1), beats: inTime(1, 10)}
)

func inTime(list ...float64) (all []time.Duration) {
	for _, s := range list {
		all = append(all, time.Duration(s*float64(time.Second)))
	}
	return all
}

// measure draws all of them; wires are the clocks that were measured on real ones.
func (f *sctpCurves) measure(wires []sctpClock) error {
	for _, draw := range []func() error{func() error { return f.overRTO(wires) }, f.overRetrans, f.overCeiling, f.overHeartbeat, f.defaults} {
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
func (f *sctpCurves) overRTO(wires []sctpClock) error {
	const x = "RTO.Min = RTO.Max, s"
	interrupt := &report.Plot{X: x, Y: "interruption of data, s", Curves: []report.Curve{
		{Name: "the study's equation 4: Path.Max.Retrans x RTO", Role: report.Published},
		{Name: "RFC 9260 section 8.2: one timeout more", Role: report.Reference},
		{Name: "Isthmus, RFC 9260 alone, in virtual time: last data by WLAN to first new data by UMTS", Role: report.Ours},
		{Name: "the same with RFC 7829", Role: report.OursTC},
		{Name: "Isthmus on real wires, RFC 9260 alone: cut to first new data", Role: report.OursXDP, Dots: true},
	}}
	recovery := &report.Plot{X: x, Y: "cut to first data by UMTS, s", Curves: []report.Curve{
		{Name: "RFC 9260 section 6.3.3: one timeout", Role: report.Reference},
		{Name: "Isthmus, RFC 9260 alone, in virtual time", Role: report.Ours},
		{Name: "the same with early probes", Role: report.OursTC},
		{Name: "Isthmus on real wires", Role: report.OursXDP, Dots: true},
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
	for _, c := range wires {
		if c.most == studyRetrans && !c.failing && c.fresh > 0 {
			interrupt.Curves[4].Add(c.rto.Seconds(), report.Measured(c.fresh.Seconds()))
			recovery.Curves[3].Add(c.rto.Seconds(), report.Measured(c.first.Seconds()))
		}
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
	for _, pair := range [][2]time.Duration{{time.Second, time.Second}, {4 * time.Second, 4 * time.Second}, {time.Second, time.Minute}} {
		name := fmt.Sprintf("RTO %v", pair[0])
		if pair[0] != pair[1] {
			name = fmt.Sprintf("RTO.Min %v, RTO.Max %v", pair[0], pair[1])
		}
		theirs := report.Curve{Name: name + ": the study's equations 3 and 4", Role: report.Published}
		law := report.Curve{Name: name + ": RFC 9260", Role: report.Reference}
		ours := report.Curve{Name: name + ": Isthmus, in virtual time", Role: report.Ours}
		for most := range studyRetrans + 1 {
			par := studyParameters(pair[0], most, studyHeartbeat)
			par.RTOMax = pair[1]
			all, err := f.sweep(par)
			if err != nil {
				return err
			}
			theirs.Add(float64(most), report.Measured((lawDown(pair[0], pair[1], most) - min(pair[0]<<most, pair[1])).Seconds()))
			law.Add(float64(most), report.Measured(lawDown(pair[0], pair[1], most).Seconds()))
			ours.Add(float64(most), inSeconds(all, (*studySeen).declared))
		}
		p.Curves = append(p.Curves, theirs, law, ours)
	}
	f.charts = append(f.charts, report.Chart{Name: "fig5", Title: "Figure 5: recovery over Path.Max.Retrans and RTO.Max", Plot: p})
	return nil
}

// overCeiling draws figure 7: what is repeated over a cut from WLAN to UMTS with the study's jitter.
func (f *sctpCurves) overCeiling() error {
	p := &report.Plot{X: "RTO.Max = RTO.Min, s", Y: "data sent again, %", Curves: []report.Curve{
		{Name: "Isthmus, in virtual time: 20 s by WLAN, 40 s by UMTS with its jitter", Role: report.Ours},
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
	f.charts = append(f.charts, report.Chart{Name: "fig7", Title: "Figure 7: retransmissions over RTO.Max", Plot: p})
	return nil
}

// repeated is the share of data of runs that had left before, in percent.
func repeated(all []studySeen) (v report.Value) {
	for i := range all {
		v.Samples = append(v.Samples, 100*float64(all[i].again)/float64(all[i].chunks))
	}
	return v
}

// overHeartbeat tests the claim that the detection of a failure does not depend on HB.Interval.
func (f *sctpCurves) overHeartbeat() error {
	const rto = 4 * time.Second
	t := report.Table{
		Title:   fmt.Sprintf("Does the detection depend on HB.Interval? RTO %v, Path.Max.Retrans %d; the study: no, %v", rto, studyRetrans, studyRetrans*rto),
		Columns: []string{"HB.Interval, s", "cut to the path inactive, s", "RFC 9260, data alone, s"},
	}
	for _, beat := range f.beats {
		all, err := f.sweep(studyParameters(rto, studyRetrans, beat))
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(beat.Seconds()), spread(inSeconds(all, (*studySeen).declared).Samples, 2), fmt.Sprint(lawDown(rto, rto, studyRetrans).Seconds())})
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
