// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"container/heap"
	"time"
)

// clock has the call whose media are due first in front, so that a turn of the loop costs no more
// with a thousand calls than with one.
type clock []*call

// set has a call's media ticked at a time instead of the one before; zero is never.
func (k *clock) set(c *call, at time.Time) {
	switch {
	case at.IsZero() && c.place == 0:
	case at.IsZero():
		heap.Remove(k, c.place-1)
	case c.place == 0:
		c.at = at
		heap.Push(k, c)
	case !c.at.Equal(at):
		c.at = at
		heap.Fix(k, c.place-1)
	}
}

// next is when a call is due; zero is never.
func (k clock) next() time.Time {
	if len(k) == 0 {
		return time.Time{}
	}
	return k[0].at
}

// tick ticks the calls that are due, each once.
func (k *clock) tick(now time.Time) {
	for range len(*k) {
		if len(*k) == 0 || (*k)[0].at.After(now) {
			return
		}
		heap.Pop(k).(*call).tick(now)
	}
}

func (k clock) Len() int           { return len(k) }
func (k clock) Less(i, j int) bool { return k[i].at.Before(k[j].at) }
func (k clock) Swap(i, j int) {
	k[i], k[j] = k[j], k[i]
	k[i].place, k[j].place = i+1, j+1
}

// Push implements [heap.Interface].
func (k *clock) Push(x any) {
	*k = append(*k, x.(*call))
	x.(*call).place = len(*k)
}

// Pop implements [heap.Interface].
func (k *clock) Pop() any {
	last := len(*k) - 1
	c := (*k)[last]
	(*k)[last] = nil
	*k = (*k)[:last]
	c.place = 0
	return c
}
