// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package timerqueue orders things by the time when they are due.
package timerqueue

import (
	"container/heap"
	"time"
)

// Node is when the thing that has it embedded is due, so that setting a time costs no memory. It must not
// be copied while it is in a queue.
type Node struct {
	at    time.Time
	place int // in the queue, counted from 1; 0: it is not set
}

// IsSet reports whether it is in a queue.
func (n *Node) IsSet() bool { return n.place > 0 }

// At is when the thing is due, while it is in a queue.
func (n *Node) At() time.Time { return n.at }

func (n *Node) node() *Node { return n }

// Queued is a pointer to something with a [Node].
type Queued interface{ node() *Node }

// Queue has what is due first in front. The zero value is empty.
type Queue[T Queued] struct{ list ordered[T] }

// Set has a thing due at a time instead of the one that it had; at the zero time it never is.
func (q *Queue[T]) Set(x T, at time.Time) {
	n := x.node()
	switch {
	case at.IsZero():
		q.Stop(x)
	case n.place == 0:
		n.at = at
		heap.Push(&q.list, x)
	case !n.at.Equal(at):
		n.at = at
		heap.Fix(&q.list, n.place-1)
	}
}

// Stop takes a thing out, if it is there.
func (q *Queue[T]) Stop(x T) {
	if n := x.node(); n.place > 0 {
		heap.Remove(&q.list, n.place-1)
	}
}

// Next is when the first is due; zero: there is none.
func (q *Queue[T]) Next() time.Time {
	if len(q.list) == 0 {
		return time.Time{}
	}
	return q.list[0].node().at
}

// Due takes out the first if it is due at a time.
func (q *Queue[T]) Due(now time.Time) (x T, ok bool) {
	if len(q.list) == 0 || q.Next().After(now) {
		return x, false
	}
	return heap.Pop(&q.list).(T), true
}

// Len is how many there are.
func (q *Queue[T]) Len() int { return len(q.list) }

// ordered is a heap.
type ordered[T Queued] []T

func (o ordered[T]) Len() int           { return len(o) }
func (o ordered[T]) Less(i, j int) bool { return o[i].node().at.Before(o[j].node().at) }
func (o ordered[T]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].node().place, o[j].node().place = i+1, j+1
}

// Push implements [heap.Interface].
func (o *ordered[T]) Push(x any) {
	*o = append(*o, x.(T))
	x.(T).node().place = len(*o)
}

// Pop implements [heap.Interface].
func (o *ordered[T]) Pop() any {
	last := len(*o) - 1
	x := (*o)[last]
	clear((*o)[last:])
	*o = (*o)[:last]
	x.node().place = 0
	return x
}
