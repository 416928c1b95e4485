// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"
	"testing"
)

func router(n int) *[16]byte {
	a := [16]byte{0x20, 1, 0x0d, 0xb8}
	binary.BigEndian.PutUint64(a[8:], uint64(n))
	return &a
}

// TestRouters: as many routers of a traceroute as a small pool has addresses, or as are
// looked for in a large one, have one each; beyond that, who was silent longest gives way.
func TestRouters(t *testing.T) {
	for _, size := range []uint64{1, 2, 3, 7, 8, 64, MaxRouters, MaxRouters + 1, 1 << 32} {
		for seed := range uint64(50) {
			r := NewRouters(seed)
			many := int(min(size, routerPlaces))
			taken := make(map[uint64]int)
			for round := range 2 {
				for i := range many {
					n := r.place(&r.from6, router(i), size)
					if n >= min(size, MaxRouters) {
						t.Fatalf("size %d: place %d", size, n)
					}
					if other, ok := taken[n]; ok != (round == 1) || ok && other != i {
						t.Fatalf("size %d, seed %d: router %d has the place %d of %d", size, seed, i, n, other)
					}
					taken[n] = i
				}
			}
		}
	}
	r := NewRouters(1)
	first := r.place(&r.from6, router(0), 2)
	second := r.place(&r.from6, router(1), 2)
	if got := r.place(&r.from6, router(2), 2); got != first {
		t.Errorf("the third of two has place %d, want %d, whose router was silent longest", got, first)
	}
	if got := r.place(&r.from6, router(1), 2); got != second {
		t.Errorf("the second moved from %d to %d", second, got)
	}
	if got := r.place(&r.from4, router(9), 2); got > 1 || r.from4 == r.from6 {
		t.Error("routers of the other family share the memory")
	}
}

// A flood of errors with forged sources costs no memory, and allocates nothing.
func TestRoutersBounded(t *testing.T) {
	r := NewRouters(1)
	i := 0
	if n := testing.AllocsPerRun(10000, func() { i++; r.place(&r.from6, router(i), 1<<20) }); n != 0 {
		t.Errorf("%v allocations for a router", n)
	}
}
