// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

// TestDeadlines compares with a map.
func TestDeadlines(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var d deadlines
	want := make(map[handle]time.Duration)
	for range 100_000 {
		h := handle(1 + random.IntN(500))
		switch random.IntN(5) {
		case 0:
			d.cancel(h)
			delete(want, h)
		case 1:
			d.set(h, never)
			delete(want, h)
		case 2:
			now := time.Duration(random.IntN(1000))
			got, ok := d.due(now)
			earliest := never
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
			d.set(h, at)
			want[h] = at
		}
		if len(d.heap) != len(want) {
			t.Fatalf("%d deadlines, want %d", len(d.heap), len(want))
		}
	}
}

// TestSizes: what a context costs is known. Indexes, timers and leases come on top: see
// BenchmarkMemory.
func TestSizes(t *testing.T) {
	if s, c := unsafe.Sizeof(session{}), unsafe.Sizeof(pdpContext{}); s > 176 || c > 208 {
		t.Errorf("a session takes %d octets, a context %d", s, c)
	}
}
