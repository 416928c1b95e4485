// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// Refusal is why a peer found no place.
type Refusal uint8

// The refusals.
const (
	Accepted    Refusal = iota
	TableFull           // no place, and none of the peers there is stale
	ForeignFull         // the same among those with a foreign mapping
	MappingFull         // too many peers have this mapping
	NoPrefix            // the address has none of the prefixes
)

// Insert records the peer of an address with its mapping, as heard at now. When
// the table is full it takes the place of a peer not heard for stale; peers heard
// since are never evicted. Of a peer that is there already, mapping and time are
// replaced. busy leaves it to the slow path until [Hot.SetBusy]. One mapping has a
// bounded number of peers, a few when a quarter of the table is taken.
func (h *Hot) Insert(key *[16]byte, mapped netip.AddrPort, now Instant, stale time.Duration, busy bool) Refusal {
	n, ok := h.needle(key)
	if !ok {
		return NoPrefix
	}
	r, known := h.find(&n)
	var before netip.AddrPort
	if known {
		before = h.Mapped(key, r)
	}
	if before != mapped && !h.join(mapped, h.limitAt(mapped != teredo.Mapped(key))) {
		return MappingFull
	}
	refusal := h.insert(key, &n, mapped, now, stale, busy)
	switch {
	case before == mapped:
	case refusal != Accepted:
		h.leave(mapped)
	case known:
		h.leave(before)
	}
	return refusal
}

// insert is Insert of a peer whose mapping is counted.
func (h *Hot) insert(key *[16]byte, n *needle, mapped netip.AddrPort, now Instant, stale time.Duration, busy bool) Refusal {
	state := n.match | uint32(stampOf(now))
	if busy {
		state |= stateBusy
	}
	if mapped != teredo.Mapped(key) {
		if !h.setForeign(key, mapped, now, stale) {
			return ForeignFull
		}
		state |= stateForeign
	} else {
		h.deleteForeign(key)
	}
	if r, ok := h.find(n); ok {
		h.replace(r.slot, state)
		return Accepted
	}
	slot, ok := h.place(n, now, stale)
	if !ok {
		h.deleteForeign(key)
		return TableFull
	}
	h.write(slot, n.k0, n.k1, n.k2, state)
	h.len++
	return Accepted
}

// replace gives a peer another state, and the next version: whoever has read its
// old mapping just before, from memory that is another's by now, sees it by that.
func (h *Hot) replace(slot, state uint32) {
	s := h.state(slot)
	for {
		old := atomic.LoadUint32(s)
		if atomic.CompareAndSwapUint32(s, old, nextVersion(old)|state&^stateVersion) {
			return
		}
	}
}

// nextVersion returns the version after that of a state.
func nextVersion(state uint32) uint32 { return (state&stateVersion + 1<<versionShift) & stateVersion }

// write fills an empty slot.
func (h *Hot) write(slot, k0, k1, k2, state uint32) {
	w := (*[slotWords]uint32)(h.words[slot*slotWords:])
	version := nextVersion(atomic.LoadUint32(&w[stateWord]))
	atomic.StoreUint32(&w[0], k0)
	atomic.StoreUint32(&w[1], k1)
	atomic.StoreUint32(&w[2], k2)
	atomic.StoreUint32(&w[stateWord], state&^stateVersion|version)
}

// setForeign records a foreign mapping, before the state says that there is one.
func (h *Hot) setForeign(key *[16]byte, mapped netip.AddrPort, now Instant, stale time.Duration) bool {
	next := endpoint{ip: mapped.Addr().As4(), port: mapped.Port()}
	old, ok := h.foreign[*key]
	switch {
	case ok && old == next:
		return true
	case !ok && len(h.foreign) >= h.foreignLimit && !h.evictForeign(now, stale):
		return false
	case h.mirror != nil && !h.mirror.Put(*key, mapped):
		return false
	}
	h.foreign[*key] = next
	return true
}

// deleteForeign forgets the foreign mapping of an address, if there is one.
func (h *Hot) deleteForeign(key *[16]byte) {
	if _, ok := h.foreign[*key]; !ok {
		return
	}
	delete(h.foreign, *key)
	if h.mirror != nil {
		h.mirror.Delete(*key)
	}
}

// evictTries is how many buckets, or foreign mappings, are looked at for a stale
// peer: enough to find one if they are a few in a hundred, in a few microseconds.
const evictTries = 64

// evictForeign removes a stale peer with a foreign mapping.
func (h *Hot) evictForeign(now Instant, stale time.Duration) bool {
	tries := 0
	for key := range h.foreign { // starts anywhere
		if r, ok := h.Lookup(&key); ok && r.Age(now) >= stale {
			h.remove(r.slot)
			h.evictions++
			return true
		}
		if tries++; tries == evictTries {
			break
		}
	}
	return false
}

// place returns an empty slot in one of the two buckets, for which it makes room.
func (h *Hot) place(n *needle, now Instant, stale time.Duration) (slot uint32, ok bool) {
	if h.len >= h.limit && !h.evictStale(now, stale) {
		return 0, false
	}
	if slot, ok := h.vacant(n.first); ok {
		return slot, true
	}
	if slot, ok := h.vacant(n.second); ok {
		return slot, true
	}
	if slot, ok := h.dig(n.first, n.second); ok {
		return slot, true
	}
	// Below the limit this practically never happens; a stale neighbour goes.
	for _, b := range [...]uint32{n.first, n.second} {
		for slot := b * SlotsPerBucket; slot < (b+1)*SlotsPerBucket; slot++ {
			if h.stale(slot, now, stale) {
				h.remove(slot)
				h.evictions++
				return slot, true
			}
		}
	}
	return 0, false
}

// evictStale removes one stale peer, found by the hand of the sweeps.
func (h *Hot) evictStale(now Instant, stale time.Duration) bool {
	for range min(evictTries, h.Buckets()) {
		for slot := h.hand * SlotsPerBucket; slot < (h.hand+1)*SlotsPerBucket; slot++ {
			if h.stale(slot, now, stale) {
				h.remove(slot)
				h.evictions++
				return true
			}
		}
		h.hand = (h.hand + 1) & h.mask
	}
	return false
}

// vacant returns an empty slot of a bucket.
func (h *Hot) vacant(bucket uint32) (slot uint32, ok bool) {
	for slot := bucket * SlotsPerBucket; slot < (bucket+1)*SlotsPerBucket; slot++ {
		if atomic.LoadUint32(h.state(slot))&stateUsed == 0 {
			return slot, true
		}
	}
	return 0, false
}

// maxSteps is how many buckets an insertion looks at for a chain of moves that
// ends in an empty slot; it bounds its time, some ten microseconds at worst.
const maxSteps = 256

// step is a bucket that a search has come to: by moving the peer of slot from,
// which is in the bucket of step parent, to its other bucket.
type step struct {
	bucket uint32
	from   uint32
	parent int32 // -1 at the start
}

type search [maxSteps]step

// dig makes an empty slot in one of two full buckets, by the shortest chain of
// moves of peers to their other buckets.
func (h *Hot) dig(first, second uint32) (slot uint32, ok bool) {
	h.path[0] = step{bucket: first, parent: -1}
	h.path[1] = step{bucket: second, parent: -1}
	n := 2
	for i := 0; i < n; i++ {
		at := &h.path[i]
		for slot := at.bucket * SlotsPerBucket; slot < (at.bucket+1)*SlotsPerBucket && n < maxSteps; slot++ {
			next := h.other(slot, at.bucket)
			if h.onPath(int32(i), next) {
				continue
			}
			h.path[n] = step{bucket: next, from: slot, parent: int32(i)}
			n++
			if free, ok := h.vacant(next); ok {
				return h.shift(int32(n-1), free), true
			}
		}
	}
	return 0, false
}

// other returns the other bucket of the peer in a slot.
func (h *Hot) other(slot, bucket uint32) uint32 {
	w := (*[slotWords]uint32)(h.words[slot*slotWords:])
	tag := atomic.LoadUint32(&w[stateWord]) & stateTag >> tagShift
	a, b := hash(&h.seed, tag, atomic.LoadUint32(&w[0]), atomic.LoadUint32(&w[1]), atomic.LoadUint32(&w[2]))
	if a &= h.mask; a != bucket {
		return a
	}
	return b & h.mask
}

// onPath reports whether the way to step i has been in the bucket: a chain must not
// move what it has moved already.
func (h *Hot) onPath(i int32, bucket uint32) bool {
	for ; i >= 0; i = h.path[i].parent {
		if h.path[i].bucket == bucket {
			return true
		}
	}
	return false
}

// shift moves the peers of a chain, the last one first into the slot that is free,
// and returns the slot that is free then.
func (h *Hot) shift(i int32, free uint32) uint32 {
	for h.path[i].parent >= 0 {
		from := h.path[i].from
		h.move(from, free)
		free = from
		i = h.path[i].parent
	}
	return free
}

// move copies a peer to an empty slot, then clears the old one, so that it is
// always in one of them.
func (h *Hot) move(from, to uint32) {
	w := (*[slotWords]uint32)(h.words[from*slotWords:])
	copied := atomic.LoadUint32(&w[stateWord])
	h.write(to, atomic.LoadUint32(&w[0]), atomic.LoadUint32(&w[1]), atomic.LoadUint32(&w[2]), copied)
	last := h.clear(from)
	if last&stateStamp != copied&stateStamp {
		h.change(to, stateStamp, last&stateStamp) // touched while it moved
	}
}
