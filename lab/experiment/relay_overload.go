// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of relay-overload.
const (
	overloadName   = "relay-overload"
	overloadRounds = 10
	overloadSize   = 64
)

// overloadLoads are offered packets per second; 0 is all that the generator
// reaches.
var overloadLoads = []float64{200e3, 400e3, 600e3, 800e3, 1.2e6, 1.6e6, 2.4e6, 3.2e6, 0}

// overloadShort are those of the short form, which shows that all ways deliver.
var overloadShort = []float64{200e3, 1.6e6, 0}

// overloadWays take turns.
var overloadWays = []way{wayKernel, wayMiredo, wayUser, wayTC, wayXDP}

// relayOverload is the experiment relay-overload.
var relayOverload = lab.Experiment{
	Name:      overloadName,
	Summary:   "a relay under more load than it can carry, and beside a flood of strangers",
	NeedsRoot: true,
	Needs:     []string{"miredo"},
	Run:       runRelayOverload,
}

func runRelayOverload(ctx context.Context, e *lab.Env) error {
	rounds := cmp.Or(e.Runs, overloadRounds)
	rep := &report.Report{Experiment: overloadName, Title: "A relay under too much load, bare veth", Peer: "Miredo"}
	if err := overloads(ctx, e, rep, rounds); err != nil {
		return err
	}
	for _, w := range isthmusWays {
		if err := besideStrangers(ctx, e, rep, w, rounds); err != nil {
			return err
		}
	}
	return finish(e, rep)
}

// overloads measures what is delivered of rising loads.
func overloads(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) error {
	rig, done, err := startRig(ctx, e, overloadName, relaying{}, rigPlan{Ways: overloadWays, Load: 1, Overrun: true})
	if err != nil {
		return err
	}
	defer done()
	loads := overloadLoads
	if rounds < longRun {
		loads = overloadShort
	}
	for _, d := range []direction{toIPv4, toIPv6} {
		e.Step("%s: %d loads, %d rounds of %v on each path", d, len(loads), rounds, loadSlice)
		cases := make([]*rateCase, len(loads))
		for i := range cases {
			cases[i] = newRateCase(d, overloadSize)
		}
		for range rounds {
			for i, offered := range loads {
				for _, p := range rig.paths {
					if err := ctx.Err(); err != nil {
						return err
					}
					r, err := rig.slice(p, d, overloadSize, load.Pace{Rate: offered, Time: loadSlice})
					if err != nil {
						return err
					}
					cases[i].add(p.way, r)
				}
			}
		}
		describeOverload(rep, d, loads, cases)
	}
	rep.Notes = append(rep.Notes,
		"Delivered at the highest load is set against the peak: the highest median of all loads.",
		"Receiving runs on one CPU in all columns, so that each can be offered more than it carries; the relays in user space share that CPU and what the generator leaves of its own.",
	)
	return rig.checkPaths(ctx, rep)
}

// describeOverload adds the table and the figures of one direction.
func describeOverload(rep *report.Report, d direction, loads []float64, cases []*rateCase) {
	table := wayTable(fmt.Sprintf("%s, %d bytes: thousand packets per second delivered of those offered", d, overloadSize), overloadWays, "load")
	costs := cpuTable("load", overloadWays)
	costs.Title = fmt.Sprintf("%s, %d bytes: %s", d, overloadSize, costs.Title)
	middle := func(v []float64) float64 { return report.Measured(v...).Median() }
	for i, c := range cases {
		name := fmt.Sprintf("%.0f", loads[i]/1e3)
		if loads[i] == 0 {
			name = "all"
		}
		row := cells(overloadWays, func(w way) string {
			return fmt.Sprintf("%.0f of %.0f", middle(c.passed[w])/1e3, middle(c.offered[w])/1e3)
		}, name)
		table.Rows, costs.Rows = append(table.Rows, row), append(costs.Rows, c.cpuRow(name, overloadWays))
	}
	last := cases[len(cases)-1]
	times := []string{"highest load / peak"}
	for _, w := range overloadWays {
		peak := 0.0
		for _, c := range cases {
			peak = max(peak, middle(c.passed[w]))
		}
		if peak == 0 {
			if !slices.ContainsFunc(cases, func(c *rateCase) bool { return c.works[w] }) {
				rep.Fault("%s delivered nothing, %s", w.title, d)
			}
			times = append(times, "-")
			continue
		}
		times = append(times, fmt.Sprintf("%.1f", middle(last.offered[w])/peak))
		delivered := slices.Clone(last.passed[w])
		for i := range delivered {
			delivered[i] /= peak
		}
		f := report.Figure{Name: fmt.Sprintf("%s, %s: %s", d, w.title, figureOverload), Decimals: 2}
		if w.ours() {
			f.Isthmus, f.Must = report.Measured(delivered...), must(overloadName, figureOverload)
		} else {
			f.Peer = report.Measured(delivered...)
		}
		rep.Figures = append(rep.Figures, f)
	}
	table.Rows = append(table.Rows, times)
	rep.Tables = append(rep.Tables, table, costs)
}
