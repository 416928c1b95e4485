// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/teredo"
)

// addressAt is the i-th address that a client at this mapping could have: each names another
// server.
func addressAt(mapped netip.AddrPort, i int) *[16]byte {
	server := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
	key := teredo.Addr{Prefix: netip.MustParsePrefix("2001::/32"), Server: server, Mapped: mapped}.IP().As16()
	return &key
}

// One mapping takes a part of the table, however many addresses it has, and gives it back.
func TestPeersOfOneMapping(t *testing.T) {
	const limit = 1000
	for _, tt := range []struct {
		name    string
		known   int // peers of others
		foreign bool
		want    int
	}{
		{"in an empty table", 0, false, mappingLimit},
		{"in a table a quarter full", limit / 4, false, crowdedMappingLimit},
		{"not in the addresses", 0, true, limit / foreignShare / 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slab := make([]byte, HotBytes(limit))
			m := newMappings()
			h := sharedTable(t, slab, limit, m, 0)
			for i := range tt.known {
				h.add(i, 0)
			}
			key := func(i int) *[16]byte {
				if tt.foreign {
					return client(limit + i)
				}
				return addressAt(mapping, i)
			}
			accepted := 0
			for i := range 2 * limit {
				switch got := h.Insert(key(i), mapping, 0, stale, false); got {
				case Accepted:
					accepted++
				case MappingFull:
				default:
					t.Fatalf("address %d: %v", i, got)
				}
			}
			if accepted != tt.want {
				t.Errorf("%d peers of one mapping, want %d", accepted, tt.want)
			}
			if got := h.Insert(key(0), mapping, second, stale, false); got != Accepted {
				t.Errorf("one that is there already: %v", got)
			}
			if got := h.add(5*limit, 0); got != Accepted {
				t.Errorf("another client: %v", got)
			}
			// The next process counts them again.
			h = sharedTable(t, slab, limit, m, 0)
			if got := h.Insert(key(2*limit), mapping, 0, stale, false); got != MappingFull {
				t.Errorf("after a restart: %v", got)
			}
			h.Sweep(100*second, stale, h.Buckets())
			for i, n := range h.counters {
				if n != 0 {
					t.Fatalf("the table is empty, but %d peers count in %d", n, i)
				}
			}
		})
	}
}

// A peer that moves counts where it is, and is not moved to a mapping that is full.
func TestMovesAreCounted(t *testing.T) {
	h := newHot(t, 1000)
	for i := range crowdedMappingLimit {
		h.add(i, 0)
		h.Insert(client(i), mapping, 0, stale, false)
	}
	for i := range h.foreignLimit / 4 { // now a quarter of the places for such is taken
		h.Insert(client(100+i), netip.AddrPortFrom(mapping.Addr(), uint16(2000+i)), 0, stale, false)
	}
	h.add(50, 0)
	if got := h.Insert(client(50), mapping, 0, stale, false); got != MappingFull {
		t.Errorf("to a mapping that is full: %v", got)
	}
	if r, ok := h.Lookup(client(50)); !ok || h.Mapped(client(50), r) != teredo.Mapped(client(50)) {
		t.Error("it should be where it was")
	}
	h.add(0, 0) // one goes home
	if got := h.Insert(client(50), mapping, 0, stale, false); got != Accepted {
		t.Errorf("to the place of one that has gone: %v", got)
	}
}

// A slab of more peers at one mapping than there may be is cut down.
func TestAdoptPeersOfOneMapping(t *testing.T) {
	const limit = 1000
	slab := make([]byte, HotBytes(limit))
	h := sharedTable(t, slab, limit, newMappings(), 0)
	for i := range 2 * mappingLimit {
		n, _ := h.needle(addressAt(mapping, i))
		if slot, ok := h.vacant(n.first); ok {
			h.write(slot, n.k0, n.k1, n.k2, n.match)
		}
	}
	h = sharedTable(t, slab, limit, newMappings(), 0)
	left := len(heardAt(h, 0))
	if all, _ := h.Len(); all != mappingLimit || left != mappingLimit {
		t.Errorf("%d peers of one mapping are taken over, %d are there", all, left)
	}
}
