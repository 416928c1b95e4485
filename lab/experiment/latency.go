// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// latencySlice is how many single packets each way sends in its turn.
const latencySlice = 40

// latencyCase is one direction and size, or one size of round trips, measured on all ways.
type latencyCase struct {
	direction direction // "" of round trips
	size      int
	rounds    map[way][][]float64 // microseconds
	lost      map[way]int
}

// label names the case in tables.
func (c *latencyCase) label() string {
	if c.direction == "" {
		return fmt.Sprintf("%d bytes", c.size)
	}
	return fmt.Sprintf("%s, %d bytes", c.direction, c.size)
}

// latency measures one case on all ways, in rounds of one slice each.
func (r *rig) latency(ctx context.Context, d direction, size, rounds int) (*latencyCase, error) {
	c := &latencyCase{direction: d, size: size, rounds: map[way][][]float64{}, lost: map[way]int{}}
	return c, inTurn(ctx, rounds, len(r.paths), func(round, at int) error {
		p := r.paths[at]
		slice, err := r.single(ctx, p, d, size, uint64(round*latencySlice))
		if err != nil {
			return fmt.Errorf("%s: %w", p.way.title, err)
		}
		c.rounds[p.way] = append(c.rounds[p.way], slice)
		c.lost[p.way] += latencySlice - len(slice)
		return nil
	})
}

// latencies measures all cases.
func (r *rig) latencies(ctx context.Context, e *lab.Env, directions []direction, sizes []int, rounds int) (cases []*latencyCase, err error) {
	for _, d := range directions {
		for _, size := range sizes {
			e.Step("%s %d bytes: %d packets on each path, one per %v", d, size, rounds*latencySlice, latencyGap)
			c, err := r.latency(ctx, d, size, rounds)
			if err != nil {
				return nil, err
			}
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// judge finds single packets that Isthmus lost.
func (c *latencyCase) judge(rep *report.Report, ways []way) {
	for _, w := range ways {
		if w.ours() && c.lost[w] > 0 {
			rep.Fault("%s lost %d of %d single packets, %s", w.title, c.lost[w], len(c.rounds[w])*latencySlice, c.label())
		}
	}
}

// median are the medians of a way's rounds.
func (c *latencyCase) median(w way) []float64 { return medians(c.rounds[w]) }

// draw adds the ways to a picture.
func (c *latencyCase) draw(h *report.Histogram, ways []way) {
	for _, w := range routed(ways) {
		h.Add(w.title, w.role, slices.Concat(c.rounds[w]...))
	}
}

// Facts of experiments that time single packets.
const (
	latencySlicesNote = "Ratios are medians of the ratios of the medians of slices that followed each other (lowest to highest)."
	latencyStampsNote = "A program of eBPF stamps each packet and hands it to the first cable as the driver of a network card would: one that a host sends would be copied for XDP first, and for nobody else. Another stamps it at the far end, the same on all ways. Two cables lie between, and one in the column of the bare hop."
	latencySenderNote = "The sender waits for the next packet on its CPU, where the kernel receives and forwards, too: caches are warm on all ways, and nobody has to be woken but programs in user space."
)

// latencyFacts say how single packets are sent.
func latencyFacts(rep *report.Report) {
	rep.Fact("sender", "live XDP frames, one at a time, from CPU %d", senderCPU)
	rep.Fact("offloads", "off at all ends, but for GRO at the routers' ports, which gives them NAPI; no receiving threads: what forwards in the kernel runs in the sender's call")
}

// timed has n packets sent, numbered from first, from the sender's CPU, and returns the
// times of those that a meter has seen at both ends, in microseconds.
func timed(ctx context.Context, meter *load.Meter, first uint64, n int, limit time.Duration, send func() error) (slice []float64, err error) {
	meter.Forget(first, n)
	if err := onCPU(senderCPU, send); err != nil {
		return nil, err
	}
	meter.Await(ctx, first, n, limit)
	for _, t := range meter.Latencies(first, n) {
		slice = append(slice, float64(t)/float64(time.Microsecond))
	}
	return slice, nil
}

// setUpProbe gives a prober a target at each end of each way. The routers' ports must take
// frames that are redirected to them; they are received where the prober runs.
func (r *rig) setUpProbe(l *lab.Lab) (err error) {
	if r.prober, err = load.NewProber(); err != nil {
		return err
	}
	if err := r.aim(l, r.prober); err != nil {
		return err
	}
	for _, p := range r.paths {
		p.toRight.DepartBy(r.prober)
		p.toLeft.DepartBy(r.prober)
		if p.router == nil {
			continue
		}
		if err := errors.Join(p.router.EnableGRO("in6"), p.router.EnableGRO("out4")); err != nil {
			return err
		}
	}
	return nil
}

// medians are the medians of the rounds that have samples.
func medians(rounds [][]float64) []float64 {
	m := make([]float64, len(rounds))
	for i, r := range rounds {
		if len(r) > 0 {
			m[i] = report.Measured(r...).Median()
		}
	}
	return m
}

// percentilesTable holds median, 99 % and 99.9 % of all samples.
func percentilesTable(what string, cases []*latencyCase, ways []way) report.Table {
	t := wayTable(what+", µs: median / 99 % / 99.9 %", ways, "IPv6 packet")
	for _, c := range cases {
		t.Rows = append(t.Rows, cells(ways, func(w way) string {
			all := slices.Concat(c.rounds[w]...)
			if len(all) == 0 {
				return "-"
			}
			return fmt.Sprintf("%.2f / %.1f / %.1f", percentile(all, 50), percentile(all, 99), percentile(all, 99.9))
		}, c.label()))
	}
	return t
}

// writeSamples writes every single sample into the folder of results, if there is one.
func writeSamples(e *lab.Env, name string, cases []*latencyCase, ways []way) error {
	if e.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(e.Dir, 0o755); err != nil {
		return fmt.Errorf("the folder for results cannot be made: %w", err)
	}
	f, err := os.Create(filepath.Join(e.Dir, name+"-samples.csv"))
	if err != nil {
		return fmt.Errorf("the samples cannot be written: %w", err)
	}
	defer f.Close()
	w := csv.NewWriter(f)
	oneWay := cases[0].direction != ""
	write := func(d string, cells ...string) {
		if oneWay {
			cells = slices.Insert(cells, 0, d)
		}
		_ = w.Write(cells)
	}
	write("direction", "bytes", "way", "round", "microseconds")
	for _, c := range cases {
		for _, way := range ways {
			for round, slice := range c.rounds[way] {
				for _, t := range slice {
					write(string(c.direction), strconv.Itoa(c.size), way.name, strconv.Itoa(round), strconv.FormatFloat(t, 'f', 3, 64))
				}
			}
		}
	}
	w.Flush()
	if err := errors.Join(w.Error(), f.Close()); err != nil {
		return fmt.Errorf("the samples cannot be written: %w", err)
	}
	return nil
}
