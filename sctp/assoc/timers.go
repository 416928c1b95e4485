// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "time"

// timers orders associations by what is due first, in a heap. What is compared and moved for that lies side by side: to look
// at each of thousands of associations at rest would be a miss of the cache each time.
type timers struct {
	heap    []booked
	places  []int32        // in the heap, by slot
	slots   []*Association // nil: it is free
	free    []int32        // slots
	origin  time.Time
	changed []*Association // since the last look at the heap: a batch of packets moves a deadline once
}

// booked is the deadline of the association in a slot.
type booked struct {
	due  time.Duration // since the origin
	slot int32
}

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

// update brings the heap up to date.
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
	case a.due.IsZero():
		t.enter(a, next)
	}
	a.due = next
	t.move(int(t.places[a.slot]), booked{next.Sub(t.origin), a.slot})
}

// enter gives an association a slot, and a place at the end of the heap.
func (t *timers) enter(a *Association, now time.Time) {
	if t.origin.IsZero() {
		t.origin = now
	}
	if last := len(t.free) - 1; last >= 0 {
		a.slot, t.free = t.free[last], t.free[:last]
	} else {
		a.slot = int32(len(t.places))
		t.places, t.slots = append(t.places, 0), append(t.slots, nil)
	}
	t.slots[a.slot], t.places[a.slot] = a, int32(len(t.heap))
	t.heap = append(t.heap, booked{})
}

// remove takes an association out.
func (t *timers) remove(a *Association) {
	if a.due.IsZero() {
		return
	}
	a.due = time.Time{}
	t.slots[a.slot] = nil
	t.free = append(t.free, a.slot)
	at, last := int(t.places[a.slot]), len(t.heap)-1
	moved := t.heap[last]
	if t.heap = t.heap[:last]; at < last {
		t.move(at, moved)
	}
}

// due is an association whose deadline has come; nil if there is none.
func (t *timers) due(now time.Time) *Association {
	t.update()
	if len(t.heap) == 0 || t.heap[0].due > now.Sub(t.origin) {
		return nil
	}
	return t.slots[t.heap[0].slot]
}

// next is the first deadline.
func (t *timers) next() time.Time {
	t.update()
	if len(t.heap) == 0 {
		return time.Time{}
	}
	return t.origin.Add(t.heap[0].due)
}

// branches is how many places of the heap are below one: with four, which are neighbours, the way is half as long as with two.
const branches = 4

// move puts a deadline into a place of the heap, or above or below it where it belongs.
func (t *timers) move(at int, b booked) {
	for at > 0 {
		above := (at - 1) / branches
		if t.heap[above].due <= b.due {
			break
		}
		t.put(at, t.heap[above])
		at = above
	}
	for least := t.below(at); least > 0 && t.heap[least].due < b.due; least = t.below(at) {
		t.put(at, t.heap[least])
		at = least
	}
	t.put(at, b)
}

// below is the place of the first deadline below one; 0 if there is none.
func (t *timers) below(at int) (least int) {
	first := at*branches + 1
	for i := first; i < min(first+branches, len(t.heap)); i++ {
		if least == 0 || t.heap[i].due < t.heap[least].due {
			least = i
		}
	}
	return least
}

// put writes a deadline into a place.
func (t *timers) put(at int, b booked) { t.heap[at], t.places[b.slot] = b, int32(at) }

// earliest is the first of two instants; zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// reached reports whether an instant has come; zero never does.
func reached(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }
