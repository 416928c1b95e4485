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
	plan := naptPlan{Ways: scaleCrowdWays, Crowd: true, More: crowdLines(fmt.Sprintf("udp_timeout = %q\n", form.timeout))}
	l, done, err := startLoadedNAPT(ctx, e, scaleName+"-crowd", plan, most)
	if err != nil {
		return err
	}
	defer done()
	table := report.Table{
		Title:   "thousand packets per second, each of another session in random order, 64 bytes, to IPv4",
		Columns: []string{"sessions"},
	}
	for _, w := range scaleCrowdWays {
		table.Columns = append(table.Columns, w.title)
	}
	table.Columns = append(table.Columns, "tc / forwarding", "XDP / forwarding")
	for _, p := range l.paths {
		if p.way.ours() {
			e.Step("%s: meeting %d networks", p.way.title, crowdNetworks)
			if err := l.meet(ctx, p, most); err != nil {
				return err
			}
		}
	}
	for _, n := range append([]int{1}, form.crowds...) {
		row, err := l.crowdRow(ctx, e, rep, n, form.rounds)
		if err != nil {
			return err
		}
		table.Rows = append(table.Rows, row)
	}
	rep.Tables = append(rep.Tables, table)
	if err := l.bytes(ctx, rep, most, empty); err != nil {
		return err
	}
	return errors.Join(l.expiry(ctx, e, rep, form.timeout), l.healthy())
}

// crowdRow measures with so many sessions in the tables.
func (l *loadedNAPT) crowdRow(ctx context.Context, e *lab.Env, rep *report.Report, n, rounds int) ([]string, error) {
	for _, p := range l.paths {
		if !p.way.ours() || n == 1 {
			continue
		}
		e.Step("%s: making %d sessions", p.way.title, n)
		if err := l.fill(ctx, p, n); err != nil {
			return nil, err
		}
	}
	for _, p := range l.paths[:len(l.paths)-1] { // those that were filled first: none shall end yet
		if p.way.ours() && n > 1 {
			if err := l.pass(ctx, p, n, fillRate); err != nil {
				return nil, err
			}
		}
	}
	e.Step("%d sessions: %d rounds of %v on each way", n, rounds, loadSlice)
	c, err := l.rounds(ctx, toIPv4, load.MinTaggedSize, rounds, func(p *naptPath) (rate, error) {
		return l.rate(p, toIPv4, l.crowd(p, 0, n, rand.IntN(n)), fullLoad)
	})
	if err != nil {
		return nil, err
	}
	row := []string{fmt.Sprint(n)}
	for _, w := range scaleCrowdWays {
		row = append(row, thousands(c.passed[w]))
		if slices.Max(c.passed[w]) == 0 {
			rep.Fault("%s passed nothing with %d sessions", w.title, n)
		}
	}
	tc, xdp := pairs(c.passed[wayKernel], c.passed[wayTC]), pairs(c.passed[wayKernel], c.passed[wayXDP])
	rep.Figures = append(rep.Figures,
		report.Figure{Name: fmt.Sprintf("%d sessions: %s", n, figureRateTC), Decimals: 2, Isthmus: report.Measured(tc...)},
		report.Figure{Name: fmt.Sprintf("%d sessions: %s", n, figureRateXDP), Decimals: 2, Isthmus: report.Measured(xdp...)},
	)
	return append(row, spread(tc, 2), spread(xdp, 2)), nil
}

// bytes tells what a session takes: memory beyond that of a translator without room.
func (l *loadedNAPT) bytes(ctx context.Context, rep *report.Report, most int, empty map[way]int) error {
	for _, p := range l.paths {
		if !p.way.ours() {
			continue
		}
		s, err := p.scale(ctx, l.naptPaths)
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
func (l *loadedNAPT) expiry(ctx context.Context, e *lab.Env, rep *report.Report, timeout time.Duration) error {
	silent := time.Now()
	e.Step("waiting until all sessions have ended, %v from now", timeout)
	before, gone := map[way][]float64{}, map[way]time.Duration{}
	during := map[way][]float64{}
	for next := silent; len(gone) < len(l.paths)-1; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Since(silent) > timeout+expiryLimit {
			break
		}
		asking := time.Since(silent) > timeout-expiryPoll // counting costs time, too
		for _, p := range l.paths {
			times, err := l.pings(ctx, p)
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
		for _, p := range l.paths {
			if _, ended := gone[p.way]; ended || !p.way.ours() {
				continue
			}
			s, err := p.scale(ctx, l.naptPaths)
			if err != nil {
				return err
			}
			if s.Sessions <= expiryLeft {
				gone[p.way] = time.Since(silent) - timeout
			}
		}
	}
	l.describeExpiry(rep, timeout, gone, before, during)
	return nil
}

// pings is a slice of round trips in microseconds.
func (l *loadedNAPT) pings(ctx context.Context, p *naptPath) (times []float64, err error) {
	p.echoes.Forget(0, pingSlice)
	err = onCPU(senderCPU, func() error { return p.sender.Echoes(p.echo(load.MinEcho), 0, pingSlice, pingGap) })
	if err != nil {
		return nil, err
	}
	p.echoes.Await(ctx, 0, pingSlice, pingLimit)
	for _, t := range p.echoes.Latencies(0, pingSlice) {
		times = append(times, float64(t)/float64(time.Microsecond))
	}
	return times, nil
}

// describeExpiry adds the figures of the end.
func (l *loadedNAPT) describeExpiry(rep *report.Report, timeout time.Duration, gone map[way]time.Duration, before, during map[way][]float64) {
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
	for _, p := range l.paths {
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
