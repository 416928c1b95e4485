// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of teredo-peers.
const (
	peersName     = "teredo-peers"
	manyPeers     = 1_000_000
	fewPeers      = 100_000 // in short form
	floodTime     = 5 * time.Second
	floodTimeFew  = time.Second
	crowdSlice    = 500 * time.Millisecond
	defaultBudget = 10_000 // bubbles a second, as the reference configuration has it
)

// teredoPeers is the experiment.
var teredoPeers = lab.Experiment{
	Name:      peersName,
	Summary:   "a million peers: memory, times, the longest pause, traffic beside a flood",
	NeedsRoot: true,
	Run:       runTeredoPeers,
}

// runTeredoPeers measures the table in this process, then a relay. With a number
// of runs it takes the short form.
func runTeredoPeers(ctx context.Context, e *lab.Env) error {
	n, d := manyPeers, floodTime
	if e.Runs > 0 {
		n, d = fewPeers, floodTimeFew
	}
	rep := &report.Report{Experiment: peersName, Title: fmt.Sprintf("A relay with %d peers", n), Peer: "Miredo", Notes: []string{
		machine(),
		"Miredo 1.2.6's peer list, measured apart: 127 bytes a peer, 742 ns a look-up (685 to 805) at a million; its page: one million peers in 64 MB.",
		fmt.Sprintf("Times of the table are those of batches of %d operations, by one core.", peerBatch),
		"A pause is the longest time for which the engine was busy with one batch, slice of a sweep, or slice of a listing, in processor time of its thread.",
	}}
	e.Step("the table with %d peers, in this process", n)
	if err := reportTable(rep, n); err != nil {
		return err
	}
	if err := reportRelay(ctx, e, rep, n, d); err != nil {
		return err
	}
	return finish(e, rep)
}

// reportTable adds the figures of the table and the engine.
func reportTable(rep *report.Report, n int) error {
	times, err := measureTable(n)
	if err != nil {
		return err
	}
	p, err := measurePauses(n)
	if err != nil {
		return err
	}
	table := report.Table{Title: "nanoseconds an operation", Columns: []string{"operation", "median", "99 %", "99.9 %"}}
	for _, row := range []struct {
		name    string
		samples []float64
	}{{"insert", times.insert}, {"look up", times.lookup}, {"evict a stale peer and insert", times.evict}} {
		line := []string{row.name}
		for _, at := range []float64{50, 99, 99.9} {
			line = append(line, fmt.Sprintf("%.0f", percentile(row.samples, at)))
		}
		table.Rows = append(table.Rows, line)
	}
	worst := report.Table{Title: "longest pause, ms", Columns: []string{"while", "ms"}}
	for _, row := range []struct {
		name string
		took time.Duration
	}{{"peers are new", p.fill}, {"peers have traffic", p.traffic}, {"all peers age at once", p.sweep}, {"peers are listed", p.list}} {
		worst.Rows = append(worst.Rows, []string{row.name, fmt.Sprintf("%.2f", float64(row.took)/1e6)})
	}
	rep.Tables = append(rep.Tables, table, worst)
	rep.Figures = append(rep.Figures,
		report.Figure{Name: figureLookup, Unit: "ns", Peer: report.None("see note"), Isthmus: report.Measured(percentile(times.lookup, 50)), Must: must(peersName, figureLookup)},
		report.Figure{Name: figurePause, Unit: "ms", Decimals: 2, Isthmus: report.Milliseconds(p.worst()), Must: must(peersName, figurePause)},
	)
	return nil
}

// reportRelay adds the figures of a relay process.
func reportRelay(ctx context.Context, e *lab.Env, rep *report.Report, n int, d time.Duration) (err error) {
	c, err := newCrowd(ctx, e, peersName, wayUser, 0)
	if err != nil {
		return err
	}
	defer closing(&err, c.close)
	empty, err := c.empty(ctx, residentMemory)
	if err != nil {
		return err
	}
	e.Step("starting a relay, and making %d clients known to it", n)
	if err := c.start(ctx, n); err != nil {
		return err
	}
	if err := c.fill(ctx, goodClients); err != nil {
		return err
	}
	one, err := c.throughput(1, crowdSlice)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := c.fill(ctx, n); err != nil {
		return err
	}
	took := time.Since(start)
	full, err := residentMemory(c.process.PID())
	if err != nil {
		return err
	}
	all, err := c.throughput(n, crowdSlice)
	if err != nil {
		return err
	}
	rep.Figures = append(rep.Figures,
		report.Figure{Name: figurePeersMemory, Unit: "MiB", Decimals: 1, Peer: report.None("see note"),
			Isthmus: report.Measured(float64(full-empty) / (1 << 20)), Must: must(peersName, figurePeersMemory)},
		report.Figure{Name: "bytes a peer", Decimals: 0, Isthmus: report.Measured(float64(full-empty) / float64(n))},
		report.Figure{Name: "packets a second from all peers at random / from one", Decimals: 2, Isthmus: report.Measured(all / one)},
	)
	rep.Notes = append(rep.Notes, fmt.Sprintf("The relay met its clients in %.1f s, each by a packet, a bubble and an answer.", took.Seconds()))
	return c.reportFloods(ctx, e, rep, n, d)
}

// reportFloods adds what is lost beside floods, under the default budget of
// bubbles, which a reload brings in: it must cost no peer either.
func (c *crowd) reportFloods(ctx context.Context, e *lab.Env, rep *report.Report, n int, d time.Duration) error {
	if err := c.limit(ctx, n, defaultBudget); err != nil {
		return err
	}
	before, err := c.isthmus.values(ctx)
	if err != nil {
		return err
	}
	for i, f := range []flood{noFlood, datagrams, newClients} {
		e.Step("%d good packets a second for %v, beside %s", goodRate, d, f)
		b, err := c.traffic(ctx, f, d, uint64(i+1)<<40)
		if err != nil {
			return err
		}
		rep.Figures = append(rep.Figures, report.Figure{
			Name: fmt.Sprintf("%s, beside %s", figureFloodLost, f), Isthmus: report.Measured(float64(b.lost)), Must: must(peersName, figureFloodLost),
		})
		note := fmt.Sprintf("Beside %s: %d good packets sent, %.0f a second, %d lost", f, b.sent, float64(b.sent)/b.took.Seconds(), b.lost)
		if b.bad > 0 {
			note += fmt.Sprintf("; %.0f packets a second of the flood, from %d forged sources", float64(b.bad)/b.took.Seconds(), floodNames)
		}
		rep.Notes = append(rep.Notes, note+".")
	}
	after, err := c.isthmus.values(ctx)
	if err != nil {
		return err
	}
	if before["trusted_peers"] != after["trusted_peers"] {
		rep.Fault("the relay trusted %v peers before the floods and %v after", before["trusted_peers"], after["trusted_peers"])
	}
	return nil
}
