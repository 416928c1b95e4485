// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"math/rand/v2"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestIndexTakesAll fills an index with as many records as it is made for.
func TestIndexTakesAll(t *testing.T) {
	for name, records := range map[string]int{"one": 1, "few": 13, "thousand": 1000, "million": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			if records > 1<<16 && testutil.UnderRace {
				t.Skip("takes long, and nothing runs beside")
			}
			x := index{make([]bucket, buckets(records))}
			hashes := rand.New(rand.NewPCG(1, 2))
			for i := range uint32(records) {
				if !x.insert(hashes.Uint64(), i) {
					t.Fatalf("no room for entry %d of %d", i, records)
				}
			}
			if n := x.entries(); n != records {
				t.Fatalf("the index has %d entries, want %d", n, records)
			}
			hashes = rand.New(rand.NewPCG(1, 2))
			for i := range uint32(records) {
				if !x.finds(hashes.Uint64(), i) {
					t.Fatalf("entry %d is not found", i)
				}
			}
			hashes = rand.New(rand.NewPCG(1, 2))
			for i := range uint32(records) {
				h := hashes.Uint64()
				if !x.remove(h, i) || x.finds(h, i) {
					t.Fatalf("entry %d is not removed", i)
				}
			}
			if entries, spills := x.entries(), x.spills(); entries != 0 || spills != 0 {
				t.Errorf("the empty index has %d entries and %d spilled ones", entries, spills)
			}
		})
	}
}

// TestIndexSpills shows how much of a full index programs could not enter, since they make
// no room, and how much does not lie at home.
func TestIndexSpills(t *testing.T) {
	const records = 1 << 18
	x := index{make([]bucket, buckets(records))}
	hashes, refused := rand.New(rand.NewPCG(3, 4)), 0
	for i := range uint32(records) {
		h := hashes.Uint64()
		home, other := x.place(h)
		if !x.put(home, slotOf(h, i)) && !x.spill(home, other, slotOf(h, i)) {
			refused++
		}
	}
	t.Logf("without making room %.2f %% are refused; %.1f %% are not at home", 100*float64(refused)/records, 100*float64(x.spills())/records)
	if refused > records/50 {
		t.Errorf("%d of %d entries need room to be made", refused, records)
	}
}

// TestIndexRefuses fills two buckets, where no room can be made.
func TestIndexRefuses(t *testing.T) {
	x := index{make([]bucket, 2)}
	hashes, n := rand.New(rand.NewPCG(5, 6)), uint32(0)
	for x.insert(hashes.Uint64(), n) {
		n++
	}
	if n <= indexSlots || n > 2*indexSlots {
		t.Errorf("two buckets took %d entries", n)
	}
	if x.entries() != int(n) {
		t.Errorf("after a refusal there are %d entries, want %d", x.entries(), n)
	}
}

// TestIndexRemovesNothingElse removes what is not there.
func TestIndexRemovesNothingElse(t *testing.T) {
	x := index{make([]bucket, 4)}
	x.insert(12345<<32|678, 1)
	if x.remove(12345<<32|678, 2) || x.remove(12345<<32|679, 1) {
		t.Error("another record was removed")
	}
	if x.entries() != 1 || x.spills() != 0 {
		t.Error("removing nothing changed the index")
	}
}

// finds reports whether a look-up meets the record.
func (x *index) finds(h uint64, record uint32) bool {
	for q := x.query(h); ; {
		switch r, ok := q.next(); {
		case !ok:
			return false
		case r == record:
			return true
		}
	}
}
