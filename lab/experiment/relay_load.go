// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// Choices of all loads: slices are short and take turns, so that whatever else the
// machine does falls on all paths alike.
const (
	loadSlice = 20 * time.Millisecond
	loadDrain = 50 * time.Millisecond
	// loadFirst bounds the wait for the first packet of a slice to come out: who
	// forwards may have had no processor yet.
	loadFirst = 5 * time.Second
)

// fullLoad is more than any way carries by a core. The generator could send faster,
// but what it cannot get rid of then costs the forwarder too: both turn around the
// same full queue.
var fullLoad = load.Pace{Rate: 4e6, Batch: 64, Time: loadSlice}

// loaded is the relay topology with a generator.
type loaded struct {
	*relayPaths
	generator *load.Generator
	usage     *usage
}

// startLoaded starts the relay topology with a generator. What forwards in user
// space has the CPUs that the generator leaves, unless it is to be overrun.
func startLoaded(ctx context.Context, e *lab.Env, name string, ways []way, overrun bool) (l *loaded, done func(), err error) {
	r, end, err := startRelayPaths(ctx, e, name, ways)
	if err != nil {
		return nil, nil, err
	}
	l = &loaded{relayPaths: r}
	done = func() {
		l.usage.close()
		if l.generator != nil {
			_ = l.generator.Close()
		}
		end()
	}
	if err := l.setUp(overrun); err != nil {
		done()
		return nil, nil, err
	}
	return l, done, nil
}

// setUp gives the generator a target at each end of each path, and the routers
// receiving threads on a CPU of their own.
func (l *loaded) setUp(overrun bool) (err error) {
	if l.generator, err = load.NewGenerator(len(l.paths)); err != nil {
		return err
	}
	if err := l.host.Do(func() error { return l.generator.Anchor(idleLink) }); err != nil {
		return err
	}
	for i, p := range l.paths {
		l.generator.Peers()[i] = load.Peer{Client: p.client6.As16(), IP: p.client4.As4(), Port: [2]byte{fakeClientPort >> 8, fakeClientPort & 0xff}}
		for _, end := range []struct {
			node   *lab.Node
			number int
		}{{l.host, 2 * i}, {l.client, 2*i + 1}} {
			if err := end.node.Do(func() error { return l.generator.Target(end.number, p.way.name) }); err != nil {
				return err
			}
		}
		if err := p.threads(l.relayPaths, overrun); err != nil {
			return err
		}
	}
	l.usage, err = countCPU(l.processes()...)
	return err
}

// processes are those of the relays.
func (r *relayPaths) processes() (pids []int) {
	for _, p := range r.paths {
		if p.process != nil {
			pids = append(pids, p.process.PID())
		}
	}
	return pids
}

// threads makes the path take redirected frames. What forwards in the kernel gets
// receiving threads on the forwarder's CPU. Where a program in user space forwards,
// the kernel receives in the generator's calls and slows those down, so that the
// program has all other CPUs; unless it is to be overrun.
func (p *relayPath) threads(r *relayPaths, overrun bool) error {
	ends := []struct {
		node  *lab.Node
		iface string
	}{{p.router, "in6"}, {p.router, "out4"}}
	if p.way.by == byCable {
		ends[0].node, ends[0].iface = r.host, p.way.name
		ends[1].node, ends[1].iface = r.client, p.way.name
	}
	for _, end := range ends {
		if err := end.node.EnableGRO(end.iface); err != nil {
			return err
		}
		if (p.way.userSpace()) && !overrun {
			continue
		}
		if err := end.node.Do(func() error { return load.OwnNAPI(end.iface, forwarderCPU, p.way.nice()) }); err != nil {
			return err
		}
	}
	return nil
}

// lanes are the generator's lanes for one path and direction.
func (l *loaded) lanes(p *relayPath, d direction, size int) []load.Lane {
	at := 0
	for i := range l.paths {
		if l.paths[i] == p {
			at = i
		}
	}
	out := load.Lane{Frame: p.frame(toIPv4, size), ToClient: true, Target: 2 * at, First: at, Count: 1}
	in := load.Lane{Frame: p.frame(toIPv6, size), Target: 2*at + 1, First: at, Count: 1}
	switch d {
	case toIPv4:
		return []load.Lane{out}
	case toIPv6:
		return []load.Lane{in}
	}
	return []load.Lane{out, in}
}

// rate is what one slice of one path came to, in packets per second, and nanoseconds of
// CPU for each that has passed, 0 if nobody counts.
type rate struct{ offered, passed, cpu float64 }

// newRate is the rate of a slice.
func newRate(sent load.Sent, arrived uint64, used time.Duration) rate {
	return rate{sent.Rate(), float64(arrived) / sent.Took.Seconds(), float64(used) / float64(max(arrived, 1))}
}

// slice sends for one slice and counts what comes out. What is still under way
// when the generator stops is counted too: it was queued while the forwarder was
// behind.
func (l *loaded) slice(p *relayPath, d direction, size int, pace load.Pace) (r rate, err error) {
	if err := p.touch(); err != nil {
		return r, err
	}
	before, err := p.arrived(d, 0)
	if err != nil {
		return r, err
	}
	used := l.usage.time()
	var sent load.Sent
	err = p.way.generate(func() (err error) {
		sent, err = l.generator.Run(l.lanes(p, d, size), pace)
		return err
	})
	if err != nil {
		return r, err
	}
	if sent.Took <= 0 {
		return r, errors.New("the generator sent less than two batches")
	}
	if err := awaitMore(func() (uint64, error) { return p.arrived(d, 0) }, before); err != nil {
		return r, err
	}
	after, err := p.arrived(d, loadDrain)
	if err != nil {
		return r, err
	}
	return newRate(sent, after-before, l.usage.time()-used), nil
}

// awaitMore waits until a count is more than before, or long enough.
func awaitMore(count func() (uint64, error), before uint64) error {
	for end := time.Now().Add(loadFirst); ; time.Sleep(time.Millisecond) {
		if n, err := count(); n > before || err != nil || time.Now().After(end) {
			return err
		}
	}
}

// arrived is how many test packets have arrived by now in that direction; with
// patience, when no more come.
func (p *relayPath) arrived(d direction, patience time.Duration) (n uint64, err error) {
	for _, m := range []struct {
		meter *load.Meter
		not   direction
	}{{p.toClient, toIPv6}, {p.toHost, toIPv4}} {
		if d == m.not {
			continue
		}
		count, err := m.meter.Settle(0, patience)
		if err != nil {
			return 0, err
		}
		n += count
	}
	return n, nil
}
