// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of relay-latency. The papers send one packet per second; one per half
// millisecond finds the relay just as idle. The papers' 10,000 packets are 250
// rounds.
const (
	latencyName   = "relay-latency"
	latencyGap    = 500 * time.Microsecond
	latencyRounds = 50
	latencyLimit  = answerWait // a packet that takes longer is lost
)

// latencySizes are those of the papers, in bytes of the IPv6 packet; 64 holds the
// sequence number just so.
var latencySizes = []int{64, 512, 1280}

// latencyWays take turns in each round.
var latencyWays = []way{wayBare, wayKernel, wayMiredo, wayUser, wayTC, wayXDP}

// relayLatency is the experiment relay-latency.
var relayLatency = lab.Experiment{
	Name:      latencyName,
	Summary:   "latency of single packets through a relay: XDP, tc and user space, Miredo, plain kernel forwarding",
	NeedsRoot: true,
	Needs:     []string{"miredo"},
	Run:       runRelayLatency,
}

func runRelayLatency(ctx context.Context, e *lab.Env) error {
	r, done, err := startRig(ctx, e, latencyName, relaying{}, rigPlan{Ways: latencyWays, Probe: true})
	if err != nil {
		return err
	}
	defer done()
	rounds := cmp.Or(e.Runs, latencyRounds)
	cases, err := r.latencies(ctx, e, []direction{toIPv4, toIPv6}, latencySizes, rounds)
	if err != nil {
		return err
	}
	rep := latencyReport(cases, rounds)
	if err := r.checkPaths(ctx, rep); err != nil {
		return err
	}
	if err := writeSamples(e, latencyName, cases, latencyWays); err != nil {
		return err
	}
	return finish(e, rep)
}

// latencyReport is the papers' table and figures, and what they leave out.
func latencyReport(cases []*latencyCase, rounds int) *report.Report {
	rep := &report.Report{
		Experiment: latencyName, Title: "Latency of single packets through one relay, bare veth", Peer: "Miredo",
		Tables: []report.Table{averages(cases), percentilesTable("latency", cases, latencyWays)},
		Notes: []string{
			latencySlicesNote,
			fmt.Sprintf("%d packets a case and way, one per %v; the papers send 10,000, one per second.", rounds*latencySlice, latencyGap),
			latencyStampsNote,
			latencySenderNote,
			"The published figures are those of other machines: what they tell is the ratio of the kernel module to Miredo, 3.3 to 3.9.",
			"Table 1 of AINA 2005 names no size. It stands at 512 bytes, since its averages are the means of the sheet embedded in that document, of 10,000 packets of 512 bytes each, which the pictures of that size show. The sheet ends at 50 µs: 0.5 and 1.4 % of Miredo's packets took longer.",
		},
	}
	latencyFacts(rep)
	for _, c := range cases {
		rep.Figures = append(rep.Figures, latencyFigures(c)...)
		rep.AddChart(latencyChart(c))
		c.judge(rep, latencyWays)
	}
	return rep
}

// figures are the ratios that have a must.
func latencyFigures(c *latencyCase) []report.Figure {
	miredo := c.median(wayMiredo)
	var figures []report.Figure
	for _, w := range []way{wayTC, wayXDP} {
		name := figureLatencyTC
		if w == wayXDP {
			name = figureLatencyXDP
		}
		figures = append(figures,
			ratioFigure(latencyName, c.label(), name, timePairs(c.median(wayKernel), c.median(w))),
			ratioFigure(latencyName, c.label()+", "+w.title, figureLatencyMiredo, timePairs(c.median(w), miredo)),
		)
	}
	return append(figures, ratioFigure(latencyName, c.label(), figureLatencyUser, timePairs(miredo, c.median(wayUser))))
}

// chart is one of the papers' figures 14 to 16, and those of the other direction.
func latencyChart(c *latencyCase) report.Chart {
	h := &report.Histogram{Unit: "µs", Bin: 1}
	for _, p := range publishedLatencies {
		p.draw(h, c.direction, c.size)
	}
	c.draw(h, latencyWays)
	name := fmt.Sprintf("to-ipv4-%d", c.size)
	if c.direction == toIPv6 {
		name = fmt.Sprintf("to-ipv6-%d", c.size)
	}
	return report.Chart{Name: name, Title: "Latency, " + c.label(), Histogram: h}
}

// averages is the papers' table.
func averages(cases []*latencyCase) report.Table {
	first := []string{"IPv6 packet"}
	for _, p := range publishedLatencies {
		first = append(first, p.name)
	}
	t := wayTable("average latency, µs", latencyWays, first...)
	for _, c := range cases {
		row := []string{c.label()}
		for _, p := range publishedLatencies {
			text := "-"
			if average := p.average(c.direction, c.size); average > 0 {
				text = fmt.Sprintf("%.2f", average)
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, cells(latencyWays, func(w way) string { return average(slices.Concat(c.rounds[w]...)) }, row...))
	}
	return t
}

func average(samples []float64) string {
	if len(samples) == 0 {
		return "-"
	}
	sum := 0.0
	for _, s := range samples {
		sum += s
	}
	return fmt.Sprintf("%.2f", sum/float64(len(samples)))
}
