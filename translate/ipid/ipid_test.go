// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ipid

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"
)

var (
	pool   = [4]byte{192, 0, 2, 1}
	server = [4]byte{198, 51, 100, 2}
)

func seeded(t *testing.T, seed byte) IDs {
	t.Helper()
	d, err := New(rand.NewChaCha8([32]byte{seed}))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSuccessive: packets of two addresses have all identifications, one after the other,
// before one comes again, whatever goes elsewhere.
func TestSuccessive(t *testing.T) {
	d := seeded(t, 1)
	elsewhere := [4]byte{198, 51, 100, 3}
	if d.hash(pool, server)>>48 == d.hash(pool, elsewhere)>>48 {
		t.Fatal("these have one counter: choose another address")
	}
	last := d.Next(pool, server)
	for range 1 << 16 {
		d.Next(pool, elsewhere)
		d.Next(server, pool)
		id := d.Next(pool, server)
		if id != last+1 {
			t.Fatalf("%d after %d", id, last)
		}
		last = id
	}
}

// TestHidden: where numbers begin, and which pairs meet, is another thing for each pair.
func TestHidden(t *testing.T) {
	const n = 4096
	for name, draw := range map[string]func(i int) uint16{
		"of one secret, by source": func() func(int) uint16 {
			d := seeded(t, 1)
			return func(i int) uint16 { return d.Next([4]byte{10, 0, byte(i >> 8), byte(i)}, server) }
		}(),
		"of one secret, by destination": func() func(int) uint16 {
			d := seeded(t, 1)
			return func(i int) uint16 { return d.Next(pool, [4]byte{10, 0, byte(i >> 8), byte(i)}) }
		}(),
		"the step from one destination to the next": func() func(int) uint16 {
			d := seeded(t, 1)
			return func(i int) uint16 {
				a, b := [4]byte{10, 0, byte(i >> 8), byte(i)}, [4]byte{11, 0, byte(i >> 8), byte(i)}
				return uint16(d.hash(pool, a) - d.hash(pool, b))
			}
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			var ones [16]int
			seen := make(map[uint16]bool)
			for i := range n {
				id := draw(i)
				seen[id] = true
				for bit := range ones {
					ones[bit] += int(id >> bit & 1)
				}
			}
			// Of 4096 draws of 65536 some 3970 differ, 3890 but for 10^-11; each bit is set
			// in 2048, 8 deviations of 32 more or less but for 10^-14.
			if len(seen) < 3890 {
				t.Errorf("%d numbers in %d draws", len(seen), n)
			}
			for bit, k := range ones {
				if k < n/2-256 || k > n/2+256 {
					t.Errorf("bit %d is set in %d of %d", bit, k, n)
				}
			}
		})
	}
}

// TestSecrets: each secret makes other numbers. Two of 200 meet more than 20 times with a
// probability below 10^-15.
func TestSecrets(t *testing.T) {
	seen := make(map[uint16]bool)
	for i := range byte(200) {
		seen[seeded(t, i).Next(pool, server)] = true
	}
	if len(seen) < 180 {
		t.Errorf("%d numbers by 200 secrets", len(seen))
	}
}

// TestOver: memory that has been in use goes on; what has no room is refused.
func TestOver(t *testing.T) {
	words := make([]uint64, Size/8+1)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), Size)
	first, err := Over(b, rand.NewChaCha8([32]byte{1}))
	if err != nil {
		t.Fatal(err)
	}
	id := first.Next(pool, server)
	kept := bytes.Clone(b)
	second, err := Over(b, rand.NewChaCha8([32]byte{2}))
	if err != nil || !bytes.Equal(kept, b) {
		t.Fatalf("memory in use was changed: %v", err)
	}
	if next := second.Next(pool, server); next != id+1 {
		t.Errorf("%d after %d", next, id)
	}
	for name, bad := range map[string][]byte{"short": b[:Size-1], "odd": unsafe.Slice(&b[1], Size)} {
		if _, err := Over(bad, rand.NewChaCha8([32]byte{})); err == nil {
			t.Errorf("%s memory was taken", name)
		}
	}
	if _, err := New(bytes.NewReader(nil)); err == nil {
		t.Error("no secrets, and no error")
	}
}

// TestNextAllocatesNothing: it is called for each packet.
func TestNextAllocatesNothing(t *testing.T) {
	d := seeded(t, 1)
	if n := testing.AllocsPerRun(100, func() { d.Next(pool, server) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
