// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/cost"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of nat64-cost.
const (
	natCostName     = "nat64-cost"
	natCostSessions = 1 << 16 // of the figures that have a must
)

// nat64Cost is the experiment nat64-cost.
var nat64Cost = lab.Experiment{
	Name:      natCostName,
	Summary:   "what the translator's XDP program itself costs a packet, with few and many sessions",
	NeedsRoot: true,
	Run:       runNAT64Cost,
}

func runNAT64Cost(ctx context.Context, e *lab.Env) error {
	o := cost.Defaults()
	o.Sizes, o.Repeat, o.Rounds = []int{64, 512}, 1<<17, cmp.Or(e.Runs, o.Rounds)
	o = shortCost(o)
	e.Step("the program alone, %d sessions at most: %d rounds of %d packets a row", o.Peers[len(o.Peers)-1], o.Rounds, o.Repeat)
	rows, err := cost.MeasureNAT64(ctx, o)
	if err != nil {
		return err
	}
	rep := &report.Report{
		Experiment: natCostName, Title: "Cost of the translator's program", Peer: "tayga",
		Notes: []string{
			"Measured by the kernel's test run of the program, without cable, driver and scheduler; what makes each packet anew is measured apart and taken off.",
			"Each packet is of another session, in random order, 256 sessions a client, with 256 servers; both look-ups, checksums and the cached next hop are included.",
			"A whole translator takes some ten times as long a packet over virtual cables: see nat64-scale.",
		},
	}
	costTable{
		title: costRound, entries: "sessions", named: func(r cost.Row) string {
			if r.Direction == "to IPv6" {
				return string(toIPv6)
			}
			return string(toIPv4)
		},
		must: func(r cost.Row) *report.Must {
			if r.Peers != natCostSessions {
				return nil
			}
			return must(natCostName, figureCostNAT64)
		},
	}.add(rep, rows)
	if err := natCostNew(ctx, e, rep, o.Rounds); err != nil {
		return err
	}
	return finish(e, rep)
}

// natCostNew adds what sessions cost that are made.
func natCostNew(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) error {
	o := cost.Options{Peers: []int{natCostSessions}, Rounds: rounds}
	if rounds < longRun {
		o.Peers[0] = 1 << 10
	}
	e.Step("the program making %d sessions: %d rounds", o.Peers[0], rounds)
	rows, err := cost.MeasureNAT64New(ctx, o)
	if err != nil {
		return err
	}
	table := report.Table{
		Title:   "thousand new sessions a second that one core's program makes: median (lowest to highest round)",
		Columns: []string{"transport", "sessions", "thousand a second", "nanoseconds each"},
		Notes:   []string{"TCP: a connection is opened and closed in seven segments. What the daemon does when sessions have expired is not in the figures."},
	}
	for _, r := range rows {
		table.Rows = append(table.Rows, []string{r.Transport, fmt.Sprint(r.Sessions), thousands(r.PerSecond()), plainNumbers(r.Each)})
		rep.Figures = append(rep.Figures, report.Figure{
			Name: fmt.Sprintf("%s, %d sessions: new ones by the program alone", r.Transport, r.Sessions), Unit: "per second",
			Isthmus: report.Measured(r.PerSecond()...),
		})
	}
	rep.Tables = append(rep.Tables, table)
	return nil
}
