// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// placedBench measures the rows of one experiment.
type placedBench struct {
	placed
	*placedWorld
	env       *lab.Env
	rep       *report.Report
	form      placedForm
	receiving *load.Usage
	done      []*placedRow
	changes   time.Duration // while routes changed
}

// rows measures all rows: those of the crowds, and beside the crowd in question those that
// take its cost apart. Few hosts and as many as in question are measured while other routes
// change too.
func (b *placedBench) rows(ctx context.Context) error {
	for _, n := range b.form.crowds {
		b.env.Step("%d %s", n, b.entries)
		if err := b.fill(ctx, n); err != nil {
			return err
		}
		for _, d := range []direction{toIPv4, toIPv6} {
			rows := []*placedRow{{direction: d, label: fmt.Sprint(n), crowd: n}}
			if n == b.form.few || n == b.form.apart {
				rows = append(rows, &placedRow{direction: d, label: fmt.Sprintf("%d, %d other routes change a second", n, churnRate), rest: rows[0]})
			}
			if err := b.measure(ctx, mix{entries: n, hosts: n}, rows...); err != nil {
				return err
			}
		}
		if n == b.form.apart {
			if err := b.apart(ctx); err != nil {
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
			if err := b.measure(ctx, c.mix, &placedRow{direction: d, label: c.label}); err != nil {
				return err
			}
		}
	}
	return b.joined(ctx, n)
}

// joined measures hosts that share one route, when the programs have found that they do.
func (b *placedBench) joined(ctx context.Context, n int) error {
	b.env.Step("one route for all IPv4 hosts")
	err := b.eachRouter((*place).joinRoutes)
	if err == nil {
		err = b.awaitJoined(ctx)
	}
	if err == nil {
		err = b.measure(ctx, mix{entries: n, hosts: n}, &placedRow{direction: toIPv4, label: fmt.Sprintf("%d, one route for all hosts", n)})
	}
	return errors.Join(err, b.eachRouter((*place).splitRoutes))
}

// placedRow is what was measured of a direction and a mix.
type placedRow struct {
	direction direction
	label     string
	crowd     int               // of the rows that differ in it alone, else 0
	rest      *placedRow        // of a row with changes of routes: the one without, else nil
	passed    map[way][]float64 // packets per second
	receiving map[way][]float64 // nanoseconds a packet that all receiving takes
	program   map[way][]float64 // nanoseconds a packet that the program takes
	works     map[way]bool      // something came, be it late
}

// measure measures rows of one direction and mix, each way and each row in turn; where the
// role has no such mix there is none.
func (b *placedBench) measure(ctx context.Context, m mix, rows ...*placedRow) (err error) {
	before := map[way]taken{}
	for _, p := range b.places {
		frames := b.frames(p, rows[0].direction, m)
		if frames == nil {
			return nil
		}
		p.count = copy(p.table, frames)
		if !p.way.ours() {
			continue
		}
		if before[p.way], err = p.counts(ctx); err != nil {
			return err
		}
	}
	if len(rows) > 1 {
		stop := b.churn(ctx)
		defer func() { err = errors.Join(err, stop()) }()
	}
	for _, r := range rows {
		r.passed, r.receiving, r.program = map[way][]float64{}, map[way][]float64{}, map[way][]float64{}
		r.works = map[way]bool{}
	}
	for round := range b.form.rounds {
		for i := range rows {
			if err := b.round(ctx, rows[(i+round)%len(rows)], len(rows) > 1); err != nil {
				return err
			}
		}
	}
	return b.judge(ctx, before, rows)
}

// round measures a row once, each way in turn. Where rows differ in whether routes change,
// each way has the time to look them up again before it is measured, and as long while they change.
func (b *placedBench) round(ctx context.Context, r *placedRow, changes bool) error {
	b.changing.Store(r.rest != nil)
	if r.rest != nil {
		defer func(begin time.Time) { b.changes += time.Since(begin) }(time.Now())
	}
	for _, at := range rand.Perm(len(b.places)) {
		p := b.places[at]
		if changes && b.form.warm > 0 {
			if _, err := b.load(p, r.direction, placedSettled); err != nil {
				return err
			}
		}
		if err := errors.Join(ctx.Err(), b.slice(r, p)); err != nil {
			return err
		}
	}
	return b.timed(ctx, r)
}

// judge notes what has failed.
func (b *placedBench) judge(ctx context.Context, before map[way]taken, rows []*placedRow) error {
	for _, p := range b.places {
		for _, r := range rows {
			if !r.works[p.way] {
				b.rep.Fault("%s passed nothing, %s, %s %s", p.way.title, r.direction, r.label, b.entries)
			}
		}
		if p.way.ours() {
			now, err := p.counts(ctx)
			if err != nil {
				return err
			}
			now.since(before[p.way]).judge(p.way, b.rep)
		}
	}
	b.done = append(b.done, rows...)
	return nil
}

// load sends for so long.
func (b *placedBench) load(p *place, d direction, length time.Duration) (ran, error) {
	lane := p.lane(d)
	lane.First, lane.Count, lane.Start = p.first, p.count, rand.IntN(p.count)
	got, err := p.run(d, lane, load.Pace{Rate: fullLoad.Rate, Batch: fullLoad.Batch, Time: length})
	if err != nil {
		return got, fmt.Errorf("%s: %w", p.way.title, err)
	}
	return got, nil
}

// around loads a way for a slice, once the caches are as they are in the midst of such a
// load, and reads a counter before and after.
func around[T any](b *placedBench, p *place, d direction, read func() (T, error)) (got ran, before, after T, err error) {
	if b.form.warm > 0 {
		if _, err = b.load(p, d, b.form.warm); err != nil {
			return got, before, after, err
		}
	}
	if before, err = read(); err != nil {
		return got, before, after, err
	}
	if got, err = b.load(p, d, b.form.slice); err != nil {
		return got, before, after, err
	}
	after, err = read()
	return got, before, after, err
}

// slice measures rate and receiving of one way.
func (b *placedBench) slice(r *placedRow, p *place) error {
	got, before, after, err := around(b, p, r.direction, b.receiving.Time)
	if err != nil {
		return err
	}
	r.passed[p.way] = append(r.passed[p.way], got.rate().passed)
	if got.arrived > 0 {
		r.works[p.way] = true
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
		got, before, after, err := around(b, p, r.direction, func() (load.Work, error) { return load.WorkOf(program) })
		if err != nil {
			return err
		}
		work := after.Since(before)
		if work.Runs+placedLate < got.arrived {
			b.rep.Fault("the program of %s ran %d times for %d packets, %s, %s", p.way.title, work.Runs, got.arrived, r.direction, r.label)
			continue
		}
		if work.Runs > 0 {
			r.program[p.way] = append(r.program[p.way], work.Each())
		}
	}
	return nil
}
