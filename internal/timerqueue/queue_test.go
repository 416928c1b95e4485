// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package timerqueue

import (
	"math/rand/v2"
	"testing"
	"time"
)

type thing struct {
	Node
	n int
}

// TestQueue sets, moves and stops things at random, and takes out what is due in its order, as a plain
// list of times has it.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(1_700_000_000, 0)
	var q Queue[*thing]
	things := make([]thing, 50)
	times := make([]time.Time, len(things)) // zero: it is not set
	first := func() (at time.Time) {
		for _, one := range times {
			if !one.IsZero() && (at.IsZero() || one.Before(at)) {
				at = one
			}
		}
		return at
	}
	now := start
	for i := range things {
		things[i].n = i
	}
	for range 20_000 {
		i := random.IntN(len(things))
		switch random.IntN(4) {
		case 0, 1:
			times[i] = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			q.Set(&things[i], times[i])
		case 2:
			times[i] = time.Time{}
			if random.IntN(2) == 0 {
				q.Stop(&things[i])
			} else {
				q.Set(&things[i], time.Time{})
			}
		default:
			now = now.Add(time.Duration(random.IntN(20)) * time.Millisecond)
			for x, ok := q.Due(now); ok; x, ok = q.Due(now) {
				if at := times[x.n]; !at.Equal(first()) || at.After(now) || x.IsSet() {
					t.Fatalf("thing %d, due at %v, came at %v; the first is due at %v", x.n, at.Sub(start), now.Sub(start), first().Sub(start))
				}
				times[x.n] = time.Time{}
			}
			if at := first(); !at.IsZero() && !at.After(now) {
				t.Fatalf("one that is due at %v did not come at %v", at.Sub(start), now.Sub(start))
			}
		}
		set := 0
		for j := range things {
			if things[j].IsSet() == times[j].IsZero() {
				t.Fatalf("thing %d is set: %v", j, things[j].IsSet())
			}
			if things[j].IsSet() {
				set++
			}
		}
		if q.Len() != set || !q.Next().Equal(first()) {
			t.Fatalf("%d things, the next at %v; want %d, at %v", q.Len(), q.Next(), set, first())
		}
	}
}

// TestSetAllocates nothing once the queue has grown.
func TestSetAllocates(t *testing.T) {
	var q Queue[*thing]
	one, now := new(thing), time.Unix(1_700_000_000, 0)
	if n := testing.AllocsPerRun(100, func() {
		q.Set(one, now)
		q.Set(one, now.Add(time.Second))
		q.Due(now.Add(time.Minute))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
