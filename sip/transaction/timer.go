// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"container/heap"
	"time"
)

// Timer calls Fire once when it is due. It lies in what it is about, and must not be copied.
type Timer struct {
	Fire func(now time.Time, out *Output)

	at    time.Time
	place int // in the queue, counted from 1; 0: it is not set
}

// IsSet reports whether it will fire.
func (t *Timer) IsSet() bool { return t.place > 0 }

// SetTimer has a timer, of the layer or of its user, fire at a time instead of the one that it had;
// at the zero time it never does.
func (l *Layer) SetTimer(t *Timer, at time.Time) {
	switch {
	case at.IsZero() && t.place == 0:
	case at.IsZero():
		heap.Remove(&l.timers, t.place-1)
	case t.place == 0:
		t.at = at
		heap.Push(&l.timers, t)
	default:
		t.at = at
		heap.Fix(&l.timers, t.place-1)
	}
}

// StopTimer has a timer not fire.
func (l *Layer) StopTimer(t *Timer) { l.SetTimer(t, time.Time{}) }

// Tick does what is due.
func (l *Layer) Tick(now time.Time, out *Output) {
	for len(l.timers) > 0 && !l.timers[0].at.After(now) {
		heap.Pop(&l.timers).(*Timer).Fire(now, out)
	}
}

// Next is when something is due; zero: never.
func (l *Layer) Next() time.Time {
	if len(l.timers) == 0 {
		return time.Time{}
	}
	return l.timers[0].at
}

// times are those of a transaction: when something is repeated, and when it ends. Zero is never.
type times struct {
	timer         Timer
	repeat, limit time.Time
	interval      time.Duration
}

// schedule sets the timer of a transaction by its times.
func (l *Layer) schedule(t *times) {
	if !t.repeat.IsZero() && (t.limit.IsZero() || t.repeat.Before(t.limit)) {
		l.SetTimer(&t.timer, t.repeat)
	} else {
		l.SetTimer(&t.timer, t.limit)
	}
}

// over reports whether the end has come.
func (t *times) over(now time.Time) bool { return !t.limit.IsZero() && !t.limit.After(now) }

// again doubles the interval of repetitions up to a bound; 0 is none.
func (t *times) again(now time.Time, most time.Duration) {
	t.interval *= 2
	if most > 0 {
		t.interval = min(t.interval, most)
	}
	t.repeat = now.Add(t.interval)
}

// timers is a heap, whose top is due first.
type timers []*Timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push implements [heap.Interface].
func (h *timers) Push(x any) {
	*h = append(*h, x.(*Timer))
	x.(*Timer).place = len(*h)
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
