// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/cost"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of siit-cost.
const (
	siitCostName   = "siit-cost"
	siitCostRounds = 30
)

// siitSizes are in bytes of the IPv6 packet.
var siitSizes = []int{64, 512, 1440}

// siitWays take turns in each round.
var siitWays = []way{wayKernel, wayTayga, wayUser, wayTC, wayXDP}

// siitCost is the experiment siit-cost.
var siitCost = lab.Experiment{
	Name:      siitCostName,
	Summary:   "a stateless translator beside plain forwarding: round trips, packets per second, TCP, and its program alone",
	NeedsRoot: true,
	Needs:     []string{"tayga"},
	Run:       runSIITCost,
}

func runSIITCost(ctx context.Context, e *lab.Env) error {
	rounds := cmp.Or(e.Runs, siitCostRounds)
	rep := &report.Report{
		Experiment: siitCostName, Title: "One stateless translator beside forwarding, bare veth", Peer: "tayga",
		Notes: []string{
			"Ratios and differences are those of slices that followed each other, each way in turn: median (lowest to highest).",
			"Forwarding is plain IPv6 forwarding by the kernel, from cable to cable as the translators do it.",
			"Tayga cuts what makes IPv6 packets of more than 1280 bytes in two, which count as none.",
		},
	}
	for _, part := range []func(context.Context, *lab.Env, *report.Report, int) error{
		siitRoundTrips, siitRates, siitStreams, siitProgram,
	} {
		if err := errors.Join(ctx.Err(), part(ctx, e, rep, rounds)); err != nil {
			return err
		}
	}
	return finish(e, rep)
}

// siitRoundTrips measures echoes.
func siitRoundTrips(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) error {
	r, done, err := startRig(ctx, e, siitCostName, &translating{Stateless: true}, rigPlan{Ways: siitWays})
	if err != nil {
		return err
	}
	defer done()
	cases, err := r.roundTrips(ctx, e, siitSizes, rounds)
	if err != nil {
		return err
	}
	table := wayTable(roundTripTitle, siitWays, "IPv6 packet")
	for _, c := range cases {
		table.Rows = append(table.Rows, c.medianRow(siitWays, c.label()))
		for _, w := range siitWays {
			if c.lost[w] > 0 && w != wayTayga {
				rep.Fault("%s lost %d of %d echo requests of %d bytes", w.title, c.lost[w], rounds*latencySlice, c.size)
			}
		}
		rep.Figures = append(rep.Figures, siitRoundTripFigures(c)...)
	}
	rep.Tables = append(rep.Tables, table)
	return r.checkPaths(ctx, rep)
}

// siitRoundTripFigures are what is added to forwarding.
func siitRoundTripFigures(c *latencyCase) (figures []report.Figure) {
	for _, w := range []way{wayTC, wayXDP, wayUser} {
		ratio, added := c.overForwarding(w)
		if w == wayTC {
			ratio.Must, added.Must = must(siitCostName, figureRoundTrip), must(siitCostName, figureAdded)
		}
		figures = append(figures, ratio, added)
	}
	return figures
}

// siitRates measures packets per second of one flow.
func siitRates(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) error {
	r, done, err := startTranslators(ctx, e, siitCostName, translating{Stateless: true}, slices.Concat([]way{wayDirect6}, siitWays), 0)
	if err != nil {
		return err
	}
	defer done()
	rep.Fact("generator", "live XDP frames, all headers written anew, from CPU %d", senderCPU)
	rep.Fact("forwarder", "%s", forwarderFact("tayga"))
	if err := r.flowRates(ctx, e, rep, siitCostName, siitSizes, rounds); err != nil {
		return err
	}
	return r.checkPaths(ctx, rep)
}

// siitStreams measures TCP over cables that do what virtual ones can, and then over such
// as leave each packet by itself.
func siitStreams(ctx context.Context, e *lab.Env, rep *report.Report, _ int) error {
	rounds, length := streamForm(e.Runs)
	_, err := cableStreams(ctx, e, rep, siitCostName, &translating{Stateless: true}, siitWays, rounds, length, siitStreamFigures)
	rep.Notes = append(rep.Notes, streamNote(rounds, length))
	return err
}

// siitStreamFigures are the ratios of one row.
func siitStreamFigures(s *naptStreams) (figures []report.Figure) {
	for _, w := range []way{wayTC, wayXDP, wayUser} {
		f := s.overForwarding(w)
		switch {
		case w != wayTC: // shown beside
		case s.cables == withOffloads:
			f.Must = must(siitCostName, figureStreamOffloads)
		default:
			f.Must = must(siitCostName, figureStreamPlain)
		}
		figures = append(figures, f)
	}
	return figures
}

// siitProgram measures the program alone, with few and many mappings.
func siitProgram(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) error {
	o := cost.Defaults()
	o.Sizes, o.Repeat, o.Rounds = siitSizes[:2], 1<<17, rounds
	o = shortCost(o)
	e.Step("the program alone, %d mappings at most: %d rounds of %d packets a row", o.Peers[len(o.Peers)-1], o.Rounds, o.Repeat)
	rows, err := cost.MeasureSIIT(ctx, o)
	if err != nil {
		return err
	}
	costTable{
		title: "the program alone, " + costRound, entries: "mappings",
		notes: []string{"Measured by the kernel's test run of the program, without cable, driver and scheduler; what makes each packet anew is measured apart and taken off. Each packet is of another mapping, in random order."},
		named: func(r cost.Row) string { return r.Direction }, must: func(cost.Row) *report.Must { return nil },
	}.add(rep, rows)
	return nil
}
