// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

const second = Instant(time.Second)

var mapping = netip.MustParseAddrPort("192.0.2.1:4096")

// key makes the i-th of many addresses.
func key(i int) *[16]byte {
	k := [16]byte{0: 0x20, 1: 0x01}
	binary.BigEndian.PutUint32(k[12:], uint32(i))
	return &k
}

// present lists which of the first n keys are in the table.
func present(t *Table[int], n int) (keys []int) {
	for i := range n {
		if t.Lookup(key(i)) != nil {
			keys = append(keys, i)
		}
	}
	return keys
}

func TestEntrySize(t *testing.T) {
	if got := unsafe.Sizeof(Entry{}); got > 56 {
		t.Errorf("an entry takes %d bytes, the budget is 56", got)
	}
}

func TestInsertTwiceIsOneEntry(t *testing.T) {
	table := NewTable[int](Limits{Peers: 4, Untrusted: 4}, nil)
	first, fresh := table.Insert(key(1), -30*second)
	if !fresh || first.Rx != -30*second || first.Tx != -30*second || first.Trusted() {
		t.Errorf("new entry %+v, fresh %v", first, fresh)
	}
	again, fresh := table.Insert(key(1), 0)
	if fresh || again != first {
		t.Error("a second entry for one address")
	}
	if all, trusted := table.Len(); all != 1 || trusted != 0 {
		t.Errorf("Len = %d, %d", all, trusted)
	}
}

func TestEvictionSparesTrustedPeers(t *testing.T) {
	var evicted []int
	table := NewTable(Limits{Peers: 4, Untrusted: 2}, func(e *Entry, _ *int) {
		evicted = append(evicted, int(binary.BigEndian.Uint32(e.Key[12:])))
	})
	for i := range 2 {
		e, _ := table.Insert(key(i), 0)
		table.Trust(e, mapping, second)
	}
	for i := 2; i < 100; i++ {
		table.Insert(key(i), 0)
	}
	if diff := cmp.Diff([]int{0, 1, 98, 99}, present(table, 100)); diff != "" {
		t.Errorf("after a flood of untrusted peers (-want +got):\n%s", diff)
	}
	if len(evicted) != 96 || evicted[0] != 2 || table.Evictions() != 96 {
		t.Errorf("%d evictions, first %d, counted %d", len(evicted), evicted[0], table.Evictions())
	}
}

func TestFullOfTrustedPeersEvictsTheOldest(t *testing.T) {
	table := NewTable[int](Limits{Peers: 3, Untrusted: 3}, nil)
	for i := range 3 {
		e, _ := table.Insert(key(i), 0)
		table.Trust(e, mapping, 0)
	}
	table.Touch(table.Lookup(key(0)), 5*second)
	table.Insert(key(3), 0)
	if diff := cmp.Diff([]int{0, 2, 3}, present(table, 4)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := table.OldestTrusted(); got != table.Lookup(key(2)) {
		t.Errorf("oldest trusted is %v", got.IP())
	}
}

func TestTooManyDistrustedEvictTheOldest(t *testing.T) {
	table := NewTable[int](Limits{Peers: 4, Untrusted: 2}, nil)
	for i := range 3 {
		e, _ := table.Insert(key(i), 0)
		table.Trust(e, mapping, 0)
	}
	for i := range 3 {
		table.Distrust(table.Lookup(key(i)))
	}
	if diff := cmp.Diff([]int{1, 2}, present(table, 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMapping(t *testing.T) {
	table := NewTable[int](Limits{Peers: 1, Untrusted: 1}, nil)
	e, _ := table.Insert(key(1), 0)
	if e.MappedIs(mapping) {
		t.Error("a new entry has a mapping")
	}
	table.Trust(e, mapping, second)
	if !e.Trusted() || e.Rx != second || e.Mapped() != mapping || !e.MappedIs(mapping) {
		t.Errorf("trusted entry %+v", e)
	}
	for _, other := range []string{"192.0.2.1:4097", "192.0.2.2:4096", "[2001:db8::1]:4096"} {
		if e.MappedIs(netip.MustParseAddrPort(other)) {
			t.Errorf("MappedIs(%s) = true", other)
		}
	}
}

func TestDeadlinesComeDueInOrder(t *testing.T) {
	table := NewTable[int](Limits{Peers: 8, Untrusted: 8}, nil)
	for i, at := range []Instant{5, 3, 9, 1} {
		e, _ := table.Insert(key(i), 0)
		*table.Warm(e) = i
		table.SetDeadline(e, at)
	}
	table.SetDeadline(table.Lookup(key(2)), 2) // moved
	table.ClearDeadline(table.Lookup(key(1)))  // cancelled
	table.Delete(table.Lookup(key(0)))         // gone with its entry
	if at, ok := table.NextDeadline(); !ok || at != 1 {
		t.Errorf("NextDeadline = %d, %v", at, ok)
	}
	if table.Due(0) != nil {
		t.Error("due before its time")
	}
	var due []int
	for e := table.Due(10); e != nil; e = table.Due(10) {
		due = append(due, *table.Cold(e))
	}
	if diff := cmp.Diff([]int{3, 2}, due); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	if _, ok := table.NextDeadline(); ok {
		t.Error("a deadline is left")
	}
}

func TestColdStateIsZeroAfterRelease(t *testing.T) {
	table := NewTable[int](Limits{Peers: 2, Untrusted: 2}, nil)
	e, _ := table.Insert(key(1), 0)
	if table.Cold(e) != nil {
		t.Error("cold state without Warm")
	}
	*table.Warm(e) = 7
	if got := *table.Warm(e); got != 7 {
		t.Errorf("Warm made the state again: %d", got)
	}
	table.Release(e)
	if table.Cold(e) != nil {
		t.Error("cold state after Release")
	}
	if got := *table.Warm(e); got != 0 {
		t.Errorf("state of another life: %d", got)
	}
}

// Random operations against a plain map: the lists, the free entries and the cold
// states must never mix up.
func TestTableAgainstModel(t *testing.T) {
	const peers, untrusted = 40, 15
	rng := rand.New(rand.NewPCG(3, 4))
	model := map[[16]byte]bool{} // trusted
	table := NewTable(Limits{Peers: peers, Untrusted: untrusted}, func(e *Entry, c *int) {
		if c != nil && *c != int(e.Key[15]) {
			t.Fatalf("entry %d evicted with the state of %d", e.Key[15], *c)
		}
		delete(model, e.Key)
	})
	now := Instant(0)
	for range 50_000 {
		now += second / 3
		k := key(rng.IntN(100))
		e := table.Lookup(k)
		if _, ok := model[*k]; ok != (e != nil) {
			t.Fatalf("entry %d: in table %v, in model %v", k[15], e != nil, ok)
		}
		if e == nil {
			e, _ = table.Insert(k, now-30*second)
			model[*k] = false
			*table.Warm(e) = int(k[15])
			table.SetDeadline(e, now)
			continue
		}
		if e.Key != *k || e.Trusted() != model[*k] {
			t.Fatalf("entry %d is %d, trusted %v", k[15], e.Key[15], e.Trusted())
		}
		switch rng.IntN(5) {
		case 0:
			table.Delete(e)
			delete(model, *k)
		case 1:
			model[*k] = true
			table.Trust(e, mapping, now)
			table.Release(e)
		case 2:
			model[*k] = false
			table.Distrust(e)
		case 3:
			table.Touch(e, now)
		case 4:
			if e := table.Due(now); e != nil && *table.Cold(e) != int(e.Key[15]) {
				t.Fatalf("deadline of entry %d with the state of %d", e.Key[15], *table.Cold(e))
			}
		}
		all, trusted := table.Len()
		if all != len(model) || all > peers || all-trusted > untrusted {
			t.Fatalf("%d entries, %d trusted, model has %d", all, trusted, len(model))
		}
		walked := 0
		table.Walk(func(*Entry) bool { walked++; return true })
		if walked != all {
			t.Fatalf("walked over %d of %d entries", walked, all)
		}
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	table := NewTable[int](Limits{Peers: 100, Untrusted: 100}, nil)
	for i := range 100 {
		e, _ := table.Insert(key(i), 0)
		table.Trust(e, mapping, 0)
	}
	now := Instant(0)
	k := *key(7)
	if n := testing.AllocsPerRun(100, func() {
		now += 2 * second
		e := table.Lookup(&k)
		table.Touch(e, now)
		_ = e.Mapped()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkLookup1M(b *testing.B) {
	const n = 1 << 20
	table := NewTable[int](Limits{Peers: n, Untrusted: 1}, nil)
	for i := range n {
		e, _ := table.Insert(key(i), 0)
		table.Trust(e, mapping, 0)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	keys := make([][16]byte, 1<<16)
	for i := range keys {
		keys[i] = *key(rng.IntN(n))
	}
	i := 0
	for b.Loop() {
		if table.Lookup(&keys[i&(1<<16-1)]) == nil {
			b.Fatal("lost")
		}
		i++
	}
}

// A peer heard many times a second is as young as one heard once a second: the
// grain of the order must not leave the busiest peers at the end to be evicted.
func TestBusyPeersStayYoung(t *testing.T) {
	table := NewTable[int](Limits{Peers: 3, Untrusted: 1}, nil)
	for i := range 3 {
		e, _ := table.Insert(key(i), 0)
		table.Trust(e, mapping, Instant(i))
	}
	busy := table.Lookup(key(0))
	for now := Instant(0); now < 60*second; now += second / 100 {
		table.Touch(busy, now)
	}
	if e := table.OldestTrusted(); e == busy {
		t.Error("the peer heard last counts as the oldest")
	}
	table.Insert(key(9), 0)
	if table.Lookup(key(0)) == nil {
		t.Error("the peer heard last was evicted")
	}
}
