// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// mappings is a fast path's copy of the foreign mappings.
type mappings struct {
	table map[[16]byte]netip.AddrPort
	limit int
}

func (m *mappings) Put(key [16]byte, mapped netip.AddrPort) bool {
	if _, ok := m.table[key]; !ok && len(m.table) >= m.limit {
		return false
	}
	m.table[key] = mapped
	return true
}

func (m *mappings) Delete(key [16]byte) { delete(m.table, key) }

func (m *mappings) Walk(f func(key [16]byte, mapped netip.AddrPort)) {
	for key, mapped := range m.table {
		f(key, mapped)
	}
}

func sharedTable(t testing.TB, slab []byte, limit int, m *mappings, now Instant) *Hot {
	t.Helper()
	h, err := OpenHot(slab, limit, hotPrefixes, Seed{11, 13, 17, 19, 23}, m, now)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func newMappings() *mappings {
	return &mappings{table: map[[16]byte]netip.AddrPort{}, limit: 1000}
}

var sameMapping = cmpopts.EquateComparable(netip.AddrPort{})

// A copy holds what the table holds, through all that moves peers.
func TestForeignMirror(t *testing.T) {
	m := newMappings()
	m.limit = 5
	h := sharedTable(t, make([]byte, HotBytes(56)), 56, m, 0)
	rng := rand.New(rand.NewPCG(7, 7))
	now, refused := Instant(0), 0
	for step := range 3000 {
		now += Instant(rng.IntN(4)) * unit
		k := client(rng.IntN(120))
		mapped := teredo.Mapped(k)
		if rng.IntN(4) == 0 {
			mapped = netip.AddrPortFrom(mapping.Addr(), uint16(1+rng.IntN(1000)))
		}
		switch rng.IntN(4) {
		case 0, 1:
			if h.Insert(k, mapped, now, stale, false) == ForeignFull {
				refused++
			}
		case 2:
			h.Delete(k)
		case 3:
			h.Sweep(now, 60*time.Second, 4)
		}
		want := map[[16]byte]netip.AddrPort{}
		for key, e := range h.foreign {
			want[key] = netip.AddrPortFrom(netip.AddrFrom4(e.ip), e.port)
		}
		if diff := cmp.Diff(want, m.table, sameMapping); diff != "" {
			t.Fatalf("step %d: the copy (-want +got):\n%s", step, diff)
		}
	}
	if refused == 0 {
		t.Error("the copy was never full")
	}
}

// A peer whose foreign mapping cannot be copied is not in the table with a
// mapping that a fast path does not find.
func TestForeignMirrorFull(t *testing.T) {
	m := newMappings()
	m.limit = 1
	h := sharedTable(t, make([]byte, HotBytes(100)), 100, m, 0)
	if got := h.Insert(client(1), mapping, 0, stale, false); got != Accepted {
		t.Fatal(got)
	}
	if got := h.Insert(client(2), mapping, 0, stale, false); got != ForeignFull {
		t.Errorf("beyond the room of the copy: %v", got)
	}
	if _, ok := h.Lookup(client(2)); ok {
		t.Error("the refused peer is there")
	}
	h.add(3, 0)
	if got := h.Insert(client(3), mapping, 0, stale, false); got != ForeignFull {
		t.Errorf("a peer that moves: %v", got)
	}
	if r, ok := h.Lookup(client(3)); !ok || r.Foreign() || h.Mapped(client(3), r) != teredo.Mapped(client(3)) {
		t.Errorf("it should be where it was: %v %+v", ok, r)
	}
}

// A reader may have found the copy of a mapping whose memory then becomes another
// peer's; the state tells it.
func TestForeignMappingChangesState(t *testing.T) {
	h := sharedTable(t, make([]byte, HotBytes(100)), 100, newMappings(), 0)
	h.Insert(client(1), mapping, 0, stale, false)
	states := map[uint32]bool{}
	for n := range 100 {
		r, _ := h.Lookup(client(1))
		if states[r.state] {
			t.Fatalf("state %x again after %d changes", r.state, n)
		}
		states[r.state] = true
		h.Insert(client(1), netip.AddrPortFrom(mapping.Addr(), uint16(n+1)), 0, stale, false)
	}
}

// heardAt is what a table says of its peers: when they were heard, or -1 if they
// are left to the slow path.
func heardAt(h *Hot, now Instant) map[[16]byte]Instant {
	found := map[[16]byte]Instant{}
	h.Walk(0, h.Buckets(), func(key [16]byte, r Ref) bool {
		if found[key] = r.Heard(now); r.Busy() {
			found[key] = -1
		}
		return true
	})
	return found
}

// The next process finds the peers as the last one left them, but for those that
// it had left to its slow path: no one has what waited for them.
func TestAdopt(t *testing.T) {
	const limit = 200
	slab, m := make([]byte, HotBytes(limit)), newMappings()
	first := sharedTable(t, slab, limit, m, 0)
	want, foreign := map[[16]byte]Instant{}, map[[16]byte]netip.AddrPort{}
	for i := range limit {
		mapped := teredo.Mapped(client(i))
		if i%10 == 0 {
			mapped = netip.AddrPortFrom(mapping.Addr(), uint16(i+1))
			foreign[*client(i)] = mapped
		}
		first.Insert(client(i), mapped, Instant(i)*unit, stale, i%7 == 0)
		want[*client(i)] = Instant(i) * unit
	}
	now := 300 * unit
	second := sharedTable(t, slab, limit, m, now)
	if diff := cmp.Diff(want, heardAt(second, now)); diff != "" {
		t.Errorf("the peers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(foreign, m.table, sameMapping); diff != "" {
		t.Errorf("the foreign mappings (-want +got):\n%s", diff)
	}
	if all, n := second.Len(); all != limit || n != len(foreign) {
		t.Errorf("%d peers, %d foreign mappings", all, n)
	}
	for key, mapped := range foreign {
		if r, ok := second.Lookup(&key); !ok || second.Mapped(&key, r) != mapped {
			t.Errorf("%x is at %s, want %s", key, second.Mapped(&key, r), mapped)
		}
	}
	if got := second.Insert(client(limit+1), teredo.Mapped(client(limit+1)), now, time.Hour, false); got != TableFull {
		t.Errorf("one more than the limit: %v", got)
	}
}

// What a process that was killed may leave, and what it never would.
func TestAdoptTorn(t *testing.T) {
	const limit = 50
	slot := func(slab []byte, i int) []byte { return slab[i*SlotBytes:][:SlotBytes] }
	state := func(b []byte) uint32 { return binary.NativeEndian.Uint32(b[StateOffset:]) }
	setState := func(b []byte, s uint32) { binary.NativeEndian.PutUint32(b[StateOffset:], s) }
	// home returns the slot of client 1, and an empty one in its other bucket.
	home := func(h *Hot) (at, free uint32) {
		r, _ := h.Lookup(client(1))
		free, ok := h.vacant(h.other(r.slot, r.slot/SlotsPerBucket))
		if !ok {
			t.Fatal("no room")
		}
		return r.slot, free
	}
	for _, tt := range []struct {
		name string
		tear func(h *Hot, slab []byte, m *mappings)
		lost int // peers that cannot be kept
	}{
		{"a move that ended before its source was cleared", func(h *Hot, slab []byte, _ *mappings) {
			at, free := home(h)
			copy(slot(slab, int(free)), slot(slab, int(at)))
		}, 0},
		{"the same, stamped in its new place since", func(h *Hot, slab []byte, _ *mappings) {
			at, free := home(h)
			copy(slot(slab, int(free)), slot(slab, int(at)))
			setState(slot(slab, int(at)), state(slot(slab, int(at)))-1)
		}, 0},
		{"the same, stamped in its old place since", func(h *Hot, slab []byte, _ *mappings) {
			at, free := home(h)
			copy(slot(slab, int(free)), slot(slab, int(at)))
			setState(slot(slab, int(free)), state(slot(slab, int(free)))-1)
		}, 0},
		{"a key without state", func(h *Hot, slab []byte, _ *mappings) {
			_, free := home(h)
			copy(slot(slab, int(free)), client(1000)[4:])
		}, 0},
		{"a foreign mapping without peer", func(_ *Hot, _ []byte, m *mappings) {
			m.table[*client(1000)] = mapping
		}, 0},
		{"a foreign mapping of a peer that has gone home", func(_ *Hot, _ []byte, m *mappings) {
			m.table[*client(1)] = mapping
		}, 0},
		{"a foreign peer without mapping", func(h *Hot, _ []byte, _ *mappings) {
			at, _ := home(h)
			h.change(at, stateForeign, stateForeign)
		}, 1},
		{"a tag of no prefix", func(h *Hot, _ []byte, _ *mappings) {
			at, _ := home(h)
			h.change(at, stateTag, 9<<tagShift)
		}, 1},
		{"a bit that is never set", func(h *Hot, _ []byte, _ *mappings) {
			at, _ := home(h)
			h.change(at, stateZero, stateZero)
		}, 1},
		{"a peer in a bucket that is not its own", func(h *Hot, slab []byte, _ *mappings) {
			at, _ := home(h)
			slot(slab, int(at))[5] ^= 0xff
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slab, m := make([]byte, HotBytes(limit)), newMappings()
			first := sharedTable(t, slab, limit, m, 0)
			for i := range 20 {
				first.add(i, 100*unit)
			}
			first.Insert(client(20), mapping, 100*unit, stale, false)
			want := heardAt(first, 101*unit)
			tt.tear(first, slab, m)
			second := sharedTable(t, slab, limit, m, 101*unit)
			if tt.lost > 0 {
				delete(want, *client(1))
			}
			if diff := cmp.Diff(want, heardAt(second, 101*unit)); diff != "" {
				t.Errorf("the peers (-want +got):\n%s", diff)
			}
			if all, foreign := second.Len(); all != 21-tt.lost || foreign != 1 || len(m.table) != 1 {
				t.Errorf("%d peers, %d foreign mappings, %d in the copy", all, foreign, len(m.table))
			}
			seen := 0
			second.Walk(0, second.Buckets(), func([16]byte, Ref) bool { seen++; return true })
			if seen != 21-tt.lost {
				t.Errorf("%d slots are in use", seen)
			}
		})
	}
}

// Any bytes at all: the table stays within its bounds and holds only what can be
// looked up.
func FuzzAdopt(f *testing.F) {
	f.Add(uint64(1), byte(0xff))
	f.Add(uint64(2), byte(0x80))
	f.Fuzz(func(t *testing.T, seed uint64, mask byte) {
		slab, m := make([]byte, HotBytes(50)), newMappings()
		rng := rand.New(rand.NewPCG(seed, 1))
		for i := range slab {
			slab[i] = byte(rng.Uint32()) & mask
		}
		h := sharedTable(t, slab, 50, m, Instant(rng.Int64N(int64(100*time.Hour))))
		n := 0
		h.Walk(0, h.Buckets(), func(key [16]byte, r Ref) bool {
			if _, ok := h.Lookup(&key); !ok || r.Busy() {
				t.Errorf("%x: found %v, busy %v", key, ok, r.Busy())
			}
			n++
			return true
		})
		if all, _ := h.Len(); all != n {
			t.Errorf("%d peers, counted %d", n, all)
		}
	})
}

// A fast path stamps all the while: no stamp brings a dropped peer back, none is
// lost, and peers that are kept are found at any time.
func TestAdoptBesideStamps(t *testing.T) {
	const limit = 500
	slab, m := make([]byte, HotBytes(limit)), newMappings()
	first := sharedTable(t, slab, limit, m, 0)
	for i := range limit {
		first.Insert(client(i), teredo.Mapped(client(i)), 0, stale, i%3 == 0)
	}
	doomed := client(1)
	r, _ := first.Lookup(doomed)
	first.change(r.slot, stateTag, 9<<tagShift)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for n := range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for !stop.Load() {
				i := 2 + rng.IntN(limit-2)
				r, ok := first.Lookup(client(i))
				// A miss may be of the moment: the adopter changes states meanwhile.
				for end := time.Now().Add(time.Minute); !ok && time.Now().Before(end); {
					runtime.Gosched() // it may be the adopter that has no time
					r, ok = first.Lookup(client(i))
				}
				if !ok {
					t.Errorf("peer %d was not found", i)
					return
				}
				first.Touch(r, 50*unit)
			}
		}()
	}
	for range 20 {
		second := sharedTable(t, slab, limit, m, 50*unit)
		if all, _ := second.Len(); all != limit-1 {
			t.Errorf("%d peers", all)
		}
	}
	stop.Store(true)
	readers.Wait()
	last := sharedTable(t, slab, limit, m, 50*unit)
	for key, heard := range heardAt(last, 50*unit) {
		if heard != 0 && heard != 50*unit {
			t.Errorf("%x was heard at %d", key, heard)
		}
	}
	if _, ok := last.Lookup(doomed); ok {
		t.Error("the dropped peer is back")
	}
}

// watched notes what a filter is told.
type watched map[[16]byte]int

func (w watched) Add(key [16]byte)    { w[key]++ }
func (w watched) Remove(key [16]byte) { w[key]-- }

// The filter knows what is in the table, whatever made it come or go.
func TestFilter(t *testing.T) {
	testutil.OneThread(t)
	w := watched{}
	tab := NewTable[struct{}](Limits{Peers: 40, Untrusted: 20}, nil)
	tab.SetFilter(w)
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 2000 {
		e, _ := tab.Insert(client(rng.IntN(100)), 0)
		switch rng.IntN(4) {
		case 0:
			tab.Delete(e)
		case 1:
			tab.Trust(e, mapping, Instant(step))
		case 2:
			tab.Distrust(e)
		}
		want := watched{}
		tab.Walk(func(e *Entry) bool { want[e.Key]++; return true })
		maps.DeleteFunc(w, func(_ [16]byte, n int) bool { return n == 0 })
		if diff := cmp.Diff(want, w); diff != "" {
			t.Fatalf("step %d: (-want +got):\n%s", step, diff)
		}
	}
	if tab.Evictions() == 0 {
		t.Error("nothing was evicted")
	}
}
