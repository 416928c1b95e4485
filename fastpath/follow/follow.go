// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
)

// Table is what a [Follower] keeps in step with the host's network: the eBPF
// maps of one instance. Bump may be called at any time from any goroutine.
type Table interface {
	// Bump makes every cached next hop invalid.
	Bump()
	// Routes4 is one class for each /16 of the IPv4 Internet, 65536 bytes: 0 for
	// "look each destination up", else all destinations in it have the same next
	// hop as all other destinations of that class, but for the MTU of its path. The follower
	// alone writes it.
	Routes4() []byte
	// Neighbours lists the next hops in use.
	Neighbours() ([]fastpath.NextHop, error)
}

// When bumps and recomputations happen. Bumps cost each CPU one look-up for each
// next hop in use, so they are spaced; 100 ms is the longest that a packet may
// go to a next hop that is none any more.
const (
	bumpSpacing = 4 * time.Millisecond
	// The kernel tells of some removals a moment before it removes. A look-up in
	// between would cache what goes, so a second bump follows.
	echoDelay = 20 * time.Millisecond
	// A scan of a local network makes unknown neighbours fail all the time, and
	// whoever can send packets can scan.
	lazyDelay = 80 * time.Millisecond

	// Classes are recomputed when the routes were quiet for a while, or not quiet
	// for long; and a computation may take its share of one core, no more.
	quietDelay   = 100 * time.Millisecond
	patience     = time.Second
	restPerWork  = 20
	retryClasses = 5 * time.Second
)

// Follower follows the routes, policy rules, links, addresses, next hop objects
// and neighbours of one network namespace and keeps a [Table] in step.
type Follower struct {
	table   Table
	events  *os.File // the subscription
	raw     syscall.RawConn
	buf     []byte
	prober  *prober
	jobs    chan snapshot4
	job     sync.WaitGroup
	running bool // a job

	neighbours neighbourMirror
	links      linkMirror

	numbers numbers4
	dirty   *marks4 // what changed since the running job began

	lastBump, bumpAt, echoAt   time.Time
	lastEvent, firstDirty      time.Time
	lastRoute, restUntil       time.Time
	bumps, overruns, recounts  atomic.Uint64
	probes, changes, classesIn atomic.Uint64
	settled                    atomic.Bool // nothing that was heard is left to be done
}

// Stats counts what a [Follower] did since it was made.
type Stats struct {
	// Changes are the kernel's messages that made cached next hops invalid.
	Changes uint64
	// Bumps are the new generations made of them.
	Bumps uint64
	// Overruns are losses of messages, after each of which all was looked at again.
	Overruns uint64
	// Recounts are computations of the classes of all IPv4 routes.
	Recounts uint64
	// Probes are neighbours that the kernel was asked to probe.
	Probes uint64
	// Classified is the number of /16s that have a class, of 65536.
	Classified uint64
}

// New subscribes to the changes of the calling thread's network
// namespace. All of table's classes are 0 until [Follower.Run] found better ones.
func New(table Table) (*Follower, error) {
	if n := len(table.Routes4()); n != slots4 {
		return nil, fmt.Errorf("the table of IPv4 classes has %d entries instead of %d", n, slots4)
	}
	events, err := openEvents()
	if err != nil {
		return nil, fmt.Errorf("cannot follow routes and neighbours: %w", err)
	}
	raw, err := events.SyscallConn()
	if err != nil {
		events.Close()
		return nil, fmt.Errorf("cannot follow routes and neighbours: %w", err)
	}
	prober, err := newProber(table)
	if err != nil {
		events.Close()
		return nil, fmt.Errorf("cannot follow routes and neighbours: %w", err)
	}
	f := &Follower{
		table:  table,
		events: events,
		raw:    raw,
		buf:    make([]byte, 64<<10),
		prober: prober,
		jobs:   make(chan snapshot4, 1),
		dirty:  new(marks4),
	}
	f.numbers.reset()
	f.forgetAll(time.Now())
	return f, nil
}

// followed are the kernel's multicast groups of everything that a look-up of a
// next hop depends on.
var followed = []int{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_IFINFO, unix.RTNLGRP_NEIGH,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	unix.RTNLGRP_NEXTHOP,
}

// eventBuffer holds some 10,000 changes of routes.
const eventBuffer = 8 << 20

// openEvents opens a netlink socket that is subscribed to all of them.
func openEvents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	for _, g := range followed {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("netlink group %d: %w", g, err)
		}
	}
	// Without the capability the buffer is what the host's limit allows; then
	// overruns come sooner, and are noticed.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, eventBuffer)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// Run follows until ctx ends, when it returns nil, or until the kernel cannot be
// followed any more; then all next hops were made invalid and the fast path must
// be taken off, since no one keeps it in step.
func (f *Follower) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, f.wake)
	f.job.Go(func() { f.prober.run(ctx, &f.probes) })
	defer func() {
		cancel()
		stop()
		f.job.Wait()
		f.events.Close()
		f.prober.close()
	}()
	for ctx.Err() == nil {
		err := f.step(ctx)
		if ctx.Err() != nil {
			break // it may be what has failed the step, and classes and next hops stay as good as they were
		}
		if err != nil {
			f.forgetAll(time.Now())
			f.bump(time.Now())
			return fmt.Errorf("cannot follow routes and neighbours any more: %w", err)
		}
	}
	return nil
}

// Stats returns the counters. It may be called from any goroutine.
func (f *Follower) Stats() Stats {
	return Stats{
		Changes:    f.changes.Load(),
		Bumps:      f.bumps.Load(),
		Overruns:   f.overruns.Load(),
		Recounts:   f.recounts.Load(),
		Probes:     f.probes.Load(),
		Classified: f.classesIn.Load(),
	}
}

// wake makes a waiting step return.
func (f *Follower) wake() { _ = f.events.SetReadDeadline(time.Unix(1, 0)) }

// step waits for events, the end of a job or a timer, whichever is first, and
// handles all that is due.
func (f *Follower) step(ctx context.Context) error {
	if err := f.events.SetReadDeadline(f.next()); err != nil {
		return err
	}
	// Whoever calls wake has sent or cancelled before; what came in before the
	// deadline was set is seen here, what comes later ends the wait.
	if ctx.Err() == nil && len(f.jobs) == 0 {
		f.settled.Store(!f.running && f.next().IsZero())
		if err := f.await(); err != nil {
			return err
		}
	}
	f.timers(ctx, time.Now())
	select {
	case s := <-f.jobs:
		return f.publish(s)
	default:
		return nil
	}
}

// await reads events, or waits for the deadline.
func (f *Follower) await() error {
	n, err := f.events.Read(f.buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return f.received(n, err)
}

// drain handles the events that are waiting, without waiting for more.
func (f *Follower) drain() error {
	if err := f.events.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	for range 4096 { // a flood that does not end must not hold up the timers
		var n int
		var errno error
		err := f.raw.Read(func(fd uintptr) bool {
			n, errno = unix.Read(int(fd), f.buf)
			return true
		})
		if err != nil {
			return err
		}
		if errors.Is(errno, unix.EAGAIN) {
			return nil
		}
		if err := f.received(n, errno); err != nil {
			return err
		}
	}
	return nil
}

// received handles what one read returned.
func (f *Follower) received(n int, err error) error {
	f.settled.Store(false)
	now := time.Now()
	switch {
	case errors.Is(err, unix.ENOBUFS):
		f.overrun(now)
		return nil
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	}
	msgs, err := syscall.ParseNetlinkMessage(f.buf[:n])
	if err != nil {
		f.overrun(now)
		return nil
	}
	for i := range msgs {
		f.event(parseEvent(msgs[i].Header.Type, msgs[i].Data), now)
	}
	return nil
}

// overrun starts again after events were lost.
func (f *Follower) overrun(now time.Time) {
	f.overruns.Add(1)
	f.changes.Add(1)
	f.forgetAll(now)
	f.change(now, true)
}

// forgetAll takes nothing for known any more.
func (f *Follower) forgetAll(now time.Time) {
	f.neighbours.clear()
	f.links.clear()
	f.mark(everything4, now)
}

// event handles one change.
func (f *Follower) event(e event, now time.Time) {
	switch e.kind {
	case nothing:
		return
	case neighbourChanged:
		switch f.neighbours.change(e.neighbour, e.mac, e.valid) {
		case sure:
			f.change(now, false)
		case unsure:
			f.later(now.Add(lazyDelay))
		case unchanged:
			return
		}
	case linkChanged:
		changed, carrier := f.links.change(e.link, e.state)
		if !changed {
			return
		}
		if carrier {
			f.mark(everything4, now)
		}
		f.change(now, true)
	case lookupChanged:
		f.change(now, true)
	case routesChanged:
		f.mark(e.routes, now)
		f.change(now, true)
	}
	f.changes.Add(1)
}

// mark takes the class from all /16s of a range, and has classes recomputed.
func (f *Follower) mark(r range4, now time.Time) {
	if f.firstDirty.IsZero() {
		f.firstDirty = now
	}
	f.lastRoute = now
	f.dirty.add(r)
	clear(f.table.Routes4()[r.first : int(r.last)+1])
}

// change bumps now, or as soon as the spacing allows.
func (f *Follower) change(now time.Time, echo bool) {
	f.lastEvent = now
	if echo && f.echoAt.IsZero() {
		f.echoAt = now.Add(echoDelay)
	}
	if since := now.Sub(f.lastBump); since < bumpSpacing {
		f.later(f.lastBump.Add(bumpSpacing))
		return
	}
	f.bump(now)
}

// later has a bump made at a time, if none is made before.
func (f *Follower) later(at time.Time) { f.bumpAt = earlier(f.bumpAt, at) }

// bump makes a new generation.
func (f *Follower) bump(now time.Time) {
	f.table.Bump()
	f.bumps.Add(1)
	f.lastBump, f.bumpAt = now, time.Time{}
}

// next returns when the next timer is due; zero is never.
func (f *Follower) next() time.Time {
	return earlier(earlier(f.bumpAt, f.echoAt), f.recountAt())
}

// recountAt returns when to start recomputing the classes; zero is never.
func (f *Follower) recountAt() time.Time {
	if f.running || f.firstDirty.IsZero() {
		return time.Time{}
	}
	at := earlier(f.lastRoute.Add(quietDelay), f.firstDirty.Add(patience))
	if at.Before(f.restUntil) {
		return f.restUntil
	}
	return at
}

// timers does what is due.
func (f *Follower) timers(ctx context.Context, now time.Time) {
	if due(f.echoAt, now) {
		f.echoAt = time.Time{}
		if now.Sub(f.lastEvent) < echoDelay/2 {
			f.echoAt = now.Add(echoDelay)
		}
		f.bump(now)
	}
	if due(f.bumpAt, now) {
		f.bump(now)
	}
	if due(f.recountAt(), now) {
		f.startJob(ctx)
	}
}

// startJob recomputes the classes aside, while changes go on being marked.
func (f *Follower) startJob(ctx context.Context) {
	f.running = true
	f.firstDirty = time.Time{}
	f.dirty.clear()
	f.job.Go(func() {
		start := time.Now()
		s := f.prober.routes(ctx)
		s.took = time.Since(start)
		f.jobs <- s
		f.wake()
	})
}

// publish gives the /16s their new classes, but for those that changed meanwhile.
// A number must not mean old and new routes to packets on their way: first the
// changed ones lose their number, and only when no packet and no cached next hop
// knows the old meaning, the new ones are written.
func (f *Follower) publish(s snapshot4) error {
	f.running = false
	f.recounts.Add(1)
	f.restUntil = time.Now().Add(restPerWork * s.took)
	if s.err != nil {
		f.firstDirty, f.restUntil = time.Now(), time.Now().Add(retryClasses)
		return nil
	}
	fresh := f.numbers.assign(&s)
	now := f.table.Routes4()
	changed := false
	for i := range now {
		if now[i] != fresh[i] {
			now[i] = 0
			changed = true
		}
	}
	if changed {
		f.bump(time.Now())
		fastpath.AwaitPrograms()
	}
	if err := f.drain(); err != nil {
		return err
	}
	classified := uint64(0)
	for i := range now {
		if f.dirty.has(i) {
			continue
		}
		now[i] = fresh[i]
		if now[i] != 0 {
			classified++
		}
	}
	f.classesIn.Store(classified)
	if changed {
		// The echo is for a packet that took longer, on a machine that stood still.
		f.change(time.Now(), true)
	}
	return nil
}

// due reports whether a time is set and has come.
func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// earlier is the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
