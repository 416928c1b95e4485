// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
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
	placedJoined = 5 * time.Minute       // bounds the wait for classes of routes
	placedWarm   = 60 * time.Millisecond // brings back what the other ways have put out of the caches
	placedLate   = 64                    // packets of a load that may be counted as the next one's
	// placedSettled, before that, brings back what changes of routes have.
	placedSettled = 2 * placedWarm
)

// placedWays take turns.
var placedWays = []way{wayKernel, wayTC, wayXDP}

// placedForm is how much of it is done.
type placedForm struct {
	rounds      int
	crowds      []int // sessions, mappings or peers
	apart, few  int
	warm, slice time.Duration
}

// most is the largest crowd.
func (f *placedForm) most() int { return f.crowds[len(f.crowds)-1] }

// placedFormOf is the long form, or a short one that shows that all of it works.
func placedFormOf(runs int) placedForm {
	f := placedForm{rounds: placedRounds, crowds: []int{1, 1_000, 1 << 14, placedApart, placedMost}, apart: placedApart, few: placedFew, warm: placedWarm, slice: placedSlice}
	f.rounds = cmp.Or(runs, f.rounds)
	if f.rounds < longRun {
		f.crowds, f.apart, f.few, f.warm, f.slice = []int{1, 50, 500}, 500, 50, 0, placedShort
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
	// changing says whether routes are to change that no packet takes.
	changing atomic.Bool
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
	changed  atomic.Int64                // routes that no packet takes
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
