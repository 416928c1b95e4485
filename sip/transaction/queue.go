// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"container/heap"
	"time"
)

// timed is what a transaction has for its place in the queue.
type timed struct {
	at    time.Time
	index int // in the queue, 0 for none, else one more
}

// timer is a transaction whose time comes.
type timer interface {
	place() *timed
	expire(l *Layer, now time.Time, out *Output)
}

func (t *timed) place() *timed { return t }

// queue has transactions in the order of what is due.
type queue []timer

// set places a transaction by its time anew; the zero time takes it out.
func (q *queue) set(t timer, at time.Time) {
	p := t.place()
	switch {
	case at.IsZero() && p.index == 0:
	case at.IsZero():
		heap.Remove(q, p.index-1)
	case p.index == 0:
		p.at = at
		heap.Push(q, t)
	default:
		p.at = at
		heap.Fix(q, p.index-1)
	}
}

func (q *queue) next() time.Time {
	if len(*q) == 0 {
		return time.Time{}
	}
	return (*q)[0].place().at
}

// due returns the first transaction whose time has come, nil if there is none.
func (q *queue) due(now time.Time) timer {
	if len(*q) == 0 || (*q)[0].place().at.After(now) {
		return nil
	}
	return (*q)[0]
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool { return q[i].place().at.Before(q[j].place().at) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place().index, q[j].place().index = i+1, j+1
}

func (q *queue) Push(x any) {
	t := x.(timer)
	*q = append(*q, t)
	t.place().index = len(*q)
}

func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	last.place().index = 0
	return last
}

// earlier is the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
