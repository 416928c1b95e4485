// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of relay-throughput.
const (
	throughputName   = "relay-throughput"
	throughputRounds = 30
)

// throughputSizes are in bytes of the IPv6 packet: those of the Miredo page, and
// those of the papers.
var throughputSizes = []int{48, 64, 512, 1280}

// throughputWays take turns in each round. The bare cable tells what the
// generator and a sink reach.
var throughputWays = []way{wayBare, wayKernel, wayMiredo, wayUser, wayTC, wayXDP}

// relayThroughput is the experiment relay-throughput.
var relayThroughput = lab.Experiment{
	Name:      throughputName,
	Summary:   "packets per second through a relay: XDP, tc and user space, Miredo, plain kernel forwarding",
	NeedsRoot: true,
	Needs:     []string{"miredo"},
	Run:       runRelayThroughput,
}

func runRelayThroughput(ctx context.Context, e *lab.Env) error {
	rounds := throughputRounds
	if e.Runs > 0 {
		rounds = e.Runs
	}
	rep := &report.Report{
		Experiment: throughputName, Title: "Packets per second through one relay, bare veth", Peer: "Miredo",
	}
	for _, part := range []func(context.Context, *lab.Env, *report.Report, int) error{throughputTable, randomPeers, manyHops} {
		if err := part(ctx, e, rep, rounds); err != nil {
			return err
		}
	}
	return finish(e, rep)
}

// throughputTable measures the ways beside each other.
func throughputTable(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) error {
	l, done, err := startLoaded(ctx, e, throughputName, throughputWays, false)
	if err != nil {
		return err
	}
	defer done()
	var cases []*throughputCase
	sizes := throughputSizes
	if rounds < longRun {
		sizes = []int{sizes[0], sizes[len(sizes)-1]}
	}
	for _, d := range []direction{toIPv4, toIPv6, bothWays} {
		for _, size := range sizes {
			e.Step("%s, %d bytes: %d rounds of %v on each path", d, size, rounds, loadSlice)
			c, err := l.throughput(ctx, d, size, rounds)
			if err != nil {
				return err
			}
			cases = append(cases, c)
		}
	}
	describeThroughput(rep, cases, rounds)
	if rounds >= longRun {
		if err := l.withoutLoss(ctx, e, rep); err != nil {
			return err
		}
	}
	if err := l.healthy(); err != nil {
		return err
	}
	return l.checkPaths(ctx, rep)
}

// throughput measures one case on all paths, in rounds of one slice each.
func (l *loaded) throughput(ctx context.Context, d direction, size, rounds int) (*throughputCase, error) {
	c := newThroughputCase(d, size)
	for round := range rounds {
		for i := range l.paths {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p := l.paths[(i+round)%len(l.paths)]
			r, err := l.slice(p, d, size, fullLoad)
			if err != nil {
				return nil, err
			}
			c.add(p.way, r)
		}
	}
	return c, nil
}

// withoutLoss adds the second view of the same paths: not what passes of a load that
// none can carry, but the load that each carries.
func (l *loaded) withoutLoss(ctx context.Context, e *lab.Env, rep *report.Report) error {
	found := newLosslessReport(throughputWays, wayBare)
	for _, d := range []direction{toIPv4, toIPv6} {
		for _, size := range []int{64, 1280} {
			c := newThroughputCase(d, size)
			e.Step("%s: searching the rate that each path carries", c.label())
			err := lossless(ctx, c, l.paths, func(p *relayPath) way { return p.way }, func(p *relayPath, pace load.Pace) (rate, error) {
				return l.slice(p, d, size, pace)
			})
			if err != nil {
				return err
			}
			found.add(c)
		}
	}
	found.to(rep)
	return nil
}

// describeThroughput adds the table of all ways, its figures and its picture.
func describeThroughput(rep *report.Report, cases []*throughputCase, rounds int) {
	table := report.Table{
		Title:   "thousand packets per second at full load: median (lowest to highest slice)",
		Columns: []string{"IPv6 packet", "offered"},
		Notes: []string{
			"Full load is 4 million packets a second, of which the generator sends what the machine allows; offered is the median of the slices of kernel forwarding, tc and XDP.",
			"The bare hop is one cable into a sink: no way can pass more. The sink of all ways is the same, XDP at the far end of their cables.",
			"Each way has one destination, on the link of its router, whose neighbour it knows.",
		},
	}
	for _, w := range throughputWays {
		table.Columns = append(table.Columns, w.title)
	}
	costs := cpuTable("IPv6 packet", throughputWays)
	bars := &report.Bars{Unit: "thousand packets per second"}
	for _, c := range cases {
		row := []string{c.label(), thousands(slices.Concat(c.offered[wayKernel], c.offered[wayTC], c.offered[wayXDP]))}
		group := report.Group{Label: c.label()}
		for _, w := range throughputWays {
			row = append(row, thousands(c.passed[w]))
			if w.by != byCable {
				group.Bars = append(group.Bars, report.Bar{Name: w.title, Role: w.role, Value: report.Measured(inThousands(c.passed[w])...)})
			}
		}
		table.Rows, costs.Rows = append(table.Rows, row), append(costs.Rows, c.cpuRow(c.label(), throughputWays))
		table.Notes = append(table.Notes, c.rigNotes(wayBare)...)
		bars.Groups = append(bars.Groups, group)
		rep.Figures = append(rep.Figures, c.figures()...)
		for _, w := range throughputWays {
			if slices.Max(c.passed[w]) == 0 {
				rep.Fault("%s passed nothing, %s", w.title, c.label())
			}
		}
	}
	rep.Tables = append(rep.Tables, table, costs)
	rep.AddChart(report.Chart{Name: "rates", Title: "Thousand packets per second at full load", Bars: bars})
	rep.Notes = append(rep.Notes,
		fmt.Sprintf("Ratios are medians of the ratios of slices of %v that followed each other, %d rounds (lowest to highest).", loadSlice, rounds),
		"Both at once counts what arrives at both ends.",
		"Published absolute figures: Miredo's page, 61,800 packets per second both ways at 1280 bytes, some 40,000 each way at 48 bytes, on a 1.3 GHz PC.",
	)
	rep.Fact("generator", "live XDP frames of one flow each way, all headers written anew, from CPU %d", senderCPU)
	rep.Fact("forwarder", "%s", forwarderFact("Miredo"))
	rep.Fact("offloads of the tables", "segmentation and checksum off at all ends; GRO on at the router's ports, which gives them NAPI")
}

// figures are the ratios of one case.
func (c *throughputCase) figures() []report.Figure {
	f := []report.Figure{
		ratioFigure(throughputName, c.label(), figureKernel, pairs(c.passed[wayKernel], c.passed[wayXDP])),
		ratioFigure(throughputName, c.label(), figureMiredo, pairs(c.passed[wayMiredo], c.passed[wayXDP])),
		ratioFigure(throughputName, c.label(), figureUser, pairs(c.passed[wayMiredo], c.passed[wayUser])),
		{Name: c.label() + ": tc / kernel forwarding, packets per second", Decimals: 2, Isthmus: report.Measured(pairs(c.passed[wayKernel], c.passed[wayTC])...)},
		{
			Name: c.label() + ": packets per second, XDP", Unit: "thousands", Published: c.published(),
			Peer: report.Measured(inThousands(c.passed[wayMiredo])...), Isthmus: report.Measured(inThousands(c.passed[wayXDP])...),
		},
	}
	if c.direction == bothWays {
		f[0].Must = nil // the table of bounds speaks of each direction
	}
	return f
}

// published is what Miredo's page states for the case.
func (c *throughputCase) published() report.Value {
	switch {
	case c.direction == bothWays && c.size == 1280:
		return report.Measured(61.8)
	case c.direction != bothWays && c.size == 48:
		return report.Measured(40)
	}
	return report.Value{}
}

func inThousands(v []float64) []float64 {
	t := make([]float64, len(v))
	for i := range v {
		t[i] = v[i] / 1e3
	}
	return t
}
