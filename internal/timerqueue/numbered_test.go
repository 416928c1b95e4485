// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package timerqueue

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestNumbered compares with a map.
func TestNumbered(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q Numbered[uint32]
	want := make(map[uint32]time.Duration)
	for range 100_000 {
		n := uint32(random.IntN(500))
		switch random.IntN(5) {
		case 0:
			q.Stop(n)
			delete(want, n)
		case 1:
			q.Set(n, Never)
			delete(want, n)
		case 2:
			now := time.Duration(random.IntN(1000))
			got, ok := q.Due(now)
			earliest := Never
			for _, at := range want {
				earliest = min(earliest, at)
			}
			if ok != (earliest <= now) || ok && want[got] != earliest {
				t.Fatalf("due at %d: %d %v, earliest %d", now, want[got], ok, earliest)
			}
			if ok {
				delete(want, got)
			}
		default:
			at := time.Duration(random.IntN(1000))
			q.Set(n, at)
			want[n] = at
		}
		if at, there := want[n]; there && q.At(n) != at || !there && q.At(n) != Never {
			t.Fatalf("%d is due at %d, want %d: %v", n, q.At(n), at, there)
		}
		if q.Len() != len(want) {
			t.Fatalf("%d deadlines, want %d", q.Len(), len(want))
		}
	}
}
