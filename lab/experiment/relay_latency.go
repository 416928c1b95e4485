// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// Choices of relay-latency. The papers send one packet per second; one per half
// millisecond finds the relay just as idle. The papers' 10,000 packets are 250
// rounds.
const (
	latencyName   = "relay-latency"
	latencyGap    = 500 * time.Microsecond
	latencySlice  = 40
	latencyRounds = 50
	latencyLimit  = answerWait // a packet that takes longer is lost
)

// latencySizes are those of the papers, in bytes of the IPv6 packet; 64 holds the
// sequence number just so.
var latencySizes = []int{64, 512, 1280}

// latencyWays take turns in each round.
var latencyWays = []way{wayBare, wayKernel, wayMiredo, wayUser, wayTC, wayXDP}

// relayLatency is the experiment relay-latency.
var relayLatency = lab.Experiment{
	Name:      latencyName,
	Summary:   "latency of single packets through a relay: XDP, tc and user space, Miredo, plain kernel forwarding",
	NeedsRoot: true,
	Needs:     []string{"miredo"},
	Run:       runRelayLatency,
}

// latencyCase is one direction and size, measured on all ways.
type latencyCase struct {
	direction direction
	size      int
	rounds    map[way][][]float64 // microseconds
	lost      map[way]int
}

// label names the case in tables.
func (c *latencyCase) label() string { return fmt.Sprintf("%s, %d bytes", c.direction, c.size) }

func runRelayLatency(ctx context.Context, e *lab.Env) error {
	r, done, err := startProbed(ctx, e, latencyName, latencyWays)
	if err != nil {
		return err
	}
	defer done()
	rounds := latencyRounds
	if e.Runs > 0 {
		rounds = e.Runs
	}
	var cases []*latencyCase
	for _, d := range []direction{toIPv4, toIPv6} {
		for _, size := range latencySizes {
			e.Step("%s %d bytes: %d packets on each path, one per %v", d, size, rounds*latencySlice, latencyGap)
			c, err := r.latency(ctx, d, size, rounds)
			if err != nil {
				return err
			}
			cases = append(cases, c)
		}
	}
	if err := r.healthy(); err != nil {
		return err
	}
	rep := latencyReport(cases, rounds)
	if err := r.checkPaths(ctx, rep); err != nil {
		return err
	}
	if e.Dir != "" {
		if err := writeSamples(filepath.Join(e.Dir, latencyName+"-samples.csv"), cases); err != nil {
			return err
		}
	}
	return finish(e, rep)
}

// probed is the relay topology with a prober.
type probed struct {
	*relayPaths
	prober *load.Prober
}

// startProbed starts the relay topology with a prober.
func startProbed(ctx context.Context, e *lab.Env, name string, ways []way) (r *probed, done func(), err error) {
	paths, end, err := startRelayPaths(ctx, e, name, ways)
	if err != nil {
		return nil, nil, err
	}
	r = &probed{relayPaths: paths}
	done = func() {
		end()
		if r.prober != nil {
			_ = r.prober.Close()
		}
	}
	if err := r.setUp(); err != nil {
		done()
		return nil, nil, err
	}
	return r, done, nil
}

// setUp gives the prober a target at each end of each path. The routers' ports must take
// frames that are redirected to them; they are received where the prober runs.
func (r *probed) setUp() (err error) {
	if r.prober, err = load.NewProber(); err != nil {
		return err
	}
	if err := r.host.Do(func() error { return r.prober.Anchor(idleLink) }); err != nil {
		return err
	}
	for i, p := range r.paths {
		p.toClient.DepartBy(r.prober)
		p.toHost.DepartBy(r.prober)
		err := errors.Join(
			r.host.Do(func() error { return r.prober.Target(2*i, p.way.name) }),
			r.client.Do(func() error { return r.prober.Target(2*i+1, p.way.name) }),
		)
		if err == nil && p.router != nil {
			err = errors.Join(p.router.EnableGRO("in6"), p.router.EnableGRO("out4"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// latency measures one case on all paths in rounds of one slice each.
func (r *probed) latency(ctx context.Context, d direction, size, rounds int) (*latencyCase, error) {
	c := &latencyCase{direction: d, size: size, rounds: map[way][][]float64{}, lost: map[way]int{}}
	for round := range rounds {
		for i := range r.paths {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// The order changes from round to round: nobody always follows the same.
			at := (i + round) % len(r.paths)
			p := r.paths[at]
			slice, err := r.single(ctx, at, d, size, uint64(round*latencySlice))
			if err != nil {
				return nil, err
			}
			c.rounds[p.way] = append(c.rounds[p.way], slice)
			c.lost[p.way] += latencySlice - len(slice)
		}
	}
	return c, nil
}

// single sends one slice of packets over a path, numbered from first, and returns their
// times under way in microseconds.
func (r *probed) single(ctx context.Context, path int, d direction, size int, first uint64) ([]float64, error) {
	p, target := r.paths[path], 2*path
	if err := p.touch(); err != nil {
		return nil, err
	}
	if d == toIPv6 {
		target++
	}
	_, meter := p.ends(d)
	meter.Forget(first, latencySlice)
	err := onCPU(senderCPU, func() error {
		return r.prober.Probe(target, p.frame(d, size), first, latencySlice, latencyGap)
	})
	if err != nil {
		return nil, err
	}
	meter.Await(ctx, first, latencySlice, latencyLimit)
	var slice []float64
	for _, t := range meter.Latencies(first, latencySlice) {
		slice = append(slice, float64(t)/float64(time.Microsecond))
	}
	return slice, nil
}

// writeSamples writes every single latency, one column for each case and way.
func writeSamples(path string, cases []*latencyCase) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("the folder for results cannot be made: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("the samples cannot be written: %w", err)
	}
	w := csv.NewWriter(f)
	_ = w.Write([]string{"direction", "bytes", "way", "round", "microseconds"})
	for _, c := range cases {
		for _, way := range latencyWays {
			for round, slice := range c.rounds[way] {
				for _, t := range slice {
					_ = w.Write([]string{string(c.direction), strconv.Itoa(c.size), way.name, strconv.Itoa(round), strconv.FormatFloat(t, 'f', 3, 64)})
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
