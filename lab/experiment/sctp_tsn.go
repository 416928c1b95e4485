// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

const sctpTSNName = "sctp-tsn"

// sctpTSN is the experiment sctp-tsn.
var sctpTSN = lab.Experiment{
	Name:    sctpTSNName,
	Summary: "figure 2 of the study: the TSNs of an SCTP association that goes from WLAN to UMTS and back, in virtual time",
	Run:     runSCTPTSN,
}

func runSCTPTSN(_ context.Context, e *lab.Env) error {
	c := studyCase{
		par: studyParameters(4*time.Second, studyRetrans, studyHeartbeat), wires: studyWires(false), seed: 1,
		lead: 10 * time.Second, cut: 40 * time.Second, tail: 30 * time.Second,
		every: 300 * time.Microsecond, // more than UMTS carries, less than WLAN does
	}
	if e.Runs > 0 && e.Runs < longRun {
		c.par = studyParameters(500*time.Millisecond, 2, time.Second)
		c.lead, c.cut, c.tail = time.Second, 4*time.Second, 3*time.Second
	}
	e.Step("a stream over a cut of %v", c.cut)
	seen, err := c.run()
	if err != nil {
		return err
	}
	return finish(e, sctpTSNReport(&c, &seen))
}

// tsnDots is how many dots a path has in the picture.
const tsnDots = 400

func sctpTSNReport(c *studyCase, s *studySeen) *report.Report {
	p := &report.Plot{X: "time, s", Y: "TSN, from the first one", Curves: []report.Curve{
		{Name: "WLAN", Role: report.Ours, Dots: true}, {Name: "UMTS", Role: report.Peer, Dots: true},
	}}
	every := [2]int{}
	for i := range s.data {
		every[s.data[i].link]++
	}
	for link, n := range every {
		every[link] = max(n/tsnDots, 1)
	}
	counted := [2]int{}
	for i := range s.data {
		d := &s.data[i]
		if counted[d.link]++; counted[d.link]%every[d.link] == 0 {
			at, tsn := d.sent.Sub(s.begin).Seconds(), float64(d.tsn-s.data[0].tsn)
			p.Curves[d.link].Points = append(p.Curves[d.link].Points, report.Point{X: at, Y: tsn, Low: tsn, High: tsn})
		}
	}
	par := &c.par
	return &report.Report{
		Experiment: sctpTSNName, Title: "TSNs over a cut",
		Charts: []report.Chart{{Name: "fig2", Title: "Figure 2: DATA chunks by WLAN, by UMTS, and by WLAN again", Plot: p}},
		Figures: []report.Figure{
			{Name: "RTO at the cut", Unit: "s", Decimals: 2, Isthmus: report.Measured(s.rto.Seconds())},
			{Name: "cut to first data by UMTS", Unit: "s", Decimals: 2, Isthmus: report.Measured(s.first.Seconds())},
			{Name: "cut to first new data by UMTS", Unit: "s", Decimals: 2, Isthmus: report.Measured(s.fresh.Seconds())},
			{Name: "cut to the path inactive; by the law " + fmt.Sprint(lawDown(par.RTOMin, par.RTOMax, par.PathMaxRetrans)), Unit: "s", Decimals: 2, Isthmus: report.Measured(s.down.Seconds())},
			{Name: "return of the WLAN to data by it", Unit: "s", Decimals: 2, Isthmus: report.Measured(s.back.Seconds())},
			{Name: "longest time between two deliveries", Unit: "s", Decimals: 2, Isthmus: report.Measured(s.gap.Seconds())},
		},
		Notes: []string{
			fmt.Sprintf("The engine in virtual time over models of the study's WLAN, and of its UMTS at mean delay: RTO %v, Path.Max.Retrans %d, HB.Interval %v, RFC 9260 alone, as in the study's figure 2. The server sends more than UMTS carries; each path has some %d of its chunks drawn.", par.RTOMin, par.PathMaxRetrans, par.HeartbeatInterval, tsnDots),
			fmt.Sprintf("The wire is cut from %.1f to %.1f s. The study's picture has the same shape: a pause on the way to UMTS, a steeper line by WLAN, and hardly a pause on the way back, where nothing has to be found out.", s.cutAt.Sub(s.begin).Seconds(), s.end.Sub(s.begin).Seconds()),
		},
	}
}
