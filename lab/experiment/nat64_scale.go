// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
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
	scaleRateWays  = []way{wayDirect6, wayKernel, wayTayga, wayUser, wayTC, wayXDP}
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
	f.rounds = cmp.Or(runs, f.rounds)
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
	r, done, err := startTranslators(ctx, e, scaleName, translating{Static: true, More: "max_sessions = 1024\nmax_clients = 16\n"}, scaleRateWays, 0)
	if err != nil {
		return err
	}
	defer done()
	for _, p := range r.paths {
		if p.way.ours() {
			if empty[p.way], err = processMemory(p.process.PID()); err != nil {
				return err
			}
		}
	}
	if err := r.flowRates(ctx, e, rep, scaleName, form.sizes, form.rounds); err != nil {
		return err
	}
	return r.checkPaths(ctx, rep)
}

// flowRates measures packets per second of one flow through translators, in both
// directions: at full load, and in the long form without loss.
func (r *rig) flowRates(ctx context.Context, e *lab.Env, rep *report.Report, experiment string, sizes []int, rounds int) error {
	err := r.rates(ctx, e, rep, []direction{toIPv4, toIPv6}, sizes, rounds, rateReport{
		title:   "thousand packets per second of one flow at full load: median (lowest to highest slice)",
		chart:   "Thousand packets per second of one flow",
		offered: []way{wayKernel}, spared: wayTayga,
		figures: func(c *rateCase) []report.Figure { return rateFigures(experiment, c) },
	})
	if err != nil {
		return err
	}
	rep.Notes = append(rep.Notes,
		fmt.Sprintf("Ratios of rates are medians of the ratios of slices of %v that followed each other, %d rounds (lowest to highest).", loadSlice, rounds),
		fullNote, bareNote("v6-v6"))
	if rounds < longRun {
		return nil
	}
	return r.withoutLoss(ctx, e, rep, []direction{toIPv4, toIPv6}, sizes[0], sizes[len(sizes)-1])
}

// rateFigures are the ratios of one row.
func rateFigures(experiment string, c *rateCase) []report.Figure {
	label := c.label()
	forwarding, tayga := c.passed[wayKernel], c.passed[wayTayga]
	peer := report.Measured(pairs(forwarding, tayga)...)
	tc := ratioFigure(experiment, label, figureRateTC, pairs(forwarding, c.passed[wayTC]))
	xdp := ratioFigure(experiment, label, figureRateXDP, pairs(forwarding, c.passed[wayXDP]))
	tc.Peer, xdp.Peer = peer, peer
	user := report.Figure{Name: label + ": user space / forwarding", Decimals: 2, Peer: peer, Isthmus: report.Measured(pairs(forwarding, c.passed[wayUser])...)}
	return []report.Figure{tc, xdp, user}
}
