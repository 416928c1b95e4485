// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package timerqueue

import "time"

// Never is the time of what is not in a [Numbered].
const Never time.Duration = 1<<63 - 1

// Numbered has times of things that are known by numbers, each since an epoch, at most one of each thing. What is compared and
// moved is times and numbers alone: of many thousands of things a look at each would be a miss of the cache. The zero value is
// empty; numbers are to be small, for a list is as long as the largest.
type Numbered[N ~uint32] struct {
	heap  []numbered[N]
	place []uint32 // by number: where in heap, counted from 1
}

type numbered[N ~uint32] struct {
	at time.Duration
	of N
}

// branches is how many places of the heap are below one: with four, which are neighbours, the way is half as long as with two.
const branches = 4

// Set has a thing due at a time instead of the one that it had; Never takes it out.
func (q *Numbered[N]) Set(n N, at time.Duration) {
	if at == Never {
		q.Stop(n)
		return
	}
	for int(n) >= len(q.place) {
		q.place = append(q.place, 0)
	}
	if q.place[n] == 0 {
		q.heap = append(q.heap, numbered[N]{})
		q.place[n] = uint32(len(q.heap))
	}
	q.move(int(q.place[n])-1, numbered[N]{at, n})
}

// Stop takes a thing out, if it is there.
func (q *Numbered[N]) Stop(n N) {
	if int(n) >= len(q.place) || q.place[n] == 0 {
		return
	}
	at, end := int(q.place[n])-1, len(q.heap)-1
	q.place[n] = 0
	last := q.heap[end]
	if q.heap = q.heap[:end]; at < end {
		q.move(at, last)
	}
}

// At is when a thing is due; Never if it is not there.
func (q *Numbered[N]) At(n N) time.Duration {
	if int(n) >= len(q.place) || q.place[n] == 0 {
		return Never
	}
	return q.heap[q.place[n]-1].at
}

// Next is when the first is due; Never if there is none.
func (q *Numbered[N]) Next() time.Duration {
	if len(q.heap) == 0 {
		return Never
	}
	return q.heap[0].at
}

// Due takes out the first if it is due at a time.
func (q *Numbered[N]) Due(now time.Duration) (n N, ok bool) {
	if len(q.heap) == 0 || q.heap[0].at > now {
		return n, false
	}
	n = q.heap[0].of
	q.Stop(n)
	return n, true
}

// Len is how many there are.
func (q *Numbered[N]) Len() int { return len(q.heap) }

// move puts a time into a place of the heap, or above or below it where it belongs.
func (q *Numbered[N]) move(at int, x numbered[N]) {
	for at > 0 {
		above := (at - 1) / branches
		if q.heap[above].at <= x.at {
			break
		}
		q.put(at, q.heap[above])
		at = above
	}
	for least := q.below(at); least > 0 && q.heap[least].at < x.at; least = q.below(at) {
		q.put(at, q.heap[least])
		at = least
	}
	q.put(at, x)
}

// below is the place of the first time below one; 0 if there is none.
func (q *Numbered[N]) below(at int) (least int) {
	first := at*branches + 1
	for i := first; i < min(first+branches, len(q.heap)); i++ {
		if least == 0 || q.heap[i].at < q.heap[least].at {
			least = i
		}
	}
	return least
}

func (q *Numbered[N]) put(at int, x numbered[N]) { q.heap[at], q.place[x.of] = x, uint32(at+1) }
