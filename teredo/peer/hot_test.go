// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/teredo"
)

var hotPrefixes = [][4]byte{{0x20, 0x01}, {0x3f, 0xff, 0, 0x09}}

func seeded(n byte) io.Reader { return rand.NewChaCha8([32]byte{n}) }

func newHot(t testing.TB, limit int) *Hot {
	t.Helper()
	h, err := NewHot(make([]byte, HotBytes(limit)), limit, hotPrefixes, seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// client is the i-th of many Teredo addresses that differ in all their parts.
func client(i int) *[16]byte {
	k := [16]byte{0: 0x20, 1: 0x01}
	if i&1 != 0 {
		k = [16]byte{0: 0x3f, 1: 0xff, 3: 0x09}
	}
	x := uint64(i) * 0x9e3779b97f4a7c15
	binary.BigEndian.PutUint32(k[4:], uint32(x>>40))
	binary.BigEndian.PutUint64(k[8:], x^uint64(i)<<32)
	return &k
}

const stale = 30 * time.Second

func (h *Hot) add(i int, now Instant) Refusal {
	return h.Insert(client(i), teredo.Mapped(client(i)), now, stale, false)
}

func TestHotBytes(t *testing.T) {
	for _, tt := range []struct{ peers, want int }{
		{0, 64}, {1, 64}, {3, 64}, {4, 128}, {1000, 32 << 10},
		{200_000, 4 << 20}, {1_000_000, 32 << 20}, {1 << 20, 32 << 20},
	} {
		if got := HotBytes(tt.peers); got != tt.want {
			t.Errorf("%d peers: %d bytes, want %d", tt.peers, got, tt.want)
		}
		if tt.peers >= 1000 && float64(HotBytes(tt.peers))/float64(tt.peers) > 37.5 {
			t.Errorf("%d peers: more than 37 bytes a peer", tt.peers)
		}
	}
}

// The layout is shared with other programs: one peer, written and read by hand.
func TestHotLayout(t *testing.T) {
	slab := make([]byte, 64)
	h, err := NewHot(slab, 3, hotPrefixes, seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	key := client(1)
	h.Insert(key, netip.MustParseAddrPort("192.0.2.1:4096"), 100*second, stale, true)
	want := make([]byte, 64)
	copy(want, key[4:])
	// used, busy, foreign, the second prefix, first version, 100 s in units of 2^28 ns
	binary.NativeEndian.PutUint32(want[12:], 0x80000000|0x40000000|0x20000000|1<<24|1<<16|372)
	if diff := cmp.Diff(want, slab); diff != "" {
		t.Errorf("the slab (-want +got):\n%s", diff)
	}

	copy(slab[48:], client(2)[4:])
	binary.NativeEndian.PutUint32(slab[60:], 1<<31|7)
	r, ok := h.Lookup(client(2))
	if !ok || r.Busy() || r.Foreign() || r.Heard(10*second) != Instant(7*StampUnit) {
		t.Errorf("a peer written by another program: %+v, %v", r, ok)
	}
}

// The hash is part of the layout.
func TestHotHash(t *testing.T) {
	a, b := hash(&Seed{1, 2, 3, 4, 5}, 1, 0xffffffff, 0x12345678, 0x9abcdef0)
	// 1 + 2*0xffffffff + 3*0x12345678 + 4*0x9abcdef0 + 5 = 0x4a22f7f2c
	h := uint64(1) + 2*0xffffffff + 3*0x12345678 + 4*0x9abcdef0 + 5
	h = (h ^ h>>32) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	if uint64(b)<<32|uint64(a) != h {
		t.Errorf("hash = %x, %x, want %x", a, b, h)
	}
}

func TestNewHotRefuses(t *testing.T) {
	for _, size := range []int{0, 63, 65, 192} {
		if _, err := NewHot(make([]byte, size), 3, hotPrefixes, seeded(1)); err == nil {
			t.Errorf("a slab of %d bytes was accepted", size)
		}
	}
	if _, err := NewHot(make([]byte, 256)[32:96], 3, hotPrefixes, seeded(1)); err == nil {
		t.Error("a slab that is not aligned was accepted")
	}
	if _, err := NewHot(make([]byte, 64), 3, make([][4]byte, 17), seeded(1)); err == nil {
		t.Error("17 prefixes were accepted")
	}
	none := errors.New("no entropy")
	if _, err := NewHot(make([]byte, 64), 3, hotPrefixes, iotest.ErrReader(none)); !errors.Is(err, none) {
		t.Errorf("without randomness: %v", err)
	}
}

const unit = Instant(StampUnit)

func TestStamps(t *testing.T) {
	for age, want := range map[time.Duration]uint16{
		0: 0, 1: 1, StampUnit: 1, StampUnit + 1: 2, 30 * time.Second: 112, -time.Second: 0, 1000 * time.Hour: 65495,
	} {
		if got := Stamps(age); got != want {
			t.Errorf("%s is %d stamps, want %d", age, got, want)
		}
	}
}

func TestHotStamps(t *testing.T) {
	h := newHot(t, 10)
	h.add(1, 0)
	for _, tt := range []struct {
		name  string
		heard Instant
		now   Instant
		want  time.Duration
	}{
		{"at once", 0, 0, 0},
		{"less than the unit", 0, unit - 1, 0},
		{"rounded up, never down by more than the unit", unit - 1, 30 * unit, 30 * StampUnit},
		{"a later core", 100 * second, 99 * second, 0},
		{"once round the stamp", 65536 * unit, 65560 * unit, 24 * StampUnit},
		{"over the end of the stamp", 65535 * unit, 65600 * unit, 65 * StampUnit},
	} {
		r, ok := h.Lookup(client(1))
		h.Touch(r, tt.heard)
		r, ok2 := h.Lookup(client(1))
		if !ok || !ok2 || r.Age(tt.now) != tt.want {
			t.Errorf("%s: age %v, want %v", tt.name, r.Age(tt.now), tt.want)
		}
	}
	old, _ := h.Lookup(client(1))
	h.Delete(client(1))
	h.Touch(old, 70000*unit)
	if _, ok := h.Lookup(client(1)); ok {
		t.Error("a late touch brought a deleted peer back")
	}
}

func TestHotForeignMapping(t *testing.T) {
	h := newHot(t, 16)
	other := netip.MustParseAddrPort("192.0.2.1:4096")
	mapped := func(i int) netip.AddrPort {
		r, ok := h.Lookup(client(i))
		if !ok {
			t.Fatalf("peer %d is lost", i)
		}
		return h.Mapped(client(i), r)
	}
	h.Insert(client(1), other, 0, stale, false)
	h.Insert(client(2), other, 0, stale, false)
	h.add(3, 0)
	if mapped(1) != other || mapped(3) != teredo.Mapped(client(3)) {
		t.Errorf("mappings %s, %s", mapped(1), mapped(3))
	}
	if got := h.Insert(client(4), other, 29*second, stale, false); got != ForeignFull {
		t.Errorf("a third of at most 2 foreign mappings: %v", got)
	}
	r, _ := h.Lookup(client(2))
	h.Touch(r, 20*second)
	if got := h.Insert(client(4), other, 31*second, stale, false); got != Accepted || mapped(2) != other {
		t.Errorf("in the place of a stale one: %v", got)
	}
	if _, ok := h.Lookup(client(1)); ok {
		t.Error("the stale peer is still there, without its mapping")
	}
	h.add(4, 32*second) // it is heard from the mapping in its address now
	if mapped(4) != teredo.Mapped(client(4)) {
		t.Errorf("back to %s", mapped(4))
	}
	h.Delete(client(2))
	if all, foreign := h.Len(); all != 2 || foreign != 0 {
		t.Errorf("%d peers, %d foreign mappings", all, foreign)
	}
}

func TestHotFullSparesWhoIsHeard(t *testing.T) {
	const limit = 1000
	h := newHot(t, limit)
	for i := range limit {
		if got := h.add(i, 0); got != Accepted {
			t.Fatalf("peer %d: %v", i, got)
		}
	}
	for i := limit; i < 2*limit; i++ {
		if got := h.add(i, 29*second); got != TableFull {
			t.Fatalf("peer %d beside a full table of live peers: %v", i, got)
		}
	}
	for i := range limit {
		r, ok := h.Lookup(client(i))
		if !ok {
			t.Fatalf("peer %d was evicted", i)
		}
		if i%2 == 0 {
			h.Touch(r, 29*second)
		}
	}
	accepted := 0
	for i := limit; i < 2*limit; i++ {
		if h.add(i, 31*second) == Accepted {
			accepted++
		}
	}
	if accepted != limit/2 || h.Evictions() != limit/2 || h.len != limit {
		t.Errorf("%d of %d found the place of a stale peer, %d evictions, %d peers", accepted, limit, h.Evictions(), h.len)
	}
	for i := 0; i < limit; i += 2 {
		if _, ok := h.Lookup(client(i)); !ok {
			t.Fatalf("live peer %d was evicted", i)
		}
	}
	if got := h.Insert(&[16]byte{0: 0x20, 1: 0x02}, netip.AddrPort{}, 0, stale, false); got != NoPrefix {
		t.Errorf("an address without prefix: %v", got)
	}
}

// Nearly full, beyond what the limit allows, moves still find a place.
func TestHotMoves(t *testing.T) {
	const slots = 1 << 14
	h, err := NewHot(make([]byte, slots*SlotBytes), slots, hotPrefixes, seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	n := slots * 92 / 100
	for i := range n {
		if got := h.add(i, 0); got != Accepted {
			t.Fatalf("peer %d of %d slots: %v", i, slots, got)
		}
	}
	for i := range n {
		if _, ok := h.Lookup(client(i)); !ok {
			t.Fatalf("peer %d is lost", i)
		}
	}
}

func TestHotSweepInSlices(t *testing.T) {
	h := newHot(t, 1000)
	for i := range 1000 {
		h.add(i, Instant(i)*second)
	}
	slices, removed := 0, 0
	for swept := 0; swept < h.Buckets(); swept += 16 {
		removed += h.Sweep(1000*second, 300*time.Second, 16)
		slices++
	}
	if all, _ := h.Len(); removed != 701 || all != 299 {
		t.Errorf("%d slices removed %d, %d are left", slices, removed, all)
	}
	left := 0
	for next := 0; next >= 0; {
		next = h.Walk(next, 10, func(key [16]byte, r Ref) bool {
			left++
			if r.Age(1000*second) >= 300*time.Second {
				t.Errorf("%v should have gone", key)
			}
			return true
		})
	}
	if left != 299 {
		t.Errorf("walked over %d", left)
	}
	if next := h.Walk(0, h.Buckets(), func([16]byte, Ref) bool { return false }); next != -1 {
		t.Errorf("Walk went on at %d when told to stop", next)
	}
}
