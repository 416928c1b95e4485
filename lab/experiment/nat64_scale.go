// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of nat64-scale.
const (
	scaleName   = "nat64-scale"
	scaleRounds = 30
)

// scaleSizes are in bytes of the IPv6 packet.
var scaleSizes = []int{64, 512, 1280}

// Ways of the parts: all at one session, and those of Isthmus that carry a million.
var (
	scaleRateWays  = []way{wayKernel, wayTayga, wayUser, wayTC, wayXDP}
	scaleCrowdWays = []way{wayKernel, wayTC, wayXDP}
)

// nat64Scale is the experiment nat64-scale.
var nat64Scale = lab.Experiment{
	Name:      scaleName,
	Summary:   "a stateful translator: packets per second, new sessions per second, a million sessions and their end",
	NeedsRoot: true,
	Needs:     []string{"tayga"},
	Run:       runNAT64Scale,
}

// scaleForm is how much of it is done.
type scaleForm struct {
	rounds   int
	sizes    []int         // of the IPv6 packet in bytes
	crowds   []int         // sessions in the tables
	timeout  time.Duration // of UDP, in which the last crowd must be met and measured
	slices   int           // for each load of new sessions
	udp, tcp []float64     // loads of new sessions, per second
}

// scaleFormOf is the long form, or a short one that shows that all of it works.
func scaleFormOf(runs int) scaleForm {
	f := scaleForm{
		rounds: scaleRounds, sizes: scaleSizes, crowds: []int{100_000, crowdSize}, timeout: 60 * time.Second,
		slices: 5, udp: newUDPLoads, tcp: newTCPLoads,
	}
	if runs > 0 {
		f.rounds = runs
	}
	if f.rounds < longRun {
		f.sizes, f.crowds, f.timeout = scaleSizes[:1], []int{500, 5000}, 5*time.Second
		f.slices, f.udp, f.tcp = 2, newUDPLoads[:1], newTCPLoads[:1]
	}
	return f
}

func runNAT64Scale(ctx context.Context, e *lab.Env) error {
	form := scaleFormOf(e.Runs)
	rep := &report.Report{Experiment: scaleName, Title: "One stateful translator under load, bare veth", Peer: "tayga"}
	rep.Fact("generator", "live XDP frames, all headers written anew, from CPU %d", senderCPU)
	rep.Fact("forwarder", "%s", forwarderFact("tayga"))
	empty := map[way]int{}
	for _, part := range []func() error{
		func() error { return scaleRates(ctx, e, rep, form, empty) },
		func() error { return scaleNew(ctx, e, rep, form) },
		func() error { return scaleCrowd(ctx, e, rep, form, empty) },
	} {
		if err := errors.Join(ctx.Err(), part()); err != nil {
			return err
		}
	}
	return finish(e, rep)
}

// scaleRates measures packets per second of one flow, all ways beside each other.
func scaleRates(ctx context.Context, e *lab.Env, rep *report.Report, form scaleForm, empty map[way]int) error {
	l, done, err := startLoadedNAPT(ctx, e, scaleName, naptPlan{Ways: scaleRateWays, Static: true, More: "max_sessions = 1024\nmax_clients = 16\n"}, 0)
	if err != nil {
		return err
	}
	defer done()
	for _, p := range l.paths {
		if p.way.ours() {
			if empty[p.way], err = processMemory(p.process.PID()); err != nil {
				return err
			}
		}
	}
	table := report.Table{Title: "thousand packets per second of one flow at full load: median (lowest to highest slice)", Columns: []string{"IPv6 packet", "offered"}}
	for _, w := range scaleRateWays {
		table.Columns = append(table.Columns, w.title())
	}
	bars := &report.Bars{Unit: "thousand packets per second"}
	for _, d := range []relayDirection{toIPv4, toIPv6} {
		for _, size := range form.sizes {
			label := fmt.Sprintf("%s, %d bytes", d, size)
			e.Step("%s: %d rounds of %v on each way", label, form.rounds, loadSlice)
			c, err := l.rounds(ctx, d, form.rounds, func(p *naptPath) (rate, error) { return l.rate(p, d, l.flow(p, d, size)) })
			if err != nil {
				return err
			}
			row, group := []string{label, thousands(c.offered[wayKernel])}, report.Group{Label: label}
			for _, w := range scaleRateWays {
				row = append(row, thousands(c.passed[w]))
				group.Bars = append(group.Bars, report.Bar{Name: w.title(), Role: w.role(), Value: report.Measured(inThousands(c.passed[w])...)})
				if report.Measured(c.passed[w]...).Median() == 0 {
					rep.Fault("%s passed nothing, %s", w.title(), label)
				}
			}
			table.Rows, bars.Groups = append(table.Rows, row), append(bars.Groups, group)
			rep.Figures = append(rep.Figures, rateFigures(scaleName, label, c)...)
		}
	}
	rep.Tables = append(rep.Tables, table)
	rep.AddChart(report.Chart{Name: "rates", Title: "Thousand packets per second of one flow", Bars: bars})
	rep.Notes = append(rep.Notes,
		fmt.Sprintf("Ratios are medians of the ratios of slices of %v that followed each other, %d rounds (lowest to highest).", loadSlice, form.rounds),
		"Full load is 4 million packets a second, of which the generator sends what the machine allows.")
	return errors.Join(l.healthy(), l.checkPaths(ctx, rep))
}

// rateFigures are the ratios of one row.
func rateFigures(experiment, label string, c *throughputCase) []report.Figure {
	forwarding, tayga := c.passed[wayKernel], c.passed[wayTayga]
	peer := report.Measured(pairs(forwarding, tayga)...)
	tc := ratioFigure(experiment, label, figureRateTC, pairs(forwarding, c.passed[wayTC]))
	xdp := ratioFigure(experiment, label, figureRateXDP, pairs(forwarding, c.passed[wayXDP]))
	tc.Peer, xdp.Peer = peer, peer
	user := report.Figure{Name: label + ": user space / forwarding", Decimals: 2, Peer: peer, Isthmus: report.Measured(pairs(forwarding, c.passed[wayUser])...)}
	return []report.Figure{tc, xdp, user}
}

// rounds measures all ways in turn.
func (l *loadedNAPT) rounds(ctx context.Context, d relayDirection, rounds int, slice func(*naptPath) (rate, error)) (*throughputCase, error) {
	c := &throughputCase{direction: d, offered: map[way][]float64{}, passed: map[way][]float64{}}
	for round := range rounds {
		for i := range l.paths {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p := l.paths[(i+round)%len(l.paths)]
			r, err := slice(p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.way.title(), err)
			}
			c.offered[p.way] = append(c.offered[p.way], r.offered)
			c.passed[p.way] = append(c.passed[p.way], r.passed)
		}
	}
	return c, nil
}
