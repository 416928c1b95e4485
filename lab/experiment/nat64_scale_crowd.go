// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the crowd's end.
const (
	expiryLimit = 60 * time.Second // beyond the sessions' time: an end that does not come
	expiryPoll  = time.Second
	expiryLeft  = 2 // sessions that stay: the ping's, and one that a straggler made
	pingGap     = time.Millisecond
	pingSlice   = 250         // pings
	pingLimit   = time.Second // an answer that takes longer is not in the figures
)

// scaleCrowd fills the tables, measures with them full, and watches their end.
func scaleCrowd(ctx context.Context, e *lab.Env, rep *report.Report, form scaleForm, empty map[way]int) error {
	most := form.crowds[len(form.crowds)-1]
	c := translating{Crowd: true, More: crowdLines(fmt.Sprintf("udp_timeout = %q\n", form.timeout))}
	r, done, err := startTranslators(ctx, e, scaleName+"-crowd", c, scaleCrowdWays, most)
	if err != nil {
		return err
	}
	defer done()
	table := wayTable("thousand packets per second, each of another session in random order, 64 bytes, to IPv4", scaleCrowdWays, "sessions")
	table.Columns = append(table.Columns, "tc / forwarding", "XDP / forwarding")
	costs := cpuTable("sessions", scaleCrowdWays)
	for _, p := range r.paths {
		if p.way.ours() {
			e.Step("%s: meeting %d networks", p.way.title, crowdNetworks)
			if err := r.meetCrowd(ctx, p, most); err != nil {
				return err
			}
		}
	}
	for _, n := range append([]int{1}, form.crowds...) {
		row, cost, err := r.crowdRow(ctx, e, rep, n, form.rounds)
		if err != nil {
			return err
		}
		table.Rows, costs.Rows = append(table.Rows, row), append(costs.Rows, cost)
	}
	rep.Tables = append(rep.Tables, table, costs)
	if err := r.bytes(ctx, rep, most, empty); err != nil {
		return err
	}
	return errors.Join(r.expiry(ctx, e, rep, form.timeout), r.healthy())
}

// crowdRow measures with so many sessions in the tables, and returns rates and what they cost.
func (r *rig) crowdRow(ctx context.Context, e *lab.Env, rep *report.Report, n, rounds int) (row, cost []string, err error) {
	for _, p := range r.paths {
		if !p.way.ours() || n == 1 {
			continue
		}
		e.Step("%s: making %d sessions", p.way.title, n)
		if err := r.fill(ctx, p, n); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range r.paths[:len(r.paths)-1] { // those that were filled first: none shall end yet
		if p.way.ours() && n > 1 {
			if err := r.pass(ctx, p, n, fillRate); err != nil {
				return nil, nil, err
			}
		}
	}
	e.Step("%d sessions: %d rounds of %v on each way", n, rounds, loadSlice)
	c := newRateCase(toIPv4, load.MinTaggedSize)
	err = r.rounds(ctx, c, rounds, func(p *rigPath) (rate, error) {
		return r.loaded(p, toIPv4, []load.Lane{p.crowd(0, n, rand.IntN(n))}, fullLoad)
	})
	if err != nil {
		return nil, nil, err
	}
	row = c.passedRow(scaleCrowdWays, fmt.Sprint(n))
	for _, w := range scaleCrowdWays {
		if !c.works[w] {
			rep.Fault("%s passed nothing with %d sessions", w.title, n)
		}
	}
	tc, xdp := pairs(c.passed[wayKernel], c.passed[wayTC]), pairs(c.passed[wayKernel], c.passed[wayXDP])
	rep.Figures = append(rep.Figures,
		report.Figure{Name: fmt.Sprintf("%d sessions: %s", n, figureRateTC), Decimals: 2, Isthmus: report.Measured(tc...)},
		report.Figure{Name: fmt.Sprintf("%d sessions: %s", n, figureRateXDP), Decimals: 2, Isthmus: report.Measured(xdp...)},
	)
	return append(row, spread(tc, 2), spread(xdp, 2)), c.cpuRow(fmt.Sprint(n), scaleCrowdWays), nil
}

// bytes reports what a session takes: memory beyond that of a translator without room.
func (r *rig) bytes(ctx context.Context, rep *report.Report, most int, empty map[way]int) error {
	for _, p := range r.paths {
		if !p.way.ours() {
			continue
		}
		s, err := p.scale(ctx)
		if err != nil {
			return err
		}
		full, err := processMemory(p.process.PID())
		if err != nil {
			return err
		}
		f := report.Figure{
			Name: p.way.title + ": " + figureSessionBytes, Unit: "bytes",
			Isthmus: report.Measured(float64(full-empty[p.way]) / float64(s.Sessions)),
		}
		if most == crowdSize {
			f.Must = must(scaleName, figureSessionBytes)
		} else {
			// The tables have room for a million, which few would have to answer for.
			f.Name = fmt.Sprintf("%s: memory of tables with room for a million sessions", p.way.title)
			f.Unit, f.Isthmus = "MB", report.Measured(float64(full-empty[p.way])/1e6)
		}
		rep.Figures = append(rep.Figures, f)
		rep.Notes = append(rep.Notes, fmt.Sprintf("%s holds %d sessions of %d bindings and %d networks.", p.way.title, s.Sessions, s.Bindings, s.Subscribers))
	}
	return nil
}

// expiry watches all sessions end at once, and what a ping notices of that.
func (r *rig) expiry(ctx context.Context, e *lab.Env, rep *report.Report, timeout time.Duration) error {
	silent := time.Now()
	e.Step("waiting until all sessions have ended, %v from now", timeout)
	before, gone := map[way][]float64{}, map[way]time.Duration{}
	during := map[way][]float64{}
	for next := silent; len(gone) < len(r.paths)-1; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Since(silent) > timeout+expiryLimit {
			break
		}
		asking := time.Since(silent) > timeout-expiryPoll // counting costs time, too
		for _, p := range r.paths {
			times, err := p.echoes(ctx, load.MinEcho, 0, pingSlice, pingGap, pingLimit)
			if err != nil {
				return err
			}
			if asking {
				during[p.way] = append(during[p.way], times...)
			} else {
				before[p.way] = append(before[p.way], times...)
			}
		}
		if !asking || time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(expiryPoll)
		for _, p := range r.paths {
			if _, ended := gone[p.way]; ended || !p.way.ours() {
				continue
			}
			s, err := p.scale(ctx)
			if err != nil {
				return err
			}
			if s.Sessions <= expiryLeft {
				gone[p.way] = time.Since(silent) - timeout
			}
		}
	}
	r.describeExpiry(rep, timeout, gone, before, during)
	return nil
}

// describeExpiry adds the figures of the end.
func (r *rig) describeExpiry(rep *report.Report, timeout time.Duration, gone map[way]time.Duration, before, during map[way][]float64) {
	t := report.Table{
		Title:   "round trips while all sessions end, µs: median / 99.9 % / longest",
		Columns: []string{"way", "before", "while they end"},
		Notes:   []string{fmt.Sprintf("One ping each %v; sessions end %v after their last packet.", pingGap, timeout)},
	}
	summary := func(v []float64) string {
		if len(v) == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f / %.0f / %.0f", percentile(v, 50), percentile(v, 99.9), slices.Max(v))
	}
	for _, p := range r.paths {
		t.Rows = append(t.Rows, []string{p.way.title, summary(before[p.way]), summary(during[p.way])})
		if !p.way.ours() {
			continue
		}
		after, ended := gone[p.way]
		if !ended {
			rep.Fault("%s: sessions are still there %v after their time", p.way.title, expiryLimit)
			continue
		}
		rep.Figures = append(rep.Figures, report.Figure{
			Name: p.way.title + ": " + figureExpiry, Unit: "s", Decimals: 1, Isthmus: report.Measured(max(after.Seconds(), 0)), Must: must(scaleName, figureExpiry),
		}, report.Figure{
			Name: p.way.title + ": longest round trip while all sessions end", Unit: "ms", Decimals: 2, Isthmus: report.Measured(slices.Max(append(during[p.way], 0)) / 1e3),
		})
	}
	rep.Tables = append(rep.Tables, t)
}
