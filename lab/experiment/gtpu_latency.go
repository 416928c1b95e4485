// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of gtpu-latency.
const (
	gtpuLatencyName   = "gtpu-latency"
	gtpuLatencyRounds = 50
)

// gtpuLatency is the experiment gtpu-latency.
var gtpuLatency = lab.Experiment{
	Name:      gtpuLatencyName,
	Summary:   "latency of single packets through a GGSN: XDP, tc and user space, osmo-ggsn, plain kernel forwarding",
	NeedsRoot: true,
	Needs:     []string{"osmo-ggsn"},
	Run:       runGTPULatency,
}

func runGTPULatency(ctx context.Context, e *lab.Env) error {
	r, done, err := startRig(ctx, e, gtpuLatencyName, carrying{}, rigPlan{Ways: gtpuWays, Probe: true})
	if err != nil {
		return err
	}
	defer done()
	rounds := cmp.Or(e.Runs, gtpuLatencyRounds)
	cases, err := r.latencies(ctx, e, gtpuDirections, gtpuSizes, rounds)
	if err != nil {
		return err
	}
	rep := &report.Report{
		Experiment: gtpuLatencyName, Title: "Latency of single packets through one GGSN, bare veth", Peer: "osmo-ggsn",
		Tables: []report.Table{percentilesTable("latency", cases, gtpuWays)},
		Notes: []string{
			latencySlicesNote,
			fmt.Sprintf("%d packets a case and way, one per %v.", rounds*latencySlice, latencyGap),
			latencyStampsNote,
			latencySenderNote,
		},
	}
	latencyFacts(rep)
	for _, c := range cases {
		rep.Figures = append(rep.Figures,
			ratioFigure(gtpuLatencyName, c.label(), figureOsmoLatency, timePairs(c.median(wayOsmo), c.median(wayUser))),
			overForwarding(c, "tc", wayTC), overForwarding(c, "XDP", wayXDP),
			report.Figure{
				Name: c.label() + ": median latency", Unit: "µs", Decimals: 2,
				Peer: report.Measured(c.median(wayOsmo)...), Isthmus: report.Measured(c.median(wayUser)...),
			})
		h := &report.Histogram{Unit: "µs", Bin: 1}
		c.draw(h, gtpuWays)
		rep.AddChart(report.Chart{Name: fmt.Sprintf("%s-%d", c.direction, c.size), Title: "Latency, " + c.label(), Histogram: h})
		c.judge(rep, gtpuWays)
	}
	if err := r.checkPaths(ctx, rep); err != nil {
		return err
	}
	if err := writeSamples(e, gtpuLatencyName, cases, gtpuWays); err != nil {
		return err
	}
	return finish(e, rep)
}

// overForwarding is the median latency of a way of a case, beside that of forwarding.
func overForwarding(c *latencyCase, name string, w way) report.Figure {
	return report.Figure{
		Name: c.label() + ": Isthmus " + name + " / kernel forwarding, median latency", Decimals: 2,
		Isthmus: report.Measured(timePairs(c.median(wayKernel), c.median(w))...),
	}
}
