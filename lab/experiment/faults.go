// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
)

// Choices of the campaigns.
const (
	faultsTime    = 10 * time.Minute
	faultsStreams = 200
	faultsFlows   = 100
	faultsShorts  = 1700 // a second
	faultsFlowGap = 100 * time.Millisecond
	streamPort    = 5001
	flowPorts     = 6000                   // of UDP flows, from here on
	startCut      = 150 * time.Millisecond // into a start comes a kill
	shortestFlap  = 50 * time.Millisecond
	longestFlap   = 500 * time.Millisecond
	startTries    = 3
)

// faultsForm is how much of a campaign is done.
type faultsForm struct {
	ways              []way
	together          bool          // all ways at once
	time              time.Duration // for each way
	streams, flows    int           // long flows by TCP and UDP
	shorts            float64       // short flows that begin each second
	shortest, longest time.Duration // between faults
	settle            time.Duration // before a process is judged by what it holds
	seed              uint64
}

// faultsFormOf is the form that a person asked for.
func faultsFormOf(e *lab.Env) (f faultsForm, err error) {
	f = faultsForm{
		ways: isthmusWays, time: faultsTime, streams: faultsStreams, flows: faultsFlows, shorts: faultsShorts,
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
		i := slices.IndexFunc(isthmusWays, func(w way) bool { return w.fast == name })
		if i < 0 {
			return f, fmt.Errorf("%q is no way of a campaign: there are %s, %s and %s", name, wayUser.fast, wayTC.fast, wayXDP.fast)
		}
		f.ways = append(f.ways, isthmusWays[i])
	}
	return f, nil
}

// fault is something that happens to an Isthmus.
type fault struct {
	name string
	// stays says that the process goes on.
	stays bool
	do    func(ctx context.Context, c *campaign) error
}

// faultsWorld is where a campaign takes place.
type faultsWorld struct {
	subject *subject
	long    []path          // of TCP connections
	flows   []path          // of UDP flows
	shorts  [][]path        // of short flows, by the node that they come from
	faults  []fault         // beside those that any process meets
	off     map[string]bool // parts of the configuration that are taken out
	close   func() error
}

// processFaults meet every process.
var processFaults = []fault{
	{name: "kill -9", do: func(ctx context.Context, c *campaign) error { return c.replace(ctx, unix.SIGKILL) }},
	{name: nameRestart, do: restart},
	{name: "USR2 and start", do: func(ctx context.Context, c *campaign) error { return c.replace(ctx, unix.SIGUSR2) }},
	{name: "TERM, and kill -9 during the start", do: func(ctx context.Context, c *campaign) error { return c.cut(ctx, unix.SIGTERM) }},
	{name: "USR2, and kill -9 during the start", do: func(ctx context.Context, c *campaign) error { return c.cut(ctx, unix.SIGUSR2) }},
	{name: "HUP, nothing changed", stays: true, do: func(_ context.Context, c *campaign) error { return c.subject.process.Signal(unix.SIGHUP) }},
	{name: "reload, nothing changed", stays: true, do: func(ctx context.Context, c *campaign) error { return c.subject.reload(ctx) }},
}

// toggled is a fault by reload: a part of the configuration is taken out, or put in again.
func toggled(part string) fault {
	return fault{name: "reload, " + part, stays: true, do: func(ctx context.Context, c *campaign) error {
		c.off[part] = !c.off[part]
		return c.subject.reload(ctx)
	}}
}

// flapped is a fault of a link: a port of the switch there goes down and up.
func flapped(name string, node *lab.Node, port string) fault {
	return fault{name: "flap, " + name, stays: true, do: func(ctx context.Context, c *campaign) error {
		node.Down(port)
		err := c.wait(ctx, shortestFlap, longestFlap)
		node.Up(port)
		return errors.Join(err, node.Lab().Err())
	}}
}

// unrouted is a fault of the host: someone deletes the routes to a prefix.
func unrouted(name string, node *lab.Node, to netip.Prefix) fault {
	return fault{name: "route deleted, " + name, stays: true, do: func(context.Context, *campaign) error {
		dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
		family := unix.AF_INET6
		if to.Addr().Is4() {
			family = unix.AF_INET
		}
		routes, err := node.Netlink().RouteListFiltered(family, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
		for i := range routes {
			err = errors.Join(err, node.Netlink().RouteDel(&routes[i]))
		}
		return err
	}}
}

// fastPathFaults are those of an Isthmus with a fast path: it is taken away and given back,
// by reload, and with the process.
func fastPathFaults(w way) []fault {
	if w == wayUser {
		return nil
	}
	return []fault{
		{name: "reload, fast path off and on", stays: true, do: func(ctx context.Context, c *campaign) error {
			return c.without(ctx, func() error { return c.wait(ctx, shortestFlap, longestFlap) })
		}},
		{name: "kill -9 while the fast path is off", do: func(ctx context.Context, c *campaign) error {
			return errors.Join(c.without(ctx, func() error { return c.replace(ctx, unix.SIGKILL) }), restart(ctx, c))
		}},
	}
}

// partFastPath is the fast path as a part of the configuration.
const partFastPath = "fast path"

// fastPath is the setting of the moment.
func (w *faultsWorld) fastPath(of way) string {
	if w.off[partFastPath] {
		return wayUser.fast
	}
	return of.fast
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
	c.left, err = c.subject.clean(ctx, before)
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
		deck := slices.Concat(processFaults, c.faults)
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
	for _, f := range slices.Concat(processFaults, c.faults) {
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
	return c.subject.holds()
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
