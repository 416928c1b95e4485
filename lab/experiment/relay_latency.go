// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of relay-latency. The papers send one packet per second; one per
// millisecond finds the relay just as idle.
const (
	latencyGap    = time.Millisecond
	latencySlice  = 40
	latencyRounds = 10
	latencyLimit  = time.Second // a packet that takes longer is lost
)

// latencySizes are those of the papers, in bytes of the IPv6 packet; 64 holds the
// sequence number just so.
var latencySizes = []int{64, 512, 1280}

// relayLatency is the experiment relay-latency.
var relayLatency = lab.Experiment{
	Name:      "relay-latency",
	Summary:   "latency of single packets through a relay: Isthmus, Miredo, plain kernel forwarding",
	NeedsRoot: true,
	Run:       runRelayLatency,
}

func runRelayLatency(ctx context.Context, e *lab.Env) error {
	r, done, err := startRelayPaths(ctx, e, "relay-latency")
	if err != nil {
		return err
	}
	defer done()
	rounds := latencyRounds
	if e.Runs > 0 {
		rounds = e.Runs
	}
	rep := relayReport("relay-latency", "Latency of single packets through one relay, bare veth")
	table := report.Table{
		Title:   "microseconds from the sender's call to the receiver's device: median / 99th percentile",
		Columns: []string{"IPv6 packet", "kernel forwarding", "Miredo", "Isthmus"},
	}
	for _, d := range []relayDirection{encapsulating, decapsulating} {
		for _, size := range latencySizes {
			e.Step("%s %d bytes: %d packets on each path, one per %v", d, size, rounds*latencySlice, latencyGap)
			measured, lost, err := r.latency(ctx, d, size, rounds)
			if err != nil {
				return err
			}
			label := fmt.Sprintf("%s, %d bytes", d, size)
			row := []string{label}
			for _, name := range []string{"kernel", "miredo", "isthmus"} {
				row = append(row, percentiles(measured[name]))
			}
			table.Rows = append(table.Rows, row)
			rep.addRatio(label, figureLatency, medians(measured["miredo"]), medians(measured["isthmus"]))
			rep.addKernelRatio(label, figureLatency, medians(measured["kernel"]), medians(measured["isthmus"]))
			if lost["isthmus"] > 0 {
				rep.Fault("%d of %d single packets were lost, %s", lost["isthmus"], rounds*latencySlice, label)
			}
		}
	}
	rep.Tables = append(rep.Tables, table)
	rep.Notes = append(rep.Notes, "Published, microseconds at 64/512/1280 bytes: NICI-Teredo 7.56/7.67/7.91 encapsulating and 8.47/8.71/8.93 decapsulating; "+
		"Miredo 28.55/29.45/30.26 and 27.94/28.76/29.69.")
	return finish(e, &rep.Report)
}

// latency measures one case on all paths in rounds of one slice each. It returns
// the latencies of each round by path, in microseconds, and how many packets were
// lost by path.
func (r *relayPaths) latency(ctx context.Context, d relayDirection, size, rounds int) (measured map[string][][]float64, lost map[string]int, err error) {
	measured, lost = map[string][][]float64{}, map[string]int{}
	for round := range rounds {
		for _, p := range r.paths {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			slice, err := p.single(d, size, uint64(round*latencySlice))
			if err != nil {
				return nil, nil, err
			}
			measured[p.name] = append(measured[p.name], slice)
			lost[p.name] += latencySlice - len(slice)
		}
	}
	return measured, lost, nil
}

// single sends one slice of packets, numbered from first.
func (p *relayPath) single(d relayDirection, size int, first uint64) ([]float64, error) {
	if err := p.touch(); err != nil {
		return nil, err
	}
	sender, tap, frame := p.fromHost, p.atClient, p.toClient(size)
	if d == decapsulating {
		sender, tap, frame = p.fromClient, p.atHost, p.toHost(size)
	}
	var sent []time.Time
	err := onOneCPU(func() (err error) {
		sent, err = sender.Stream(frame, first, latencySlice, latencyGap)
		return err
	})
	if err != nil {
		return nil, err
	}
	var slice []float64
	for i, at := range tap.Take(first, latencySlice, latencyLimit) {
		if !at.IsZero() {
			slice = append(slice, float64(at.Sub(sent[i]))/float64(time.Microsecond))
		}
	}
	return slice, nil
}

// medians are the medians of the rounds that have samples.
func medians(rounds [][]float64) []float64 {
	var m []float64
	for _, r := range rounds {
		if len(r) > 0 {
			m = append(m, report.Measured(r...).Median())
		}
	}
	return m
}

// percentiles prints the median and the 99th percentile of all rounds together.
func percentiles(rounds [][]float64) string {
	all := slices.Sorted(slices.Values(slices.Concat(rounds...)))
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f / %.1f", report.Measured(all...).Median(), all[(len(all)*99-1)/100])
}
