// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// userLoad is more than any program in user space carries. The kernel receives for those
// in the generator's calls, so that what it cannot get rid of keeps them from their work.
const userLoad = 1e6

// fullLoad is that of a way.
func (w way) fullLoad() load.Pace {
	p := fullLoad
	if w.userSpace() {
		p.Rate = userLoad
	}
	return p
}

// fullNote says what full load is.
var fullNote = fmt.Sprintf("Full load is %.0f million packets a second, of which the generator sends what the machine allows, and %.0f million where a program in user space forwards: that shares a processor with the generator, and carries less.", fullLoad.Rate/1e6, userLoad/1e6)

// inTurn has each of n ways take its turn in each round. The order is drawn anew for each:
// no one always follows the same.
func inTurn(ctx context.Context, rounds, n int, slice func(round, at int) error) error {
	for round := range rounds {
		for _, at := range rand.Perm(n) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := slice(round, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// loader is a generator, and who counts what its load costs.
type loader struct {
	generator *load.Generator
	usage     *usage
}

// ran is what one run of the generator came to.
type ran struct {
	sent    load.Sent
	passed  uint64        // what arrived until the last frame was sent
	arrived uint64        // all of it: queues go on when nothing more is sent
	at      []uint64      // what arrived, by meter
	used    time.Duration // of all CPUs
}

// run sends by a way and counts what comes out at the meters.
func (l *loader) run(w way, lanes []load.Lane, pace load.Pace, meters ...*load.Meter) (r ran, err error) {
	totals, since := make([]uint64, len(meters)), make([][]uint64, len(meters))
	for i, m := range meters {
		if totals[i], err = m.Total(); err != nil {
			return r, err
		}
		if since[i], err = m.Arrived(); err != nil {
			return r, err
		}
	}
	used := l.usage.time()
	if r.sent, err = l.send(w, lanes, pace); err != nil {
		return r, err
	}
	if err := awaitFirst(totals, meters); err != nil {
		return r, err
	}
	for i, m := range meters {
		n, err := m.SettleAll(loadDrain)
		if err != nil {
			return r, err
		}
		passed, err := m.ArrivedUntil(since[i], r.sent.End)
		if err != nil {
			return r, err
		}
		r.at = append(r.at, n-totals[i])
		r.passed, r.arrived = r.passed+passed, r.arrived+n-totals[i]
	}
	r.used = l.usage.time() - used
	return r, nil
}

// awaitFirst waits until a packet more has arrived at one of the meters, or none comes.
func awaitFirst(before []uint64, meters []*load.Meter) error {
	for end := time.Now().Add(loadFirst); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for i, m := range meters {
			if n, err := m.Total(); err != nil || n > before[i] {
				return err
			}
		}
	}
	return nil
}

// send sends by a way.
func (l *loader) send(w way, lanes []load.Lane, pace load.Pace) (sent load.Sent, err error) {
	err = w.generate(func() (err error) {
		sent, err = l.generator.Run(lanes, pace)
		return err
	})
	if err == nil && sent.Took <= 0 {
		err = errors.New("the generator sent less than two batches")
	}
	return sent, err
}

// rate is what one slice of one path came to, in packets per second of its load. What
// passed has arrived while the load went on: the work of a queue behind that, which may be
// longer than the slice, is in what was delivered alone. CPU is in nanoseconds for each
// packet that was delivered, 0 if no one counts.
type rate struct{ offered, passed, delivered, cpu float64 }

func (r ran) rate() rate {
	took := r.sent.Took.Seconds()
	return rate{r.sent.Rate(), float64(r.passed) / took, float64(r.arrived) / took, float64(r.used) / float64(max(r.arrived, 1))}
}

// receiveOn makes ports take redirected frames. What forwards in the kernel gets receiving
// threads on the forwarder's CPU. Where a program in user space forwards, the kernel
// receives in the generator's calls and slows those down, so that the program has all
// other CPUs; unless it is to be overrun.
func (w way) receiveOn(node *lab.Node, overrun bool, ifaces ...string) error {
	for _, iface := range ifaces {
		if err := node.EnableGRO(iface); err != nil {
			return err
		}
		if w.userSpace() && !overrun {
			continue
		}
		if err := node.Do(func() error { return load.OwnNAPI(iface, forwarderCPU, w.nice()) }); err != nil {
			return err
		}
	}
	return nil
}

// setUpLoad gives a generator a target at each end of each way, and the routers receiving
// threads on a CPU of their own.
func (r *rig) setUpLoad(l *lab.Lab) (err error) {
	if r.generator, err = load.NewGenerator(r.plan.Load); err != nil {
		return err
	}
	if err := r.aim(l, r.generator); err != nil {
		return err
	}
	for _, p := range r.paths {
		if p.toRight == nil {
			if p.toRight, err = p.meter(); err != nil {
				return err
			}
			if err := r.right.Do(func() error { return p.toRight.Arrival(p.way.name, sink) }); err != nil {
				return err
			}
		}
		for _, end := range p.forwarding() {
			if err := p.way.receiveOn(end.node, r.plan.Overrun, end.iface); err != nil {
				return err
			}
		}
	}
	r.usage, err = countCPU(r.processes()...)
	return err
}

// aim anchors what makes frames, and gives it the targets of all ways.
func (r *rig) aim(l *lab.Lab, by interface {
	Anchor(iface string) error
	Target(number int, iface string) error
}) error {
	l.Link(r.left, idleLink, r.right, idleLink)
	if err := l.Err(); err != nil {
		return err
	}
	errs := []error{r.left.Do(func() error { return by.Anchor(idleLink) })}
	for _, p := range r.paths {
		errs = append(errs,
			r.left.Do(func() error { return by.Target(p.aimed(toIPv4), p.way.name) }),
			r.right.Do(func() error { return by.Target(p.aimed(toIPv6), p.way.name) }))
	}
	return errors.Join(errs...)
}

// aimed is the number of the target where packets in that direction leave.
func (p *rigPath) aimed(d direction) int {
	if d.toRight() {
		return 2*p.number - 2
	}
	return 2*p.number - 1
}

// slice loads a way with one flow.
func (r *rig) slice(p *rigPath, d direction, size int, pace load.Pace) (rate, error) {
	lanes, err := r.lanes(p, d, size)
	if err != nil {
		return rate{}, fmt.Errorf("%s: %w", p.way.title, err)
	}
	return r.loaded(p, d, lanes, pace)
}

// loaded is what a load of a way comes to.
func (r *rig) loaded(p *rigPath, d direction, lanes []load.Lane, pace load.Pace) (rate, error) {
	got, err := r.over(p, d, lanes, pace)
	if err != nil {
		return rate{}, fmt.Errorf("%s: %w", p.way.title, err)
	}
	return got.rate(), nil
}

// over loads a way and counts what comes out in that direction.
func (r *rig) over(p *rigPath, d direction, lanes []load.Lane, pace load.Pace) (ran, error) {
	meters := []*load.Meter{p.toRight, p.toLeft}
	switch {
	case d.toRight():
		meters = meters[:1]
	case d != bothWays:
		meters = meters[1:]
	}
	return r.run(p.way, lanes, pace, meters...)
}

// rounds measures a case on all ways in turn.
func (r *rig) rounds(ctx context.Context, c *rateCase, rounds int, slice func(*rigPath) (rate, error)) error {
	return inTurn(ctx, rounds, len(r.paths), func(_, at int) error {
		p := r.paths[at]
		got, err := slice(p)
		if err == nil {
			c.add(p.way, got)
		}
		return err
	})
}
