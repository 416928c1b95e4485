// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab/report"
)

// sipLoadReport tells what servers carry, and what moves of many calls cost.
func sipLoadReport(form sipLoadForm, by map[maker]*sipLoads, flocks []sipFlock) *report.Report {
	r := &report.Report{
		Experiment: sipLoadName, Title: "SIP under load", Peer: kamailio.title(),
		Tables: []report.Table{flockTable(flocks)},
		Notes: []string{
			"Sipp calls sipp through the server: INVITE, 180, 200, ACK and BYE, all by the route that the server records, over UDP and IPv6; servers keep bindings in memory alone. A rate holds if no call fails and the last one is no more than a second late.",
			fmt.Sprintf("Registrations are those of %d users, each of them challenged: two requests, of which the second has a digest by MD5. %d are under way at once. Server, sipp and all else share the processors, so a second of the clock says what the machine does, and one of the server's processor what the server needs.", form.users, sippOpen),
			"Moves are hard: the address in use is removed, another link stands by, and the peer, in the same process, is 50 ms away and back. Times are read from captures at the terminal's links. Calls with media have 50 packets a second each way; the others are on hold.",
		},
	}
	ours, theirs := by[isthmus], by[kamailio]
	r.Figures = []report.Figure{
		{
			Name: figureCallsFailed, Must: must(sipLoadName, figureCallsFailed),
			Isthmus: report.Measured(ours.failed...), Peer: report.Measured(theirs.failed...),
		},
		{Name: "calls a second that hold", Unit: "/s", Isthmus: report.Measured(ours.held...), Peer: report.Measured(theirs.held...)},
		{Name: "calls in a second of the server's processor", Unit: "/s", Isthmus: report.Measured(ours.callsCPU...), Peer: report.Measured(theirs.callsCPU...)},
		{Name: "registrations a second", Unit: "/s", Isthmus: report.Measured(ours.registers...), Peer: report.Measured(theirs.registers...)},
		{Name: "registrations in a second of the server's processor", Unit: "/s", Isthmus: report.Measured(ours.perCPU...), Peer: report.Measured(theirs.perCPU...)},
		{
			Name: figureRegisters, Decimals: 2, Must: must(sipLoadName, figureRegisters),
			Isthmus: report.Measured(timePairs(theirs.perCPU, ours.perCPU)...),
		},
	}
	for i := range flocks {
		f := &flocks[i]
		r.Figures = append(r.Figures, f.figures()...)
	}
	return r
}

// sipSmallFlock is how many calls have moved within [figureSmallFlock], and more within [figureFlock].
const sipSmallFlock = 100

// figures are those of moves of so many calls.
func (f *sipFlock) figures() []report.Figure {
	all := func(of func(sipFlockMove) float64) (values []float64) {
		for _, m := range f.moves {
			values = append(values, of(m))
		}
		return values
	}
	last := report.Figure{Name: fmt.Sprintf("%v %s", f, figureFlock), Unit: "ms", Decimals: 1, Isthmus: report.Measured(all(sipFlockMove.lastTime)...)}
	switch {
	case f.size > sipSmallFlock:
		last.Must = must(sipLoadName, figureFlock)
	default:
		last.Name = fmt.Sprintf("%v %s", f, figureSmallFlock)
		last.Must = must(sipLoadName, figureSmallFlock)
		last.Isthmus = report.Measured(beyond(all(sipFlockMove.lastTime), milliseconds(sipMust))...)
	}
	return []report.Figure{last, {
		Name: fmt.Sprintf("%v %s", f, figureFlockDropped), Must: must(sipLoadName, figureFlockDropped),
		Isthmus: report.Measured(all(func(m sipFlockMove) float64 { return float64(m.dropped) })...),
	}}
}

func (m sipFlockMove) lastTime() float64 { return milliseconds(m.last) }

// flockTable has a row for each number of calls.
func flockTable(flocks []sipFlock) report.Table {
	t := report.Table{
		Title:   "calls that move at once: median (lowest to highest), ms",
		Columns: []string{"calls", "moves", "change to first re-INVITE", "change to last 200", "re-INVITEs repeated"},
	}
	for i := range flocks {
		f := &flocks[i]
		times := func(of func(sipFlockMove) time.Duration) (values []float64) {
			for _, m := range f.moves {
				values = append(values, milliseconds(of(m)))
			}
			return values
		}
		var repeated []float64
		for _, m := range f.moves {
			repeated = append(repeated, float64(m.repeated))
		}
		t.Rows = append(t.Rows, []string{
			f.String(), fmt.Sprint(len(f.moves)),
			spread(times(func(m sipFlockMove) time.Duration { return m.first }), 1),
			spread(times(func(m sipFlockMove) time.Duration { return m.last }), 1), plainNumbers(repeated),
		})
	}
	return t
}
