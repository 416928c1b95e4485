// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import "container/heap"

// Cold returns the cold state of e, or nil.
func (t *Table[C]) Cold(e *Entry) *C {
	if e.cold == 0 {
		return nil
	}
	return &t.colds[e.cold].state
}

// Warm returns the cold state of e and makes a zero one if there is none.
func (t *Table[C]) Warm(e *Entry) *C {
	if e.cold == 0 {
		c := t.coldState()
		c.entry, c.pos = e.self, -1
		if n := len(t.freeColds); n > 0 {
			e.cold = t.freeColds[n-1]
			t.freeColds = t.freeColds[:n-1]
			t.colds[e.cold] = c
		} else {
			e.cold = int32(len(t.colds))
			t.colds = append(t.colds, c)
		}
	}
	return &t.colds[e.cold].state
}

// spareColds is how many unused cold states a table keeps for the next peers.
const spareColds = 1024

// coldState returns a zero cold state.
func (t *Table[C]) coldState() *coldState[C] {
	if n := len(t.spare); n > 0 {
		c := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return c
	}
	return new(coldState[C])
}

// Release drops the cold state of e, and its deadline.
func (t *Table[C]) Release(e *Entry) {
	if e.cold == 0 {
		return
	}
	t.ClearDeadline(e)
	if c := t.colds[e.cold]; len(t.spare) < spareColds {
		*c = coldState[C]{}
		t.spare = append(t.spare, c)
	}
	t.colds[e.cold] = nil
	t.freeColds = append(t.freeColds, e.cold)
	e.cold = 0
}

// SetDeadline sets the one deadline of e, which must have cold state.
func (t *Table[C]) SetDeadline(e *Entry, at Instant) {
	c := t.colds[e.cold]
	c.at = at
	if c.pos < 0 {
		heap.Push(&t.deadlines, c)
	} else {
		heap.Fix(&t.deadlines, c.pos)
	}
}

// ClearDeadline removes the deadline of e, if any.
func (t *Table[C]) ClearDeadline(e *Entry) {
	if e.cold != 0 && t.colds[e.cold].pos >= 0 {
		heap.Remove(&t.deadlines, t.colds[e.cold].pos)
	}
}

// NextDeadline returns the earliest deadline.
func (t *Table[C]) NextDeadline() (at Instant, ok bool) {
	if len(t.deadlines) == 0 {
		return 0, false
	}
	return t.deadlines[0].at, true
}

// Due removes the earliest deadline that is not after now and returns its entry,
// or nil when there is none.
func (t *Table[C]) Due(now Instant) *Entry {
	if len(t.deadlines) == 0 || t.deadlines[0].at > now {
		return nil
	}
	return t.entry(heap.Pop(&t.deadlines).(*coldState[C]).entry)
}

// deadlineHeap is the container/heap of cold states by deadline.
type deadlineHeap[C any] []*coldState[C]

func (h deadlineHeap[C]) Len() int           { return len(h) }
func (h deadlineHeap[C]) Less(i, j int) bool { return h[i].at < h[j].at }

func (h deadlineHeap[C]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *deadlineHeap[C]) Push(x any) {
	c := x.(*coldState[C])
	c.pos = len(*h)
	*h = append(*h, c)
}

func (h *deadlineHeap[C]) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	c.pos = -1
	return c
}
