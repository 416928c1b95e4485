// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of gtpu-throughput.
const (
	gtpuThroughputName   = "gtpu-throughput"
	gtpuThroughputRounds = 30
	gtpuForwardSize      = 1280 // of the figure beside forwarding that has a must
)

// gtpuSizes are in bytes of the terminal's packet.
var gtpuSizes = []int{64, 512, 1280}

// gtpuWays take turns in each round.
var gtpuWays = []way{wayBare, wayKernel, wayOsmo, wayUser, wayTC, wayXDP}

// gtpuDirections are those of terminals.
var gtpuDirections = []direction{downlink, uplink}

// gtpuThroughput is the experiment gtpu-throughput.
var gtpuThroughput = lab.Experiment{
	Name:      gtpuThroughputName,
	Summary:   "packets per second through a GGSN: XDP, tc and user space, osmo-ggsn, plain kernel forwarding",
	NeedsRoot: true,
	Needs:     []string{"osmo-ggsn"},
	Run:       runGTPUThroughput,
}

func runGTPUThroughput(ctx context.Context, e *lab.Env) error {
	r, done, err := startRig(ctx, e, gtpuThroughputName, carrying{}, rigPlan{Ways: gtpuWays, Load: 1})
	if err != nil {
		return err
	}
	defer done()
	rounds, sizes := cmp.Or(e.Runs, gtpuThroughputRounds), gtpuSizes
	if rounds < longRun {
		sizes = []int{sizes[0], sizes[len(sizes)-1]}
	}
	rep := &report.Report{
		Experiment: gtpuThroughputName, Title: "Packets per second through one GGSN, bare veth", Peer: "osmo-ggsn",
		Notes: []string{
			fmt.Sprintf("Ratios are medians of the ratios of slices of %v that followed each other, %d rounds (lowest to highest).", loadSlice, rounds),
			"Downlink is to a terminal, out of IPv6 into GTP-U over IPv4; uplink the other way. One PDP context of IPv6 is open at each GGSN.",
		},
	}
	err = r.rates(ctx, e, rep, gtpuDirections, sizes, rounds, rateReport{
		title: "thousand packets per second at full load: median (lowest to highest slice)",
		chart: "Thousand packets per second at full load",
		notes: []string{
			fullNote, "Offered is the median of the slices of kernel forwarding, tc and XDP.",
			bareNote("The bare hop"),
			"Forwarding carries the terminal's packets as they are, without a tunnel.",
		},
		offered: []way{wayKernel, wayTC, wayXDP}, figures: gtpuRateFigures,
	})
	if err != nil {
		return err
	}
	rep.Fact("generator", "live XDP frames of one flow, all headers written anew, from CPU %d", senderCPU)
	rep.Fact("forwarder", "%s", forwarderFact("osmo-ggsn"))
	rep.Fact("offloads", "segmentation and checksum off at all ends; GRO on at the router's ports, which gives them NAPI")
	if rounds >= longRun {
		if err := r.withoutLoss(ctx, e, rep, gtpuDirections, sizes[0], sizes[len(sizes)-1]); err != nil {
			return err
		}
	}
	if err := r.checkPaths(ctx, rep); err != nil {
		return err
	}
	return finish(e, rep)
}

// gtpuRateFigures are the ratios of one case.
func gtpuRateFigures(c *rateCase) []report.Figure {
	against := figureOsmoUp
	if c.direction == downlink {
		against = figureOsmoDown
	}
	forward := ratioFigure(gtpuThroughputName, c.label(), figureOsmoForward, pairs(c.passed[wayKernel], c.passed[wayUser]))
	if c.size != gtpuForwardSize {
		forward.Must = nil
	}
	return []report.Figure{
		ratioFigure(gtpuThroughputName, c.label(), against, pairs(c.passed[wayOsmo], c.passed[wayUser])),
		forward,
		ratioFigure(gtpuThroughputName, c.label(), figureGTPUTC, pairs(c.passed[wayKernel], c.passed[wayTC])),
		ratioFigure(gtpuThroughputName, c.label(), figureGTPUXDP, pairs(c.passed[wayKernel], c.passed[wayXDP])),
		{
			Name: c.label() + ": packets per second, XDP", Unit: "thousands",
			Peer: report.Measured(inThousands(c.passed[wayOsmo])...), Isthmus: report.Measured(inThousands(c.passed[wayXDP])...),
		},
	}
}
