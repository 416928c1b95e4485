// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"container/heap"
	"time"
)

// timer calls fire once when it is due. It lies in what it is about, so that setting one
// costs no memory.
type timer struct {
	at    time.Time
	place int // in the heap, counted from 1; 0: it is not set
	fire  func(now time.Time, out *Output)
}

// timers are those that are set, the next one first.
type timers []*timer

// Len implements [heap.Interface].
func (h timers) Len() int { return len(h) }

// Less implements [heap.Interface].
func (h timers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements [heap.Interface].
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push implements [heap.Interface].
func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.place = len(*h)
}

// Pop implements [heap.Interface].
func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.place = 0
	return t
}

// set has a timer fire at a time, instead of the one that it had.
func (h *timers) set(t *timer, at time.Time) {
	t.at = at
	if t.place > 0 {
		heap.Fix(h, t.place-1)
		return
	}
	heap.Push(h, t)
}

// stop has it not fire.
func (h *timers) stop(t *timer) {
	if t.place > 0 {
		heap.Remove(h, t.place-1)
	}
}

// next is when the first one is due; zero is never.
func (h timers) next() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return h[0].at
}

// run fires what is due.
func (h *timers) run(now time.Time, out *Output) {
	for len(*h) > 0 && !(*h)[0].at.After(now) {
		heap.Pop(h).(*timer).fire(now, out)
	}
}
