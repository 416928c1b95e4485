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

const sctpRestoreName = "sctp-restore"

// sctpRestore is the experiment sctp-restore.
var sctpRestore = lab.Experiment{
	Name:      sctpRestoreName,
	Summary:   "figure 6 of the study: how long an SCTP association takes to see that its WLAN is back, over HB.Interval and RTO, in virtual time and on real wires",
	NeedsRoot: true,
	Run:       runSCTPRestore,
}

// restoreForm is how much is measured.
type restoreForm struct {
	runs        int
	beats, rtos []time.Duration
	labs        int // side by side, which differ in how long the cut lasts
	wireBeats   []time.Duration
	wireRTOs    []time.Duration
}

var (
	longRestore  = restoreForm{4 * studyRuns, inTime(1, 2, 5, 10, 20, 30), inTime(1, 2, 4), 4, inTime(1, 2, 5, 10, 20, 30), inTime(1, 4)}
	shortRestore = restoreForm{4, inTime(1, 5), inTime(1), 1, inTime(1), inTime(0.5)}
)

// restoreRetrans is Path.Max.Retrans: enough for the path to be inactive.
const restoreRetrans = 2

// returnsWithin is how long data takes to come back at most, of usrsctp 0.9.5: its heartbeat timer runs on while data goes;
// if data has gone by the path within HB.Interval when it expires, no heartbeat is sent, and the wait begins anew.
func returnsWithin(rto, beat time.Duration) time.Duration { return 2 * (beat + 3*rto/2) }

// onWires measures how long data takes to come back on real wires, to our media server and to usrsctp.
func (f *restoreForm) onWires(ctx context.Context, e *lab.Env) (ours, theirs []wireSeen, err error) {
	const every = 100 * time.Millisecond // between messages: many transfers share UMTS
	c := wireCase{wires: studyWires(false), lead: time.Second, every: every}
	for _, rto := range f.wireRTOs {
		for _, beat := range f.wireBeats {
			c.pars = append(c.pars, studyParameters(rto, restoreRetrans, beat))
			c.cut = max(c.cut, lawDown(rto, rto, restoreRetrans)+rto)
			c.tail = max(c.tail, returnsWithin(rto, beat)+time.Second)
		}
	}
	c.phase, c.labs = last(f.wireBeats), f.labs
	peer := c
	peer.labs = (f.labs + 1) / 2 // each pair of its processes takes 0.4 % of a processor, idle or not
	return onWires(ctx, e, &c, &peer)
}

func runSCTPRestore(ctx context.Context, e *lab.Env) error {
	form := longRestore
	if e.Runs > 0 && e.Runs < longRun {
		form = shortRestore
	}
	e.Step("on real wires, %d labs side by side", form.labs)
	wires, usrsctp, err := form.onWires(ctx, sideBySide(e))
	if err != nil {
		return err
	}
	p := &report.Plot{X: "HB.Interval, s", Y: "return of the WLAN to data by it, s"}
	var unseen [][]string
	seen := restoreSeen{}
	if err := e.Alone(func() error { return form.inVirtualTime(e, p, seen) }); err != nil {
		return err
	}
	for _, rto := range form.wireRTOs {
		for _, of := range []struct {
			name string
			role report.Role
			seen []wireSeen
		}{{mediaOnWires, report.OursXDP, wires}, {usrsctpOnWires, report.Peer, usrsctp}} {
			c := report.Curve{Name: fmt.Sprintf("%s, RTO %v", of.name, rto), Role: of.role, Dots: true}
			addWires(&c, of.seen, func(par *assoc.Parameters) (float64, bool) { return par.HeartbeatInterval.Seconds(), par.RTOMin == rto }, func(s *studySeen) time.Duration { return s.back })
			p.Curves = append(p.Curves, c)
			unseen = append(unseen, unseenReturns(&c, form.wireBeats)...)
		}
	}
	r := sctpRestoreReport(p, unseen)
	r.Tables = append(r.Tables, firstByWLAN(wires, usrsctp), seen.verdicts(&form))
	return finish(e, r)
}

// firstByWLAN tests the claim that the first packet by a link that is back is a HEARTBEAT, and that data goes by it once that
// is answered.
func firstByWLAN(ours, theirs []wireSeen) report.Table {
	t := report.Table{
		Title:   "What goes first by the WLAN that is back? The study: always a HEARTBEAT, and data once it is answered. Read from the packets at the server",
		Columns: []string{"", "data has returned", "of them behind a HEARTBEAT", "and behind an answer to one", "HEARTBEAT to its answer, ms", "answer to data, ms"},
	}
	for _, by := range []struct {
		name string
		seen []wireSeen
	}{{mediaOnWires, ours}, {usrsctpOnWires, theirs}} {
		var returned, asked, answered int
		var trip, data []float64
		for i := range by.seen {
			s := &by.seen[i]
			at := slices.IndexFunc(s.data, func(d studyData) bool { return d.link == 0 && !d.sent.Before(s.end) })
			if at < 0 {
				continue
			}
			returned++
			first := s.data[at].sent
			if s.asked.IsZero() || s.asked.After(first) {
				continue
			}
			if asked++; s.answered.IsZero() || s.answered.After(first) {
				continue
			}
			answered++
			trip = append(trip, inMilliseconds(s.answered.Sub(s.asked)))
			data = append(data, inMilliseconds(first.Sub(s.answered)))
		}
		t.Rows = append(t.Rows, []string{by.name, fmt.Sprint(returned), fmt.Sprint(asked), fmt.Sprint(answered), spread(trip, 1), spread(data, 1)})
	}
	return t
}

// inVirtualTime draws the curves of the engine, and keeps how long data took to come back.
func (f *restoreForm) inVirtualTime(e *lab.Env, p *report.Plot, seen restoreSeen) error {
	for _, rto := range f.rtos {
		theory := report.Curve{Name: fmt.Sprintf("equation 1, RTO %v: at any time within (0.5 to 1.5) RTO + HB.Interval", rto), Role: report.Published}
		ours := report.Curve{Name: fmt.Sprintf("Isthmus, RTO %v", rto), Role: report.Ours}
		told := report.Curve{Name: fmt.Sprintf("Isthmus, RTO %v, told by the link", rto), Role: report.OursTC}
		for _, beat := range f.beats {
			e.Step("RTO %v, HB.Interval %v", rto, beat)
			theory.Points = append(theory.Points, report.Point{X: beat.Seconds(), Y: (rto + beat).Seconds() / 2, High: (3*rto/2 + beat).Seconds()})
			for _, c := range []*report.Curve{&ours, &told} {
				runs := f.runs
				if c == &told { // which hardly differ
					runs /= 4
				}
				v, err := returns(rto, beat, c == &told, runs)
				if err != nil {
					return err
				}
				c.Add(beat.Seconds(), v)
				if c == &ours {
					seen[restoreAt{rto, beat}] = v.Samples
				}
			}
		}
		p.Curves = append(p.Curves, theory, ours, told)
	}
	return nil
}

// unseenReturns are rows of the table for points that a curve does not have.
func unseenReturns(c *report.Curve, beats []time.Duration) (rows [][]string) {
	for _, beat := range beats {
		if !slices.ContainsFunc(c.Points, func(p report.Point) bool { return p.X == beat.Seconds() }) {
			rows = append(rows, []string{c.Name, fmt.Sprint(beat.Seconds()), "not within the run"})
		}
	}
	return rows
}

// restoreAt is a choice of parameters, and restoreSeen how long data took to come back with each, in s.
type (
	restoreAt   struct{ rto, beat time.Duration }
	restoreSeen map[restoreAt][]float64
)

// verdicts test the claim that recognition does not depend on the RTO, each RTO against the shortest.
func (s restoreSeen) verdicts(form *restoreForm) report.Table {
	t := report.Table{
		Title:   "Does recognition depend on the RTO? The study: no; its equation 1: by half of it on average. In virtual time",
		Columns: []string{"HB.Interval, s", "RTO, s", "return to data: median (lowest to highest), s", fmt.Sprintf("does it, against RTO %v?", form.rtos[0]), "by equation 1"},
	}
	for _, beat := range form.beats {
		for _, rto := range form.rtos {
			all, verdict, law := s[restoreAt{rto, beat}], "-", "-"
			if rto != form.rtos[0] {
				verdict = depends(s[restoreAt{form.rtos[0], beat}], all)
				law = fmt.Sprintf("%+.2f s", (rto-form.rtos[0]).Seconds()/2)
			}
			t.Rows = append(t.Rows, []string{fmt.Sprint(beat.Seconds()), fmt.Sprint(rto.Seconds()), spread(all, 2), verdict, law})
		}
	}
	return t
}

// returns are how long data takes to come back to a wire that is whole again.
func returns(rto, beat time.Duration, told bool, runs int) (report.Value, error) {
	all, err := studySweep(studyCase{
		par: studyParameters(rto, restoreRetrans, beat), wires: studyWires(false), lead: 3 * time.Second, every: studyEvery,
		cut: lawDown(rto, rto, restoreRetrans) + beat + 2*rto, phase: beat + rto, tail: 2*rto + 2*beat + time.Second, told: told,
	}, runs)
	return inSeconds(all, func(s *studySeen) time.Duration { return s.back }), err
}

func sctpRestoreReport(p *report.Plot, unseen [][]string) *report.Report {
	r := &report.Report{
		Experiment: sctpRestoreName, Title: "The way back",
		Charts: []report.Chart{{Name: "fig6", Title: "Figure 6: recognition of a link over HB.Interval", Plot: p}},
		Notes: []string{
			"The engine in virtual time over models of the study's WLAN, and of its UMTS at mean delay. The WLAN is cut until its path is inactive, and then comes back at another phase of the heartbeats in each run.",
			"On real wires our media server sends to our client, a message each 100 ms by each of the transfers, which share the wires and the cut; of labs side by side each has another length of it. Data is read from the packets of both ends.",
			"An idle path is asked each (0.5 to 1.5) RTO + HB.Interval (the study's equation 1; RFC 9260 section 8.3), so a link that is back is seen after half of that on average, whatever was lost: data follows the answer. The study claims that this is independent of the RTO: the table of that compares averages, and says yes where they differ by more than two standard errors, and a fiftieth; within how much they are alike stands where it is not seen.",
			"usrsctp may take a whole period longer: its heartbeat timer runs on while data goes, and when it expires within HB.Interval of data by that path no heartbeat is sent, and it begins anew.",
			"Told by the link: the terminal hears from its own kernel that the link is down, and up; it asks by that path, and then the server to come back (RFC 5061).",
		},
	}
	t := report.Table{Title: "Return of the WLAN to data by it: average (lowest to highest), s", Columns: []string{"", "HB.Interval, s", "s"}}
	for i := range p.Curves {
		for _, at := range p.Curves[i].Points {
			t.Rows = append(t.Rows, []string{p.Curves[i].Name, fmt.Sprint(at.X), fmt.Sprintf("%.2f (%.2f to %.2f)", at.Y, at.Low, at.High)})
		}
	}
	t.Rows = append(t.Rows, unseen...)
	r.Tables = append(r.Tables, t)
	return r
}
