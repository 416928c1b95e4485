// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"

	"github.com/isthmus-net/isthmus/lab"
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

// throughputWays take turns in each round. The bare cable reports what the
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
	rounds := cmp.Or(e.Runs, throughputRounds)
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
	r, done, err := startRig(ctx, e, throughputName, relaying{}, rigPlan{Ways: throughputWays, Load: 1})
	if err != nil {
		return err
	}
	defer done()
	sizes := throughputSizes
	if rounds < longRun {
		sizes = []int{sizes[0], sizes[len(sizes)-1]}
	}
	err = r.rates(ctx, e, rep, []direction{toIPv4, toIPv6, bothWays}, sizes, rounds, rateReport{
		title: "thousand packets per second at full load: median (lowest to highest slice)",
		chart: "Thousand packets per second at full load",
		notes: []string{
			fullNote, "Offered is the median of the slices of kernel forwarding, tc and XDP.",
			bareNote("The bare hop"),
			"Each way has one destination, on the link of its router, whose neighbour it knows.",
		},
		offered: []way{wayKernel, wayTC, wayXDP}, figures: throughputFigures,
	})
	if err != nil {
		return err
	}
	rep.Notes = append(rep.Notes,
		fmt.Sprintf("Ratios are medians of the ratios of slices of %v that followed each other, %d rounds (lowest to highest).", loadSlice, rounds),
		"Both at once counts what arrives at both ends.",
		"Published absolute figures: Miredo's page, 61,800 packets per second both ways at 1280 bytes, some 40,000 each way at 48 bytes, on a 1.3 GHz PC.",
	)
	rep.Fact("generator", "live XDP frames of one flow each way, all headers written anew, from CPU %d", senderCPU)
	rep.Fact("forwarder", "%s", forwarderFact("Miredo"))
	rep.Fact("offloads of the tables", "segmentation and checksum off at all ends; GRO on at the router's ports, which gives them NAPI")
	if rounds >= longRun {
		if err := r.withoutLoss(ctx, e, rep, []direction{toIPv4, toIPv6}, 64, 1280); err != nil {
			return err
		}
	}
	return r.checkPaths(ctx, rep)
}

// throughputFigures are the ratios of one case.
func throughputFigures(c *rateCase) []report.Figure {
	f := []report.Figure{
		ratioFigure(throughputName, c.label(), figureKernel, pairs(c.passed[wayKernel], c.passed[wayXDP])),
		ratioFigure(throughputName, c.label(), figureMiredo, pairs(c.passed[wayMiredo], c.passed[wayXDP])),
		ratioFigure(throughputName, c.label(), figureUser, pairs(c.passed[wayMiredo], c.passed[wayUser])),
		{Name: c.label() + ": tc / kernel forwarding, packets per second", Decimals: 2, Isthmus: report.Measured(pairs(c.passed[wayKernel], c.passed[wayTC])...)},
		{
			Name: c.label() + ": packets per second, XDP", Unit: "thousands", Published: publishedRate(c),
			Peer: report.Measured(inThousands(c.passed[wayMiredo])...), Isthmus: report.Measured(inThousands(c.passed[wayXDP])...),
		},
	}
	if c.direction == bothWays {
		f[0].Must = nil // the table of bounds speaks of each direction
	}
	return f
}

// publishedRate is what Miredo's page states for the case.
func publishedRate(c *rateCase) report.Value {
	switch {
	case c.direction == bothWays && c.size == 1280:
		return report.Measured(61.8)
	case c.direction != bothWays && c.size == 48:
		return report.Measured(40)
	}
	return report.Value{}
}
