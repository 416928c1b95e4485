// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of gprs-attach.
const (
	attachName  = "gprs-attach"
	attachRuns  = 100 // times that each is attached
	attachPings = 10  // in a short form, of GTPv1 and IPv6 alone
)

// gprsAttach is the experiment gprs-attach.
var gprsAttach = lab.Experiment{
	Name:      attachName,
	Summary:   "terminals at each GGSN by each emulator of an SGSN, both versions of GTP and both families: pings, transfers, and the time to an address",
	NeedsRoot: true,
	Needs:     []string{"osmo-ggsn", "sgsnemu"},
	Run:       runGPRSAttach,
}

func runGPRSAttach(ctx context.Context, e *lab.Env) error {
	rep := &report.Report{
		Experiment: attachName, Title: "Terminals of a mobile core", Peer: "osmo-ggsn",
		Notes: []string{
			"The time to an address is that from the first request to the answer or, of IPv6, to the router's advertisement behind it, in one process, over cables without delay.",
			"Contexts are created and deleted by one SGSN, which has some hundred requests under way; the processor's time is that of the GGSN alone, all else on the same machine.",
			"By RADIUS they are created by a server of the lab's own, which says yes to all: FreeRADIUS would be the limit.",
		},
	}
	for _, part := range []func(context.Context, *lab.Env, *report.Report) error{attachTimes, attachRates, authenticatedRates, attachMatrix} {
		if err := part(ctx, e, rep); err != nil {
			return err
		}
	}
	return finish(e, rep)
}

// attachTimes measures how long a terminal waits for its address.
func attachTimes(ctx context.Context, e *lab.Env, rep *report.Report) error {
	times := map[maker]map[attachment][]float64{}
	for _, who := range []maker{osmocom, isthmus} {
		e.Step("%s GGSN: %d times to an address of each kind", who.title(), cmp.Or(e.Runs, attachRuns))
		got, err := attachTimesOf(ctx, e, who)
		if err != nil {
			return fmt.Errorf("%s GGSN: %w", who.title(), err)
		}
		times[who] = got
	}
	for _, a := range attachments {
		f := report.Figure{
			Name: a.String() + ": " + figureAttach4, Unit: "ms", Decimals: 2, Must: must(attachName, figureAttach4),
			Peer: report.Measured(times[osmocom][a]...), Isthmus: report.Measured(times[isthmus][a]...),
		}
		if a.v6 {
			f.Name, f.Must = a.String()+": "+figureAttach6, must(attachName, figureAttach6)
		}
		rep.Figures = append(rep.Figures, f)
	}
	return nil
}

// attachTimesOf are those at one GGSN, in milliseconds.
func attachTimesOf(ctx context.Context, e *lab.Env, who maker) (times map[attachment][]float64, err error) {
	n, err := drawCore(ctx, e, "core", core4)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.startGGSN(ctx, who); err != nil {
		return nil, err
	}
	s, err := startSGSN(n.sgsn, n.at.sgsn)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	times = map[attachment][]float64{}
	for run := range cmp.Or(e.Runs, attachRuns) + 1 {
		for _, a := range attachments {
			c, err := s.attach(ctx, n.at.ggsn, a)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", a, err)
			}
			if err := s.detach(ctx, c.Key); err != nil {
				return nil, fmt.Errorf("%v: %w", a, err)
			}
			if run > 0 { // the first one waits for the GGSN, and for neighbours
				times[a] = append(times[a], c.took.Seconds()*1e3)
			}
		}
	}
	return times, nil
}

// attachMatrix attaches a terminal in each cell.
func attachMatrix(ctx context.Context, e *lab.Env, rep *report.Report) error {
	pings, cells := gprsPings, coreCells()
	if e.Runs > 0 && e.Runs < longRun {
		pings = attachPings
		cells = slices.DeleteFunc(cells, func(c coreCell) bool { return c.attachment != attachment{version: 1, v6: true} })
	}
	table := report.Table{
		Title:   "terminals: pings answered, and 1 MiB to the terminal and from it",
		Columns: []string{"GGSN", "SGSN", "context", "pings", "to it, ms", "from it, ms"},
	}
	for _, c := range cells {
		e.Step("%v", c)
		r, err := c.run(ctx, e, pings)
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		for _, fault := range r.faults() {
			rep.Fault("%v: %s", c, fault)
		}
		table.Rows = append(table.Rows, []string{
			c.ggsn.title(), c.sgsn.title(), c.attachment.String(), fmt.Sprintf("%d of %d", r.pings.Received(), r.pings.Sent()),
			fmt.Sprint(r.toTime.Milliseconds()), fmt.Sprint(r.fromTime.Milliseconds()),
		})
	}
	rep.Tables = append(rep.Tables, table)
	return nil
}
