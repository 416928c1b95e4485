// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// Choices of napt-latency.
const (
	naptLatencyName   = "napt-latency"
	naptLatencyGap    = 300 * time.Microsecond // time for a program to come to rest
	naptLatencySlice  = 40                     // round trips
	naptLatencyRounds = 60
	naptLatencyLimit  = answerWait // an answer that takes longer is lost
)

// naptSizes are those of the 1998 table, in bytes of the IPv6 packet.
var naptSizes = []int{64, 128, 256, 512, 1024, 1440}

// naptLatencyWays take turns in each round.
var naptLatencyWays = []way{wayDirect4, wayDirect6, wayKernel, wayTayga, wayUser, wayTC, wayXDP}

// naptLatency is the experiment napt-latency.
var naptLatency = lab.Experiment{
	Name:      naptLatencyName,
	Summary:   "round trips through a translator: tc, XDP and user space, tayga, plain kernel forwarding (1998, table 1)",
	NeedsRoot: true,
	Needs:     []string{"tayga"},
	Run:       runNAPTLatency,
}

// naptLatencyCase is one size, measured on all ways.
type naptLatencyCase struct {
	size   int
	rounds map[way][][]float64 // microseconds
	lost   map[way]int
}

func runNAPTLatency(ctx context.Context, e *lab.Env) (err error) {
	rounds := naptLatencyRounds
	if e.Runs > 0 {
		rounds = e.Runs
	}
	n, done, err := startNAPT(ctx, e, naptLatencyName, naptPlan{Ways: naptLatencyWays})
	if err != nil {
		return err
	}
	defer done()
	var cases []*naptLatencyCase
	for _, size := range naptSizes {
		e.Step("%d bytes: %d round trips on each way, one per %v", size, rounds*naptLatencySlice, naptLatencyGap)
		c, err := n.latency(ctx, size, rounds)
		if err != nil {
			return err
		}
		cases = append(cases, c)
	}
	if err := n.healthy(); err != nil {
		return err
	}
	rep := naptLatencyReport(cases, rounds)
	if err := n.checkPaths(ctx, rep); err != nil {
		return err
	}
	if e.Dir != "" {
		if err := writeRoundTrips(filepath.Join(e.Dir, naptLatencyName+"-samples.csv"), cases); err != nil {
			return err
		}
	}
	return finish(e, rep)
}

// startNAPT starts a lab with the translators' topology; done ends it.
func startNAPT(ctx context.Context, e *lab.Env, name string, plan naptPlan) (n *naptPaths, done func(), err error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	e.Step("starting the translators beside a plain router")
	if n, err = newNAPTPaths(ctx, e, l, plan); err != nil {
		_ = l.Close()
		return nil, nil, err
	}
	return n, func() { n.close(); _ = l.Close() }, nil
}

// latency measures one size on all ways, in rounds of one slice each.
func (n *naptPaths) latency(ctx context.Context, size, rounds int) (*naptLatencyCase, error) {
	c := &naptLatencyCase{size: size, rounds: map[way][][]float64{}, lost: map[way]int{}}
	for round := range rounds {
		for i := range n.paths {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// The order changes from round to round: nobody always follows the same.
			p := n.paths[(i+round)%len(n.paths)]
			slice, err := p.roundTrips(ctx, size, uint64(round*naptLatencySlice))
			if err != nil {
				return nil, err
			}
			c.rounds[p.way] = append(c.rounds[p.way], slice)
			c.lost[p.way] += naptLatencySlice - len(slice)
		}
	}
	return c, nil
}

// roundTrips sends one slice of echo requests, numbered from first, and returns
// the times until their answers in microseconds.
func (p *naptPath) roundTrips(ctx context.Context, size int, first uint64) ([]float64, error) {
	p.echoes.Forget(first, naptLatencySlice)
	err := onCPU(senderCPU, func() error {
		return p.sender.Echoes(p.echo(size), first, naptLatencySlice, naptLatencyGap)
	})
	if err != nil {
		return nil, err
	}
	p.echoes.Await(ctx, first, naptLatencySlice, naptLatencyLimit)
	var slice []float64
	for _, t := range p.echoes.Latencies(first, naptLatencySlice) {
		slice = append(slice, float64(t)/float64(time.Microsecond))
	}
	return slice, nil
}

// writeRoundTrips writes every single round trip.
func writeRoundTrips(path string, cases []*naptLatencyCase) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("the folder for results cannot be made: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("the samples cannot be written: %w", err)
	}
	w := csv.NewWriter(f)
	_ = w.Write([]string{"bytes", "way", "round", "microseconds"})
	for _, c := range cases {
		for _, way := range naptLatencyWays {
			for round, slice := range c.rounds[way] {
				for _, t := range slice {
					_ = w.Write([]string{strconv.Itoa(c.size), way.name, strconv.Itoa(round), strconv.FormatFloat(t, 'f', 3, 64)})
				}
			}
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		f.Close()
		return fmt.Errorf("the samples cannot be written: %w", err)
	}
	return f.Close()
}
