// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"container/heap"
	"time"
)

// timers orders associations by what is due first.
type timers struct {
	list    deadlines
	changed []*Association // since the last look at the list: a batch of packets moves a deadline once
}

// touch notes that the deadline of an association may have changed.
func (t *timers) touch(a *Association) {
	if !a.touched {
		a.touched = true
		t.changed = append(t.changed, a)
	}
}

// update brings the list up to date.
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
	case next.IsZero():
		t.remove(a)
	case a.due.IsZero():
		a.due = next
		heap.Push(&t.list, a)
	default:
		a.due, t.list[a.place].due = next, next
		heap.Fix(&t.list, a.place)
	}
}

// remove takes an association out.
func (t *timers) remove(a *Association) {
	if !a.due.IsZero() {
		heap.Remove(&t.list, a.place)
		a.due = time.Time{}
	}
}

// due is an association whose deadline has come; nil if there is none.
func (t *timers) due(now time.Time) *Association {
	t.update()
	if len(t.list) == 0 || t.list[0].due.After(now) {
		return nil
	}
	return t.list[0].a
}

// next is the first deadline.
func (t *timers) next() time.Time {
	t.update()
	if len(t.list) == 0 {
		return time.Time{}
	}
	return t.list[0].due
}

// deadlines is a heap. The instants stand in it, side by side: those of thousands of associations at rest are compared
// without a look at each.
type deadlines []booked

type booked struct {
	due time.Time
	a   *Association
}

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].a.place, d[j].a.place = i, j
}

func (d *deadlines) Push(x any) {
	a := x.(*Association)
	a.place = len(*d)
	*d = append(*d, booked{a.due, a})
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	a := (*d)[last].a
	(*d)[last] = booked{}
	*d = (*d)[:last]
	return a
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
