// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"container/heap"
	"time"
)

// Timer calls Fire once when it is due. It lies in what it is about.
type Timer struct {
	Fire func(now time.Time, out *Output)

	at    time.Time
	index int // in the queue, counted from 1; 0: it is not set
}

// IsSet reports whether it will fire.
func (t *Timer) IsSet() bool { return t.index > 0 }

// SetTimer has a timer, of the layer or of its owner, fire at a time instead of the one that
// it had; at the zero time it never does.
func (l *Layer) SetTimer(t *Timer, at time.Time) {
	switch {
	case at.IsZero() && t.index == 0:
	case at.IsZero():
		heap.Remove(&l.queue, t.index-1)
	case t.index == 0:
		t.at = at
		heap.Push(&l.queue, t)
	default:
		t.at = at
		heap.Fix(&l.queue, t.index-1)
	}
}

// StopTimer has a timer not fire.
func (l *Layer) StopTimer(t *Timer) { l.SetTimer(t, time.Time{}) }

// queue has the timers that are set, the next one first.
type queue []*Timer

// Len implements [heap.Interface].
func (q queue) Len() int { return len(q) }

// Less implements [heap.Interface].
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

// Swap implements [heap.Interface].
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i+1, j+1
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	*q = append(*q, x.(*Timer))
	x.(*Timer).index = len(*q)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.index = 0
	return t
}

// earlier is the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
