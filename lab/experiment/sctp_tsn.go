// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

const sctpTSNName = "sctp-tsn"

// sctpTSN is the experiment sctp-tsn.
var sctpTSN = lab.Experiment{
	Name:      sctpTSNName,
	Summary:   "figure 2 of the study: the TSNs of an SCTP association that goes from WLAN to UMTS and back, ours and usrsctp's on real wires, and in virtual time",
	NeedsRoot: true,
	Run:       runSCTPTSN,
}

func runSCTPTSN(ctx context.Context, e *lab.Env) error {
	c := studyCase{
		par: studyParameters(4*time.Second, studyRetrans, studyHeartbeat), wires: studyWires(false), seed: 1,
		lead: 10 * time.Second, cut: 40 * time.Second, tail: 30 * time.Second,
		every: 300 * time.Microsecond, // more than UMTS carries, less than WLAN does
	}
	if e.Runs > 0 && e.Runs < longRun {
		c.par = studyParameters(500*time.Millisecond, 2, time.Second)
		c.lead, c.cut, c.tail = time.Second, 4*time.Second, 3*time.Second
	}
	e.Step("a stream over a cut of %v on real wires, of ours and of usrsctp", c.cut)
	w := wireCase{pars: []assoc.Parameters{c.par}, wires: c.wires, lead: c.lead, cut: c.cut, tail: c.tail, every: c.every}
	w.media = w.known() + w.lead + w.tail // more than goes: it is to end all the same
	ours, theirs, err := onWires(ctx, sideBySide(e), &w, &w)
	if err != nil {
		return err
	}
	e.Step("the same in virtual time")
	var virtual studySeen
	err = e.Alone(func() error {
		virtual, err = c.run()
		return err
	})
	if err != nil {
		return err
	}
	return finish(e, sctpTSNReport(&c, []tsnRun{
		{"fig2", "Isthmus on real wires", &ours[0].studySeen},
		{"fig2-usrsctp", "usrsctp on real wires", &theirs[0].studySeen},
		{"fig2-virtual", "Isthmus in virtual time", &virtual},
	}))
}

// tsnRun is a run of the figure, and who has made it.
type tsnRun struct {
	chart, by string
	seen      *studySeen
}

// tsnDots is how many dots a path has in the picture.
const tsnDots = 400

// tsnPlot draws a run from some seconds before the cut on.
func tsnPlot(s *studySeen, lead time.Duration) *report.Plot {
	p := &report.Plot{X: "time, s", Y: "TSN, from the first one", Curves: []report.Curve{
		{Name: "WLAN", Role: report.Ours, Dots: true}, {Name: "UMTS", Role: report.Peer, Dots: true},
	}}
	begin := s.cutAt.Add(-lead)
	from := slices.IndexFunc(s.data, func(d studyData) bool { return !d.sent.Before(begin) })
	if from < 0 {
		return p
	}
	data, every, counted := s.data[from:], [2]int{}, [2]int{}
	for i := range data {
		every[data[i].link]++
	}
	for link, n := range every {
		every[link] = max(n/tsnDots, 1)
	}
	for i := range data {
		d := &data[i]
		if counted[d.link]++; counted[d.link]%every[d.link] == 0 {
			at, tsn := d.sent.Sub(begin).Seconds(), float64(int32(d.tsn-data[0].tsn))
			p.Curves[d.link].Points = append(p.Curves[d.link].Points, report.Point{X: at, Y: tsn, Low: tsn, High: tsn})
		}
	}
	return p
}

// sctpTSNReport draws each run, of which the first is ours on wires and the second that of usrsctp.
func sctpTSNReport(c *studyCase, runs []tsnRun) *report.Report {
	par := &c.par
	r := &report.Report{
		Experiment: sctpTSNName, Title: "TSNs over a cut", Peer: "usrsctp",
		Notes: []string{
			fmt.Sprintf("Our media server sends to our client, and usrsctp to usrsctp in UDP, by wires of the study's WLAN, and of its UMTS at mean delay, from the first of which all is lost for a while; and the engine does in virtual time over models of them: RTO %v, Path.Max.Retrans %d, HB.Interval %v, RFC 9260 alone, as in the study's figure 2. The server sends more than UMTS carries; each path has some %d of its chunks drawn.", par.RTOMin, par.PathMaxRetrans, par.HeartbeatInterval, tsnDots),
			fmt.Sprintf("The wire is cut at %v for %v. The study's picture has the same shape: a pause on the way to UMTS, a steeper line by WLAN, and hardly a pause on the way back, where nothing has to be found out.", c.lead, c.cut),
			"Each chunk is read from the packets of both ends, but for the path inactive, which the server says; our client has compared the digest of all that came. usrsctp does not say what its RTO is; its clock counts sleeps of 10 ms, which a loaded machine makes longer. Published are the study's equations: its figure has no numbers.",
		},
	}
	for _, run := range runs {
		r.AddChart(report.Chart{Name: run.chart, Title: "Figure 2: DATA chunks by WLAN, by UMTS, and by WLAN again: " + run.by, Plot: tsnPlot(run.seen, c.lead)})
	}
	for _, k := range tsnClocks(par) {
		f := report.Figure{Name: k.name, Unit: "s", Decimals: 2, Peer: k.value(runs[1].seen), Isthmus: k.value(runs[0].seen)}
		if k.study > 0 {
			f.Published = report.Measured(k.study.Seconds())
		}
		r.Figures = append(r.Figures, f)
	}
	r.Tables = append(r.Tables, tsnLaws(par, runs))
	return r
}

// tsnClock is a time of the run, and what says how long it is; 0: nothing does.
type tsnClock struct {
	name       string
	of         func(*studySeen) time.Duration
	rfc, study time.Duration
	by         string
}

// value is the time of a run in seconds, if it is known, and has come to that.
func (k *tsnClock) value(s *studySeen) report.Value {
	switch d := k.of(s); {
	case d > 0:
		return report.Measured(d.Seconds())
	case d < 0:
		return report.None("not in the run")
	}
	return report.None("not known")
}

func tsnClocks(par *assoc.Parameters) []tsnClock {
	rfc := lawDown(par.RTOMin, par.RTOMax, par.PathMaxRetrans)
	study := time.Duration(par.PathMaxRetrans) * par.RTOMin
	return []tsnClock{
		{name: "RTO at the cut", of: func(s *studySeen) time.Duration { return s.rto }, rfc: par.RTOMin, by: "RTO.Min = RTO.Max"},
		{name: "cut to first data by UMTS", of: func(s *studySeen) time.Duration { return s.first }, rfc: par.RTOMin, by: "section 6.3.3: one timeout, then what is missing goes another way"},
		{name: "cut to first new data by UMTS", of: func(s *studySeen) time.Duration { return s.fresh }, rfc: rfc, study: study, by: "sections 6.4 and 8.2: with the path inactive"},
		{name: "cut to the path inactive", of: (*studySeen).declared, rfc: rfc, study: study, by: "section 8.2: Path.Max.Retrans + 1 timeouts"},
		{name: "return of the WLAN to data by it", of: func(s *studySeen) time.Duration { return s.back }},
		{name: "longest time between two deliveries", of: func(s *studySeen) time.Duration { return s.gap }},
	}
}

// tsnLaws sets the clocks of runs beside the laws, and says which of them they follow.
func tsnLaws(par *assoc.Parameters, runs []tsnRun) report.Table {
	t := report.Table{
		Title:   "Which law applies: that of RFC 9260, or the study's equation 4, Path.Max.Retrans x RTO",
		Columns: []string{"", "RFC 9260, s", "by what", "the study, s"},
	}
	for _, run := range runs {
		t.Columns = append(t.Columns, run.by+", s", "follows")
	}
	for _, k := range tsnClocks(par) {
		if k.rfc == 0 {
			continue
		}
		study := "-"
		if k.study > 0 {
			study = fmt.Sprint(k.study.Seconds())
		}
		cells := []string{k.name, fmt.Sprint(k.rfc.Seconds()), k.by, study}
		for _, run := range runs {
			v := k.value(run.seen)
			cell := v.Absent
			if v.Known() {
				cell = fmt.Sprintf("%.2f", v.Median())
			}
			cells = append(cells, cell, k.follows(k.of(run.seen)))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// follows is the law that a time is no further from than a twentieth of it and a round trip by UMTS. 0 is not known.
func (k *tsnClock) follows(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	const trip = 208 * time.Millisecond
	for _, law := range []struct {
		name string
		at   time.Duration
	}{{"RFC 9260", k.rfc}, {"the study", k.study}} {
		if off := max(d-law.at, law.at-d); law.at > 0 && off <= law.at/20+trip {
			return law.name
		}
	}
	return "neither"
}
