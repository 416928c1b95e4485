// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
)

// Choices of the campaigns.
const (
	faultsTime     = 10 * time.Minute
	faultsStreams  = 200
	faultsFlows    = 100
	faultsShorts   = 1700 // a second
	faultsContexts = 1000 // at a time
	faultsFlowGap  = 100 * time.Millisecond
	streamPort     = 5001
	flowPorts      = 6000                   // of UDP flows, from here on
	startCut       = 150 * time.Millisecond // into a start comes a kill
	shortestFlap   = 50 * time.Millisecond
	longestFlap    = 500 * time.Millisecond
	startTries     = 3
)

// faultsForm is how much of a campaign is done.
type faultsForm struct {
	ways              []way
	together          bool          // all ways at once
	time              time.Duration // for each way
	streams, flows    int           // long flows by TCP and UDP
	shorts            float64       // short flows that begin each second
	contexts          int           // of a GGSN, that come and go
	shortest, longest time.Duration // between faults
	settle            time.Duration // before a process is judged by what it holds
	seed              uint64
}

// faultsFormOf is the form that a person asked for, of the ways that there are.
func faultsFormOf(e *lab.Env, ways []way) (f faultsForm, err error) {
	f = faultsForm{
		ways: ways, time: faultsTime, streams: faultsStreams, flows: faultsFlows, shorts: faultsShorts, contexts: faultsContexts,
		shortest: 300 * time.Millisecond, longest: 2 * time.Second, settle: 3 * time.Second, seed: 1 + rand.Uint64N(1<<32),
	}
	if e.Time > 0 {
		f.time = e.Time
	}
	if e.Seed > 0 {
		f.seed = e.Seed
	}
	if len(e.Ways) == 0 {
		return f, nil
	}
	f.ways = nil
	for _, name := range e.Ways {
		i := slices.IndexFunc(ways, func(w way) bool { return w.fast == name })
		if i < 0 {
			var names []string
			for _, w := range ways {
				names = append(names, w.fast)
			}
			return f, fmt.Errorf("%q is no way of this campaign: there are %s", name, strings.Join(names, ", "))
		}
		f.ways = append(f.ways, ways[i])
	}
	return f, nil
}

// faultsWorld is where a campaign takes place.
type faultsWorld struct {
	subject *subject
	long    []path   // of TCP connections
	flows   []path   // of UDP flows
	shorts  [][]path // of short flows, by the node that they come from
	faults  []fault
	off     map[string]bool // parts of the configuration that are taken out
	close   func() error

	// What goes on beside the flows, if anything does: begin starts it when the subject
	// serves, and finish ends it, and says what of it is left, while the subject still does.
	begin  func(ctx context.Context, c *campaign) error
	finish func(ctx context.Context) (left []string, err error)
	notes  func() []string
}

// campaign has faults happen to an Isthmus, while flows go through it.
type campaign struct {
	*faultsWorld
	env    *lab.Env
	way    way
	form   faultsForm
	random *rand.Rand

	streams   *streams
	datagrams []*flow
	short     []*shorts

	happened     []happened
	failedStarts int
	wrong        []string  // what went wrong besides
	calmed       time.Time // since when nothing happens
	first, last  holds
	left         []string // behind the run
}

// happened is a fault that has happened.
type happened struct {
	name string
	moment
}

// run goes through the campaign.
func (c *campaign) run(ctx context.Context) error {
	before, err := c.subject.traces()
	if err != nil {
		return err
	}
	if err := errors.Join(c.subject.configure(), c.subject.start(ctx)); err != nil {
		return err
	}
	if c.begin != nil {
		if err := c.begin(ctx, c); err != nil {
			return err
		}
	}
	if len(c.long) == 0 { // what there is goes on beside
		c.form.streams, c.form.flows = 0, 0
	}
	c.env.Step("%s: %s, faults for %v", c.way.title, c.load(), c.form.time)
	talk, hush := context.WithCancel(ctx)
	defer hush()
	if err := c.talk(ctx, talk); err != nil {
		return err
	}
	if c.first, err = c.calm(ctx); err != nil {
		return err
	}
	if err := c.suffer(ctx); err != nil {
		return err
	}
	if c.last, err = c.calm(ctx); err != nil {
		return err
	}
	c.calmed = time.Now()
	_ = c.answered(c.calmed) // the report has them
	hush()
	c.hear()
	if c.finish != nil {
		if c.left, err = c.finish(ctx); err != nil {
			return err
		}
	}
	more, err := c.subject.clean(ctx, before)
	c.left = append(c.left, more...)
	return err
}

// talk starts all flows, which end with talk; those that wait for their last answers, with
// ctx.
func (c *campaign) talk(ctx, talk context.Context) (err error) {
	if c.streams, err = startStreams(talk, c.long, c.form.streams); err != nil {
		return err
	}
	for i := range c.form.flows {
		f, err := c.flows[i%len(c.flows)].flow(uint16(flowPorts + i)).start(ctx)
		if err != nil {
			return err
		}
		c.datagrams = append(c.datagrams, f)
	}
	for _, paths := range c.shorts {
		c.short = append(c.short, startShorts(talk, paths, c.form.shorts, len(c.shorts)))
	}
	return errors.Join(c.answered(time.Time{}), ctx.Err())
}

// answered waits until each UDP flow has an answer to a packet that was sent since a time. The
// error is that of those which have none.
func (c *campaign) answered(since time.Time) error {
	_, err := together(len(c.datagrams), func(i int) (any, error) {
		f := c.datagrams[i]
		f.awaitAnswers(answerWait, func(p []flowPacket) bool { return anyAnswered(p, since) })
		return nil, f.fault(since)
	})
	return err
}

// hear waits for the ends of all flows.
func (c *campaign) hear() {
	c.streams.end()
	_, _ = together(len(c.datagrams), func(i int) (any, error) { return c.datagrams[i].end(), nil })
	for _, s := range c.short {
		s.end()
	}
}

// suffer has one fault after the other happen until the time is over: all of them in a
// random order, then again in another.
func (c *campaign) suffer(ctx context.Context) error {
	for end := time.Now().Add(c.form.time); time.Now().Before(end); {
		deck := slices.Clone(c.faults)
		c.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, f := range deck {
			if err := c.inflict(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// calm brings the configuration back, starts a process that meets all that a process
// survives, and returns what that one holds in the end.
func (c *campaign) calm(ctx context.Context) (h holds, err error) {
	clear(c.off)
	if err := errors.Join(c.subject.configure(), c.inflict(ctx, fault{name: nameRestart, do: restart})); err != nil {
		return h, err
	}
	for _, f := range c.faults {
		if !f.stays {
			continue
		}
		if err := c.inflict(ctx, f); err != nil {
			return h, err
		}
	}
	clear(c.off)
	if err := c.subject.reload(ctx); err != nil {
		c.blame("at the end: %v", err)
	}
	if err := c.wait(ctx, c.form.settle, c.form.settle); err != nil {
		return h, err
	}
	return c.subject.holds(ctx)
}

// inflict has one fault happen, and gives the flows some time. The error is that there is no
// process any more.
func (c *campaign) inflict(ctx context.Context, f fault) error {
	x := happened{name: f.name, moment: moment{began: time.Now()}}
	if err := f.do(ctx, c); err != nil {
		c.blame("%s: %v", f.name, err)
	}
	x.ended = time.Now()
	c.happened = append(c.happened, x)
	if !c.subject.runs() {
		c.blame("after %s: %v", f.name, errors.Join(c.subject.process.Wait(), errEarly))
		if err := c.start(ctx); err != nil {
			return err
		}
	}
	return c.wait(ctx, c.form.shortest, c.form.longest)
}

// blame notes what should not be.
func (c *campaign) blame(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.wrong = append(c.wrong, text)
	c.env.Step("%s: %s", c.way.title, text)
}

// wait waits for a random time.
func (c *campaign) wait(ctx context.Context, shortest, longest time.Duration) error {
	select {
	case <-time.After(shortest + time.Duration(c.random.Int64N(int64(longest-shortest)+1))):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// start starts a process. One that does not start counts, and is tried again.
func (c *campaign) start(ctx context.Context) (err error) {
	for range startTries {
		if err = c.subject.start(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		c.failedStarts++
		c.blame("a start failed: %v", err)
		if c.subject.runs() {
			_ = c.subject.end(unix.SIGKILL)
		}
	}
	return err
}

// replace ends the process and starts another.
func (c *campaign) replace(ctx context.Context, signal unix.Signal) error {
	return errors.Join(c.subject.end(signal), c.start(ctx))
}

// nameRestart is the name of restart among the faults.
const nameRestart = "TERM and start"

// restart is what an operator does.
func restart(ctx context.Context, c *campaign) error { return c.replace(ctx, unix.SIGTERM) }

// cut is replace, but the first of the new processes is killed while it starts.
func (c *campaign) cut(ctx context.Context, signal unix.Signal) error {
	err := errors.Join(c.subject.end(signal), c.subject.launch(ctx), c.wait(ctx, 0, startCut))
	return errors.Join(err, c.replace(ctx, unix.SIGKILL))
}

// without has f done while the fast path is off, and gives it back by a reload.
func (c *campaign) without(ctx context.Context, f func() error) error {
	c.off[partFastPath] = true
	err := errors.Join(c.subject.reload(ctx), f())
	c.off[partFastPath] = false
	return errors.Join(err, c.subject.reload(ctx))
}
