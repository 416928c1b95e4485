// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/timerqueue"
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
	guardAt    time.Time // T5-shutdown-guard
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

// earliest is the first of two instants; zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// reached reports whether an instant has come; zero never does.
func reached(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }
