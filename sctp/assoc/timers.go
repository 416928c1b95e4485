// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/timerqueue"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// timers orders associations by what is due first.
type timers struct {
	queue   timerqueue.Numbered[slot]
	holders []*Association // by slot; nil: it is free
	free    []slot
	origin  time.Time
	changed []*Association // since the last look at the queue: a batch of packets moves a deadline once
}

// slot is the number of an association there, counted from 1.
type slot uint32

// clocks are when something is due that concerns no single path; zero is never. They lie side by side, for all of them are
// looked at each time.
type clocks struct {
	setup      time.Time // T1-init or T1-cookie
	sackAt     time.Time // a SACK that was put off
	shutdownAt time.Time // T2-shutdown (RFC 9260 section 9.2)
	guardAt    time.Time // T5-shutdown-guard, and before it the next progress: see startGuard
	windowAt   time.Time // a closed window is probed
	forwardAt  time.Time // the peer is told again what was given up
	roomAt     time.Time // the next message is over that waits in the full buffer
}

// touch notes that the deadline of an association may have changed.
func (t *timers) touch(a *Association) {
	if !a.touched {
		a.touched = true
		t.changed = append(t.changed, a)
	}
}

// update brings the queue up to date.
func (t *timers) update() {
	for _, a := range t.changed {
		a.touched = false
		if a.state != closed {
			t.set(a)
		}
	}
	clear(t.changed)
	t.changed = t.changed[:0]
}

// set books the deadline of an association anew.
func (t *timers) set(a *Association) {
	next := a.next()
	switch {
	case next.Equal(a.due):
		return
	case next.IsZero():
		t.remove(a)
		return
	case a.slot == 0:
		t.enter(a, next)
	}
	a.due = next
	t.queue.Set(a.slot, next.Sub(t.origin))
}

// enter gives an association a slot.
func (t *timers) enter(a *Association, now time.Time) {
	if t.origin.IsZero() {
		t.origin = now
	}
	if last := len(t.free) - 1; last >= 0 {
		a.slot, t.free = t.free[last], t.free[:last]
	} else {
		t.holders = append(t.holders, nil)
		a.slot = slot(len(t.holders))
	}
	t.holders[a.slot-1] = a
}

// remove takes an association out.
func (t *timers) remove(a *Association) {
	if a.slot == 0 {
		return
	}
	t.queue.Stop(a.slot)
	t.holders[a.slot-1] = nil
	t.free = append(t.free, a.slot)
	a.slot, a.due = 0, time.Time{}
}

// due takes out an association whose deadline has come, which is to be touched again; nil if there is none.
func (t *timers) due(now time.Time) *Association {
	t.update()
	s, ok := t.queue.Due(now.Sub(t.origin))
	if !ok {
		return nil
	}
	a := t.holders[s-1]
	a.due = time.Time{}
	return a
}

// next is the first deadline.
func (t *timers) next() time.Time {
	t.update()
	if t.queue.Len() == 0 {
		return time.Time{}
	}
	return t.origin.Add(t.queue.Next())
}

// next is when tick wants to be called.
func (a *Association) next() (at time.Time) {
	at = earliest(a.setup, a.sackAt)
	at = earliest(at, a.shutdownAt)
	at = earliest(at, a.guardAt)
	at = earliest(at, a.windowAt)
	at = earliest(at, a.forwardAt)
	at = earliest(at, a.changes.at)
	if a.blocked {
		at = earliest(at, a.roomAt)
	}
	for _, p := range a.paths {
		at = earliest(at, p.t3)
		at = earliest(at, p.heartbeatAt)
		at = earliest(at, p.waitsFor)
		at = earliest(at, p.search.at)
		at = earliest(at, p.suspicion.at)
	}
	return at
}

// tick does what is due, until a step ends the association.
func (a *Association) tick(now time.Time, out *Output) {
	a.endpoint.begin()
	a.tickClocks(now, out)
	for _, p := range a.paths {
		if a.state == closed {
			return
		}
		a.tickPath(p, now, out)
	}
	if reached(a.windowAt, now) {
		a.ask, a.windowAt = true, time.Time{}
	}
	a.transmit(nil, now, out)
}

// tickClocks does what is due that concerns no single path. When the association fails its clocks are zero.
func (a *Association) tickClocks(now time.Time, out *Output) {
	if reached(a.setup, now) {
		a.setupExpired(now, out)
	}
	if reached(a.shutdownAt, now) {
		a.shutdownExpired(now, out)
	}
	if reached(a.guardAt, now) {
		a.abort(a.destination(), ReasonNoAnswer, chunk.Cause{Code: chunk.CauseProtocolViolation, Value: []byte("shutdown guard")}, out)
	}
	if reached(a.sackAt, now) {
		a.sackNow()
	}
	if a.state != closed && reached(a.changes.at, now) {
		a.changeExpired(now, out)
	}
	if a.blocked && reached(a.roomAt, now) {
		a.clearOut(now, out)
	}
	if reached(a.forwardAt, now) {
		a.forwardExpired(now, out)
	}
}

// tickPath does what is due of a path.
func (a *Association) tickPath(p *Path, now time.Time, out *Output) {
	a.heartbeatMissed(p, now, out)
	if reached(p.t3, now) {
		a.timeout(p, now, out)
	}
	a.suspicionDue(p, now, out)
	a.heartbeat(p, now, out)
	a.searchDue(p, now, out)
}

// earliest is the first of two instants; zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// reached reports whether an instant has come; zero never does.
func reached(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }
