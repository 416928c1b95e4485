// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestTimers sets, moves and takes out deadlines of associations at random: the first is always that of a plain list.
func TestTimers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1_700_000_000, 0)
	var timers timers
	list := make([]*Association, 60)
	for i := range list {
		list[i] = &Association{state: established}
	}
	first := func() (at time.Time) {
		for _, a := range list {
			at = earliest(at, a.setup)
		}
		return at
	}
	for range 20_000 {
		a := list[random.IntN(len(list))]
		switch random.IntN(4) {
		case 0, 1:
			a.setup = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			timers.touch(a)
		case 2:
			if a.setup = (time.Time{}); random.IntN(2) == 0 {
				timers.remove(a)
			} else {
				timers.touch(a)
			}
		default:
			now = now.Add(time.Duration(random.IntN(20)) * time.Millisecond)
			for a := timers.due(now); a != nil; a = timers.due(now) {
				if a.setup != first() || a.setup.After(now) {
					t.Fatalf("%v is due at %v, and the first is %v", a.setup, now, first())
				}
				a.setup = time.Time{}
				timers.touch(a)
			}
		}
		if next := timers.next(); !next.Equal(first()) {
			t.Fatalf("the next is %v; want %v", next, first())
		}
	}
	if len(timers.holders) > len(list) {
		t.Errorf("%d slots for %d associations", len(timers.holders), len(list))
	}
}
