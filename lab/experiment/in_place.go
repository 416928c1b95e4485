// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the experiments of programs in place.
const (
	placedSuffix = "-in-place"
	placedRounds = 15
	placedMost   = 1_000_000
	placedApart  = 1 << 16 // of the rows that take the cost apart
	placedFew    = 1_000   // hosts, where they are few
	placedSlice  = 40 * time.Millisecond
	placedShort  = 5 * time.Millisecond  // of the short form
	placedCalm   = 2 * time.Second       // until the classes of routes have been computed
	placedWarm   = 60 * time.Millisecond // brings back what the other ways have put out of the caches
)

// placedWays take turns.
var placedWays = []way{wayKernel, wayTC, wayXDP}

// placedForm is how much of it is done.
type placedForm struct {
	rounds      int
	crowds      []int // sessions, mappings or peers
	apart, few  int
	warm, slice time.Duration
	calm        time.Duration
}

// most is the largest crowd.
func (f *placedForm) most() int { return f.crowds[len(f.crowds)-1] }

// placedFormOf is the long form, or a short one that shows that all of it works.
func placedFormOf(runs int) placedForm {
	f := placedForm{rounds: placedRounds, crowds: []int{1, 1_000, 1 << 14, placedApart, placedMost}, apart: placedApart, few: placedFew, warm: placedWarm, slice: placedSlice, calm: placedCalm}
	if runs > 0 {
		f.rounds = runs
	}
	if f.rounds < longRun {
		f.crowds, f.apart, f.few, f.warm, f.slice, f.calm = []int{1, 500}, 500, 50, 0, placedShort, 0
	}
	return f
}

// placed is one experiment: programs of one role, measured where they work.
type placed struct {
	name, title string
	entries     string // what there are many of
	start       func(context.Context, *lab.Env, string, placedForm) (*placedWorld, error)
}

// The experiments.
var (
	relayInPlace = placed{"relay" + placedSuffix, "A relay's programs in place", "peers", newPlacedRelay}.experiment()
	nat64InPlace = placed{"nat64" + placedSuffix, "A stateful translator's programs in place", "sessions", newPlacedNAT64}.experiment()
	siitInPlace  = placed{"siit" + placedSuffix, "A stateless translator's programs in place", "mappings", newPlacedSIIT}.experiment()
)

func (x placed) experiment() lab.Experiment {
	return lab.Experiment{
		Name: x.name, NeedsRoot: true, Run: x.run,
		Summary: fmt.Sprintf("programs where they work, beside forwarding of the same destinations: 1 to a million %s, each with a host of its own", x.entries),
	}
}

// placedWorld is a role at work on each way, between a generator and a sink.
type placedWorld struct {
	places []*place
	// fill makes the first n entries known to all ways.
	fill func(ctx context.Context, n int) error
	// frames are the entries of the generator's table for a way, in their order; none where
	// the role has no such mix.
	frames func(p *place, d direction, m mix) []load.Peer
	// close ends all.
	close func()
}

// place is one way of it.
type place struct {
	way    way
	router *lab.Node
	table  []load.Peer // its part of the generator's table
	first  int         // where that begins
	count  int         // of its entries, those of the present row
	lane   func(d direction) load.Lane
	// run sends, and counts what arrives.
	run func(d direction, lane load.Lane, pace load.Pace) (ran, error)
	// counts is what the role has forwarded.
	counts   func(ctx context.Context) (taken, error)
	programs map[direction]*ebpf.Program // that take the packets
}

// mix says what the packets of a row are of.
type mix struct {
	entries, hosts int  // how many take part
	inOrder        bool // in the order in which the entries were made, instead of a random one
}

// order is which entry each packet is of.
func (m mix) order() []int {
	n := max(m.entries, m.hosts)
	if !m.inOrder {
		return rand.Perm(n)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// run is the whole experiment.
func (x placed) run(ctx context.Context, e *lab.Env) (err error) {
	form := placedFormOf(e.Runs)
	rep := &report.Report{Experiment: x.name, Title: x.title + ", bare veth"}
	rep.Fact("generator", "live XDP frames, all headers written anew, from CPU %d", senderCPU)
	rep.Fact("forwarder", "receiving threads and the sink behind them on CPU %d in all columns", forwarderCPU)
	timing, err := load.TimedNothing()
	if err != nil {
		return err
	}
	rep.Fact("timing", "bpf_stats finds %.0f ns for a program that does nothing: so much of its figures is the timing", timing)
	e.Step("starting the programs beside a plain router")
	w, err := x.start(ctx, e, x.name, form)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.open(); err != nil {
		return err
	}
	defer w.forget()
	b := &placedBench{placed: x, placedWorld: w, env: e, rep: rep, form: form}
	if b.receiving, err = load.NewUsage(); err != nil {
		return err
	}
	defer b.receiving.Close()
	if err := b.rows(ctx); err != nil {
		return err
	}
	b.describe(timing)
	return finish(e, rep)
}

// open opens the programs that take the packets of each direction.
func (w *placedWorld) open() error {
	for _, p := range w.places {
		p.programs = map[direction]*ebpf.Program{}
		if !p.way.ours() {
			continue
		}
		for d, iface := range map[direction]string{toIPv4: "in6", toIPv6: "out4"} {
			err := p.router.Do(func() (err error) {
				p.programs[d], err = load.AttachedAt(iface, p.way.hook())
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", p.way.title, err)
			}
		}
	}
	return nil
}

// forget closes them.
func (w *placedWorld) forget() {
	for _, p := range w.places {
		for _, program := range p.programs {
			_ = program.Close()
		}
	}
}

// placedBench measures the rows of one experiment.
type placedBench struct {
	placed
	*placedWorld
	env       *lab.Env
	rep       *report.Report
	form      placedForm
	receiving *load.Usage
	done      []*placedRow
}

// rows measures all rows: those of the crowds, and beside the crowd in question those that
// take its cost apart.
func (b *placedBench) rows(ctx context.Context) error {
	for _, n := range b.form.crowds {
		b.env.Step("%d %s", n, b.entries)
		if err := b.fill(ctx, n); err != nil {
			return err
		}
		for _, d := range []direction{toIPv4, toIPv6} {
			if err := b.row(ctx, d, fmt.Sprint(n), n, mix{entries: n, hosts: n}); err != nil {
				return err
			}
		}
		if n == b.form.apart {
			if err := errors.Join(b.apart(ctx), b.churned(ctx, b.form.few), b.churned(ctx, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// apart measures what tells the cost of entries from that of hosts.
func (b *placedBench) apart(ctx context.Context) error {
	n, few := b.form.apart, b.form.few
	for _, d := range []direction{toIPv4, toIPv6} {
		for _, c := range []struct {
			label string
			mix
		}{
			{fmt.Sprintf("%d, in the order in which they were made", n), mix{entries: n, hosts: n, inOrder: true}},
			{fmt.Sprintf("%d, to %d hosts", n, few), mix{entries: n, hosts: few}},
			{fmt.Sprintf("1, to %d hosts", n), mix{entries: 1, hosts: n}},
		} {
			if err := b.row(ctx, d, c.label, 0, c.mix); err != nil {
				return err
			}
		}
	}
	b.env.Step("one route for all IPv4 hosts")
	if err := b.eachRouter((*place).joinRoutes); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(b.form.calm):
	}
	err := b.row(ctx, toIPv4, fmt.Sprintf("%d, one route for all hosts", n), 0, mix{entries: n, hosts: n})
	return errors.Join(err, b.eachRouter((*place).splitRoutes))
}

// churned measures hosts while other routes change.
func (b *placedBench) churned(ctx context.Context, n int) error {
	b.env.Step("%d hosts while %d other routes change a second", n, churnRate)
	stop, err := b.churn(ctx)
	if err != nil {
		return err
	}
	for _, d := range []direction{toIPv4, toIPv6} {
		if err == nil {
			err = b.row(ctx, d, fmt.Sprintf("%d, %d other routes change a second", n, churnRate), 0, mix{entries: n, hosts: n})
		}
	}
	return errors.Join(err, stop())
}

// placedRow is what was measured of a direction and a mix.
type placedRow struct {
	direction direction
	label     string
	crowd     int               // of the rows that differ in it alone, else 0
	passed    map[way][]float64 // packets per second
	receiving map[way][]float64 // nanoseconds a packet that all receiving takes
	program   map[way][]float64 // nanoseconds a packet that the program takes
}

// row measures a row, each way in turn; where the role has no such mix there is none.
func (b *placedBench) row(ctx context.Context, d direction, label string, crowd int, m mix) error {
	r := &placedRow{direction: d, label: label, crowd: crowd, passed: map[way][]float64{}, receiving: map[way][]float64{}, program: map[way][]float64{}}
	before := map[way]taken{}
	for _, p := range b.places {
		frames := b.frames(p, d, m)
		if frames == nil {
			return nil
		}
		p.count = copy(p.table, frames)
		if !p.way.ours() {
			continue
		}
		var err error
		if before[p.way], err = p.counts(ctx); err != nil {
			return err
		}
	}
	for round := range b.form.rounds {
		for i := range b.places {
			if err := errors.Join(ctx.Err(), b.slice(r, b.places[(i+round)%len(b.places)])); err != nil {
				return err
			}
		}
		if err := b.timed(ctx, r); err != nil {
			return err
		}
	}
	for _, p := range b.places {
		if report.Measured(r.passed[p.way]...).Median() == 0 {
			b.rep.Fault("%s passed nothing, %s, %s %s", p.way.title, d, label, b.entries)
		}
		if p.way.ours() {
			now, err := p.counts(ctx)
			if err != nil {
				return err
			}
			now.since(before[p.way]).judge(p.way, b.rep)
		}
	}
	b.done = append(b.done, r)
	return nil
}

// load sends for a slice, once the caches are as they are in the midst of such a load.
func (b *placedBench) load(p *place, d direction, length time.Duration) (ran, error) {
	lane := p.lane(d)
	lane.First, lane.Count, lane.Start = p.first, p.count, rand.IntN(p.count)
	return p.run(d, lane, load.Pace{Rate: fullLoad.Rate, Batch: fullLoad.Batch, Time: length})
}

// slice measures rate and receiving of one way.
func (b *placedBench) slice(r *placedRow, p *place) error {
	if b.form.warm > 0 {
		if _, err := b.load(p, r.direction, b.form.warm); err != nil {
			return err
		}
	}
	before, err := b.receiving.Time()
	if err != nil {
		return err
	}
	got, err := b.load(p, r.direction, b.form.slice)
	if err != nil {
		return fmt.Errorf("%s: %w", p.way.title, err)
	}
	after, err := b.receiving.Time()
	if err != nil {
		return err
	}
	r.passed[p.way] = append(r.passed[p.way], got.rate().passed)
	if got.arrived > 0 {
		r.receiving[p.way] = append(r.receiving[p.way], float64((after-before).Nanoseconds())/float64(got.arrived))
	}
	return nil
}

// timed measures the programs: in slices of their own, for timing slows all of them.
func (b *placedBench) timed(ctx context.Context, r *placedRow) (err error) {
	timing, err := load.TimeRuns()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, timing.Close()) }()
	for _, p := range b.places {
		program := p.programs[r.direction]
		if program == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if b.form.warm > 0 {
			if _, err := b.load(p, r.direction, b.form.warm); err != nil {
				return err
			}
		}
		before, err := load.WorkOf(program)
		if err != nil {
			return err
		}
		got, err := b.load(p, r.direction, b.form.slice)
		if err != nil {
			return fmt.Errorf("%s: %w", p.way.title, err)
		}
		after, err := load.WorkOf(program)
		if err != nil {
			return err
		}
		work := after.Since(before)
		if work.Runs < got.arrived {
			b.rep.Fault("the program of %s ran %d times for %d packets, %s, %s", p.way.title, work.Runs, got.arrived, r.direction, r.label)
			continue
		}
		if work.Runs > 0 {
			r.program[p.way] = append(r.program[p.way], work.Each())
		}
	}
	return nil
}
