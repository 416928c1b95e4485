// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// Random operations against a plain map, in a table small enough that moves,
// evictions and refusals happen all the time.
func TestHotAgainstModel(t *testing.T) {
	testutil.OneThread(t)
	type entry struct {
		heard  Instant
		mapped netip.AddrPort
		busy   bool
	}
	const limit = 56 // of 64 slots
	h := newHot(t, limit)
	model := map[[16]byte]entry{}
	rng := rand.New(rand.NewPCG(3, 4))
	now := Instant(0)
	for step := range 60_000 {
		now += Instant(rng.IntN(4)) * Instant(StampUnit)
		k := client(rng.IntN(120))
		m, known := model[*k]
		r, ok := h.Lookup(k)
		if known && !ok && now.Sub(m.heard) >= stale {
			delete(model, *k) // it was evicted, as it may be
			known = false
		}
		if known != ok {
			t.Fatalf("step %d: in the table %v, in the model %v", step, ok, known)
		}
		if ok && (r.Age(now) != now.Sub(m.heard) || r.Busy() != m.busy || h.Mapped(k, r) != m.mapped) {
			t.Fatalf("step %d: age %v busy %v mapped %v, want %v %+v", step, r.Age(now), r.Busy(), h.Mapped(k, r), now.Sub(m.heard), m)
		}
		switch rng.IntN(6) {
		case 0, 1:
			e := entry{heard: now, mapped: teredo.Mapped(k), busy: rng.IntN(2) == 0}
			if rng.IntN(30) == 0 {
				e.mapped = mapping
			}
			got := h.Insert(k, e.mapped, now, stale, e.busy)
			if got == Accepted {
				model[*k] = e
			} else if known && got == TableFull {
				t.Fatalf("step %d: no place for a peer that has one", step)
			}
		case 2:
			h.Delete(k)
			delete(model, *k)
		case 3:
			if ok {
				h.Touch(r, now)
				m.heard = now
				model[*k] = m
			}
		case 4:
			if ok {
				h.SetBusy(k, !m.busy)
				m.busy = !m.busy
				model[*k] = m
			}
		case 5:
			h.Sweep(now, 60*time.Second, 4)
			for k, m := range model {
				if _, ok := h.Lookup(&k); !ok && now.Sub(m.heard) >= stale {
					delete(model, k)
				}
			}
		}
		walked, foreign := 0, 0
		h.Walk(0, h.Buckets(), func(key [16]byte, r Ref) bool {
			walked++
			if r.Foreign() {
				foreign++
			}
			return true
		})
		if step%100 == 0 {
			if diff := cmp.Diff(h.recounted(), h.counters); diff != "" {
				t.Fatalf("step %d: peers by mapping (-want +got):\n%s", step, diff)
			}
		}
		if all, f := h.Len(); all != walked || all > limit || f != foreign || f > limit/foreignShare {
			t.Fatalf("step %d: Len = %d, %d, walked over %d, %d", step, all, f, walked, foreign)
		}
	}
	if h.Evictions() == 0 {
		t.Error("nothing was ever evicted")
	}
}

// recounted are the counters of the mappings that peers have.
func (h *Hot) recounted() []uint8 {
	other := *h
	other.counters = make([]uint8, len(h.counters))
	h.Walk(0, h.Buckets(), func(key [16]byte, r Ref) bool {
		other.join(h.Mapped(&key, r), mappingLimit)
		return true
	})
	return other.counters
}

// Readers without a lock beside a writer that moves, evicts and replaces: a
// reader never sees a peer that never was, and peers that stay are nearly always
// found. The race detector watches.
func TestHotReadersBesideWriter(t *testing.T) {
	const limit, stay = 7 * 64, 100
	h := newHot(t, limit)
	for i := range stay {
		h.add(i, 0)
	}
	var stop atomic.Bool
	var readers sync.WaitGroup
	var looked, missed atomic.Uint64
	for n := range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for !stop.Load() {
				k := client(rng.IntN(stay))
				r, ok := h.Lookup(k)
				looked.Add(1)
				if !ok {
					missed.Add(1)
					continue
				}
				h.Touch(r, 10*second)
				ghost := client(1_000_000 + rng.IntN(1000))
				if _, ok := h.Lookup(ghost); ok {
					t.Error("found a peer that never was")
					return
				}
			}
		}()
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for i := 0; i < 20_000 || looked.Load() < 1000; i++ {
		k := stay + rng.IntN(10_000)
		if h.add(k, 10*second) != Accepted {
			h.Delete(client(stay + rng.IntN(10_000)))
		}
		if i%1000 == 999 {
			for j := range 10_000 { // make room again
				h.Delete(client(stay + j))
			}
		}
	}
	stop.Store(true)
	readers.Wait()
	for i := range stay {
		if _, ok := h.Lookup(client(i)); !ok {
			t.Errorf("peer %d is lost", i)
		}
	}
	if m, l := missed.Load(), looked.Load(); m*10 > l {
		t.Errorf("%d of %d look-ups missed", m, l)
	}
}

func TestHotDoesNotAllocate(t *testing.T) {
	h := newHot(t, 1000)
	now := Instant(0)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		now += second
		h.add(i, now)
		if r, ok := h.Lookup(client(i)); ok {
			h.Touch(r, now)
		}
		h.Sweep(now, 300*time.Second, 16)
		i++
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

const million = 1_000_000

func millionPeers(b *testing.B) *Hot {
	h := newHot(b, million)
	for i := range million {
		h.add(i, 0)
	}
	return h
}

func BenchmarkHotLookup1M(b *testing.B) {
	h := millionPeers(b)
	rng := rand.New(rand.NewPCG(5, 6))
	keys := make([][16]byte, 1<<20)
	for i := range keys {
		keys[i] = *client(rng.IntN(million))
	}
	i := 0
	for b.Loop() {
		if _, ok := h.Lookup(&keys[i&(1<<20-1)]); !ok {
			b.Fatal("lost")
		}
		i++
	}
}

func BenchmarkHotInsert1M(b *testing.B) {
	h := newHot(b, million)
	i := 0
	for b.Loop() {
		if i%million == 0 {
			clear(h.words)
			clear(h.counters)
			h.len = 0
		}
		h.add(i, 0)
		i++
	}
}

func BenchmarkHotEvict1M(b *testing.B) {
	h := millionPeers(b)
	i := million
	for b.Loop() {
		h.add(i, Instant(i)*second/million*31)
		i++
	}
}

func BenchmarkHotSweepSlice(b *testing.B) {
	h := millionPeers(b)
	for b.Loop() {
		h.Sweep(0, time.Second, 4096)
	}
}
