// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

const sctpRestoreName = "sctp-restore"

// sctpRestore is the experiment sctp-restore.
var sctpRestore = lab.Experiment{
	Name:    sctpRestoreName,
	Summary: "figure 6 of the study: how long an SCTP association takes to see that its WLAN is back, over HB.Interval and RTO, in virtual time",
	Run:     runSCTPRestore,
}

func runSCTPRestore(_ context.Context, e *lab.Env) error {
	runs, beats, rtos := 2*studyRuns, inTime(1, 2, 5, 10, 20, 30), inTime(1, 2, 4)
	if e.Runs > 0 && e.Runs < longRun {
		runs, beats, rtos = 2, inTime(1, 5), inTime(1)
	}
	p := &report.Plot{X: "HB.Interval, s", Y: "return of the WLAN to data by it, s"}
	for _, rto := range rtos {
		theory := report.Curve{Name: fmt.Sprintf("equation 1, RTO %v: at any time within (0.5 to 1.5) RTO + HB.Interval", rto), Role: report.Published}
		ours := report.Curve{Name: fmt.Sprintf("Isthmus, RTO %v", rto), Role: report.Ours}
		told := report.Curve{Name: fmt.Sprintf("Isthmus, RTO %v, told by the link", rto), Role: report.OursTC}
		for _, beat := range beats {
			e.Step("RTO %v, HB.Interval %v", rto, beat)
			theory.Points = append(theory.Points, report.Point{X: beat.Seconds(), Y: (rto + beat).Seconds() / 2, High: (3*rto/2 + beat).Seconds()})
			for _, c := range []*report.Curve{&ours, &told} {
				v, err := returns(rto, beat, c == &told, runs)
				if err != nil {
					return err
				}
				c.Add(beat.Seconds(), v)
			}
		}
		p.Curves = append(p.Curves, theory, ours, told)
	}
	return finish(e, sctpRestoreReport(p))
}

// returns are how long data takes to come back to a wire that is whole again.
func returns(rto, beat time.Duration, told bool, runs int) (report.Value, error) {
	const most = 2 // enough for the path to be inactive
	all, err := studySweep(studyCase{
		par: studyParameters(rto, most, beat), wires: studyWires(false), lead: 3 * time.Second, every: studyEvery,
		cut: lawDown(rto, rto, most) + beat + 2*rto, phase: beat + rto, tail: 2*rto + 2*beat + time.Second, told: told,
	}, runs)
	return inSeconds(all, func(s *studySeen) time.Duration { return s.back }), err
}

func sctpRestoreReport(p *report.Plot) *report.Report {
	r := &report.Report{
		Experiment: sctpRestoreName, Title: "The way back",
		Charts: []report.Chart{{Name: "fig6", Title: "Figure 6: recognition of a link over HB.Interval", Plot: p}},
		Notes: []string{
			"The engine in virtual time over models of the study's WLAN, and of its UMTS at mean delay. The WLAN is cut until its path is inactive, and then comes back at another phase of the heartbeats in each run.",
			"An idle path is asked each (0.5 to 1.5) RTO + HB.Interval (the study's equation 1; RFC 9260 section 8.3), so a link that is back is seen after half of that on average, whatever was lost: data follows the answer. So the study's claim that this is independent of the RTO holds only where HB.Interval is much longer.",
			"Told by the link: the terminal hears from its own kernel that the link is down, and up; it asks by that path, and then the server to come back (RFC 5061).",
		},
	}
	t := report.Table{Title: "Return of the WLAN to data by it: average (lowest to highest), s", Columns: []string{"", "HB.Interval, s", "s"}}
	for i := range p.Curves {
		for _, at := range p.Curves[i].Points {
			t.Rows = append(t.Rows, []string{p.Curves[i].Name, fmt.Sprint(at.X), fmt.Sprintf("%.2f (%.2f to %.2f)", at.Y, at.Low, at.High)})
		}
	}
	r.Tables = append(r.Tables, t)
	return r
}
