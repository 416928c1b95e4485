// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
	"sync/atomic"
)

// Foreign is a copy of the mappings that are not in their peers' addresses, where
// a fast path outside this program reads them. The table writes it before a state
// says that there is such a mapping, and changes the state after each other change
// and before the next. So a reader that finds the state as it was, but for the
// stamp, has read the mapping of that peer, even where memory is used again at once.
type Foreign interface {
	// Put records the mapping of an address; false when it cannot.
	Put(key [16]byte, mapped netip.AddrPort) bool
	// Delete forgets it.
	Delete(key [16]byte)
	// Walk calls f for all of them. f deletes nothing.
	Walk(f func(key [16]byte, mapped netip.AddrPort))
}

// OpenHot is [NewHot] for a slab that a fast path shares: with its seed, its copy
// of the foreign mappings, and the peers that are in it already. Its last writer
// may have ended at any point, even between the two halves of a move, and readers
// may stamp all the while. Peers that this writer had left to its slow path are
// given back, since what they waited for is gone; what cannot be is dropped.
func OpenHot(slab []byte, limit int, prefixes [][4]byte, seed Seed, foreign Foreign, now Instant) (*Hot, error) {
	h, err := overlay(slab, limit, prefixes, seed)
	if err != nil {
		return nil, err
	}
	if foreign != nil {
		foreign.Walk(func(key [16]byte, mapped netip.AddrPort) {
			h.foreign[key] = endpoint{ip: mapped.Addr().As4(), port: mapped.Port()}
		})
		h.mirror = foreign
	}
	for slot := range uint32(len(h.words) / slotWords) {
		h.adopt(slot, now)
	}
	h.dropOrphans()
	return h, nil
}

// adopt counts the peer in a slot, or clears it.
func (h *Hot) adopt(slot uint32, now Instant) {
	s := atomic.LoadUint32(h.state(slot))
	switch {
	case s&stateUsed == 0:
	case !h.plausible(slot, s) || h.doubled(slot, s, now) || !h.join(h.mappingOf(slot, s), mappingLimit):
		h.clear(slot)
	default:
		h.change(slot, stateBusy, 0)
		h.len++
	}
}

// plausible reports whether a slot in use is as this package would have written it.
func (h *Hot) plausible(slot, s uint32) bool {
	if s&stateZero != 0 || int(s&stateTag>>tagShift) >= len(h.prefixes) {
		return false
	}
	key := h.key(slot)
	if _, ok := h.foreign[key]; !ok && s&stateForeign != 0 {
		return false
	}
	n, ok := h.needle(&key)
	// Two equal prefixes would give one peer two tags.
	return ok && n.match == s&(stateUsed|stateTag) && (slot/SlotsPerBucket == n.first || slot/SlotsPerBucket == n.second)
}

// doubled reports whether the peer of a slot is in another slot too, and was heard
// there no earlier: a move that ended half-way.
func (h *Hot) doubled(slot, s uint32, now Instant) bool {
	key := h.key(slot)
	n, _ := h.needle(&key)
	for _, b := range [...]uint32{n.first, n.second} {
		for other := b * SlotsPerBucket; other < (b+1)*SlotsPerBucket; other++ {
			o := atomic.LoadUint32(h.state(other))
			if other == slot || o&(stateUsed|stateTag) != n.match || h.key(other) != key || !h.plausible(other, o) {
				continue
			}
			mine, its := Ref{state: s}.Age(now), Ref{state: o}.Age(now)
			// Of two alike the later slot stays; it is looked at when this one has gone.
			if its < mine || its == mine && other > slot {
				return true
			}
		}
	}
	return false
}

// dropOrphans forgets foreign mappings whose peers are not there, or have the
// mapping in their address.
func (h *Hot) dropOrphans() {
	for key := range h.foreign {
		if r, ok := h.Lookup(&key); !ok || !r.Foreign() {
			h.deleteForeign(&key)
		}
	}
}
