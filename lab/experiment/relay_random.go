// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the rows with random peers.
const (
	refreshRate = 600e3 // packets per second that make all peers recent
	refreshEach = 4     // packets of each, since some are lost
	refreshMost = 20    // runs at most
	longRun     = 10    // rounds from which on there are a million peers, and searches
)

// randomPeers adds the rows with many peers: each packet is of another peer, in
// random order, all made trusted by the protocol itself.
func randomPeers(ctx context.Context, e *lab.Env, rep *report.Report, rounds int) (err error) {
	numbers := []int{1, 1_000, 100_000, 1_000_000}
	if rounds < longRun {
		numbers = []int{1, 1_000, 10_000}
	}
	most := numbers[len(numbers)-1]
	sum := 0
	for _, n := range numbers {
		sum += n
	}
	c, err := newCrowd(ctx, e, throughputName+"-peers", wayXDP, sum)
	if err != nil {
		return err
	}
	defer closing(&err, c.close)
	empty, err := c.empty(ctx, processMemory)
	if err != nil {
		return err
	}
	e.Step("starting a relay, and making %d clients known to it", most)
	if err := c.start(ctx, most); err != nil {
		return err
	}
	start := time.Now()
	if err := c.fill(ctx, most); err != nil {
		return err
	}
	took := time.Since(start)
	if err := c.threads(); err != nil {
		return err
	}
	if c.usage, err = countCPU(c.process.PID()); err != nil {
		return err
	}
	full, err := processMemory(c.process.PID())
	if err != nil {
		return err
	}
	memory := report.Figure{Name: fmt.Sprintf("memory for %d peers, tables in the kernel included", most), Unit: "MB", Decimals: 1,
		Published: report.Measured(64), Isthmus: report.Measured(float64(full-empty) / 1e6)}
	if most == 1_000_000 {
		memory.Must = must(throughputName, figureMemory)
	}
	rep.Figures = append(rep.Figures, memory)
	rep.Notes = append(rep.Notes, fmt.Sprintf("The relay with %d peers met each by a packet, a bubble and an answer, in %.1f s.", most, took.Seconds()))
	firsts := c.table(numbers)
	return c.reportRandom(ctx, e, rep, numbers, firsts, rounds)
}

// table fills the generator's table: for each number the first so many clients in
// random order. It returns where they begin.
func (c *crowd) table(numbers []int) (firsts []int) {
	at := 0
	for _, n := range numbers {
		firsts = append(firsts, at)
		for i, number := range rand.Perm(n) {
			client, mapped := clientOf(number)
			c.generator.Peers()[at+i] = load.Peer{
				Client: client, IP: mapped.Addr().As4(), Port: portBytes(mapped),
			}
		}
		at += n
	}
	return firsts
}

// refresh has the relay hear all clients once more. It asks those first that have
// been silent for 30 seconds (RFC 4380 section 5.4.1), which is not what is measured.
func (c *crowd) refresh(first, n int) error {
	pace := load.Pace{Rate: refreshRate, Time: time.Duration(float64(n)/refreshRate*float64(time.Second)) + loadSlice}
	heard := uint64(0)
	for range refreshMost {
		r, err := c.over(toIPv6, c.lane(toIPv6, first, n), pace)
		if err != nil {
			return err
		}
		if heard += r.arrived; float64(heard) >= refreshEach*float64(n) {
			return nil
		}
	}
	return fmt.Errorf("only %d packets of %d clients came through the relay", heard, n)
}

// reportRandom measures the rows.
func (c *crowd) reportRandom(ctx context.Context, e *lab.Env, rep *report.Report, numbers, firsts []int, rounds int) error {
	table := report.Table{
		Title:   "Isthmus XDP, random peers, 64 bytes: thousand packets per second at full load",
		Columns: []string{"direction", "offered"},
	}
	for _, n := range numbers {
		table.Columns = append(table.Columns, fmt.Sprintf("%d peers", n))
	}
	last := len(numbers) - 1
	costs := cpuTable("direction", nil)
	costs.Columns = append(costs.Columns, table.Columns[2:]...)
	for _, d := range []direction{toIPv6, toIPv4} {
		e.Step("%s from %d to %d random peers: %d rounds", d, numbers[0], numbers[last], rounds)
		if err := c.refresh(firsts[last], numbers[last]); err != nil {
			return err
		}
		var offered []float64
		passed, cpu := make([][]float64, len(numbers)), make([][]float64, len(numbers))
		for range rounds {
			for i, n := range numbers {
				if err := ctx.Err(); err != nil {
					return err
				}
				got, err := c.over(d, c.lane(d, firsts[i], n), fullLoad)
				if err != nil {
					return err
				}
				r := got.rate()
				offered = append(offered, r.offered)
				passed[i], cpu[i] = append(passed[i], r.passed), append(cpu[i], r.cpu)
			}
		}
		row, cost := []string{string(d), thousands(offered)}, []string{string(d)}
		for i := range numbers {
			row, cost = append(row, thousands(passed[i])), append(cost, spread(cpu[i], 0))
		}
		table.Rows, costs.Rows = append(table.Rows, row), append(costs.Rows, cost)
		f := report.Figure{Name: fmt.Sprintf("%s: XDP, packets per second at %d random peers / at one", d, numbers[last]), Decimals: 2,
			Isthmus: report.Measured(pairs(passed[0], passed[last])...)}
		if numbers[last] == 1_000_000 {
			f.Must = must(throughputName, figureRandom)
		}
		rep.Figures = append(rep.Figures, f)
	}
	rep.Tables = append(rep.Tables, table, costs)
	return nil
}
