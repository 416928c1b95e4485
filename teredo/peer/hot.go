// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/isthmus-net/isthmus/teredo"
)

// StampUnit is the resolution of the time of last reception in a [Hot] table, some
// 268 ms: a power of two of nanoseconds, since a fast path shifts faster than it
// divides.
const StampUnit = time.Duration(1) << stampShift

const stampShift = 28

// Stamps returns the least number of [StampUnit] that make a peer as old as age, so
// that comparing with it is comparing with age.
func Stamps(age time.Duration) uint16 {
	return uint16(min(max((age+StampUnit-1)>>stampShift, 0), 1<<16-1-skew))
}

// Seed is the random words of a table's hash.
type Seed [seedWords]uint64

// NewSeed draws a seed from rand, which must be a cryptographic source.
func NewSeed(rand io.Reader) (seed Seed, err error) {
	var b [8 * seedWords]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return seed, fmt.Errorf("no random seed for the peer table: %w", err)
	}
	for i := range seed {
		seed[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return seed, nil
}

// Hot is a table of trusted Teredo peers in one flat slab of memory, which a
// fast path outside this program can share; layout.go has the layout. What a
// packet needs of such a peer is little: that it is there, when it was heard, and
// its mapping, which is in its address, but for a few behind symmetric NATs.
//
// [Hot.Lookup], [Hot.Touch] and [Hot.Walk] may be called at any time by anybody;
// everything else by one at a time.
type Hot struct {
	words    []uint32 // the slab
	mask     uint32   // number of buckets less one
	seed     Seed
	prefixes [][4]byte

	limit     int
	len       int
	hand      uint32 // bucket that is looked at next for stale peers
	evictions uint64

	foreign      map[[16]byte]endpoint
	foreignLimit int
	counters     []uint8 // of peers by their mapping, one for each slot; see join
	mirror       Foreign // of foreign; nil: none
	path         search  // scratch space of an insertion
}

// endpoint is an IPv4 address and port.
type endpoint struct {
	ip   [4]byte
	port uint16
}

// foreignShare is the part of the peers that may have a foreign mapping. Such an
// entry takes some 50 bytes more.
const foreignShare = 8

// ForeignLimit returns how many of so many peers may have a foreign mapping.
func ForeignLimit(peers int) int { return max(peers/foreignShare, 1) }

// NewHot makes an empty table of at most limit peers below these Teredo prefixes,
// in a slab of [HotBytes] zero bytes. Its seed comes from rand, which must be a
// cryptographic source.
func NewHot(slab []byte, limit int, prefixes [][4]byte, rand io.Reader) (*Hot, error) {
	seed, err := NewSeed(rand)
	if err != nil {
		return nil, err
	}
	return overlay(slab, limit, prefixes, seed)
}

// overlay lays a table over a slab.
func overlay(slab []byte, limit int, prefixes [][4]byte, seed Seed) (*Hot, error) {
	buckets := len(slab) / BucketBytes
	switch {
	case buckets == 0 || len(slab)%BucketBytes != 0 || buckets&(buckets-1) != 0:
		return nil, fmt.Errorf("a peer table of %d bytes cannot be: it needs a power of two of buckets of %d bytes", len(slab), BucketBytes)
	case uintptr(unsafe.Pointer(&slab[0]))%BucketBytes != 0:
		return nil, errors.New("the memory of the peer table does not start at a cache line")
	case len(prefixes) > MaxPrefixes:
		return nil, fmt.Errorf("%d Teredo prefixes are too many for one peer table: use at most %d", len(prefixes), MaxPrefixes)
	}
	return &Hot{
		words: unsafe.Slice((*uint32)(unsafe.Pointer(&slab[0])), len(slab)/4),
		mask:  uint32(buckets - 1), seed: seed,
		prefixes: prefixes, limit: max(limit, 1), foreignLimit: ForeignLimit(limit),
		foreign: make(map[[16]byte]endpoint), counters: make([]uint8, buckets*SlotsPerBucket),
	}, nil
}

// Seed returns the seed of the table's hash.
func (h *Hot) Seed() Seed { return h.seed }

// Ref is a peer as a look-up found it. It tells nothing of later changes.
type Ref struct {
	slot  uint32
	state uint32
}

// Busy reports whether the peer must be left to the slow path.
func (r Ref) Busy() bool { return r.state&stateBusy != 0 }

// Foreign reports whether the peer's mapping is not the one in its address. Only
// [Hot.Mapped] knows it.
func (r Ref) Foreign() bool { return r.state&stateForeign != 0 }

// Age returns how long before now the peer was last heard, rounded to
// [StampUnit] such that no peer looks younger than it is by more than that.
func (r Ref) Age(now Instant) time.Duration {
	age := stampOf(now) - uint16(r.state)
	if age > 1<<16-skew {
		return 0
	}
	return time.Duration(age) * StampUnit
}

// Heard returns when the peer was last heard, by the clock at now.
func (r Ref) Heard(now Instant) Instant {
	return now - now%Instant(StampUnit) - Instant(r.Age(now))
}

// skew is how much older than a stamp the time of another core may be, in
// [StampUnit]. Ages go up to four and a half hours; sweeps remove peers long
// before.
const skew = 40

func stampOf(at Instant) uint16 { return uint16(at >> stampShift) }

// Len returns the number of peers, and how many of them have a foreign mapping.
func (h *Hot) Len() (all, foreign int) { return h.len, len(h.foreign) }

// Evictions returns how many peers have lost their place to others.
func (h *Hot) Evictions() uint64 { return h.evictions }

// Buckets returns the number of buckets.
func (h *Hot) Buckets() int { return int(h.mask) + 1 }

// needle is what a search looks for.
type needle struct {
	match         uint32 // used and tag bits of the state
	k0, k1, k2    uint32
	first, second uint32 // buckets
}

// needle makes the needle of an address; false when it has none of the prefixes.
func (h *Hot) needle(key *[16]byte) (n needle, ok bool) {
	for i := range h.prefixes {
		if [4]byte(key[:4]) == h.prefixes[i] {
			n.k0 = binary.NativeEndian.Uint32(key[4:])
			n.k1 = binary.NativeEndian.Uint32(key[8:])
			n.k2 = binary.NativeEndian.Uint32(key[12:])
			n.match = stateUsed | uint32(i)<<tagShift
			n.first, n.second = hash(&h.seed, uint32(i), n.k0, n.k1, n.k2)
			n.first &= h.mask
			n.second &= h.mask
			return n, true
		}
	}
	return n, false
}

// Lookup returns the peer of an IPv6 address. A miss may be an error of the
// moment while another writes: what holds no lock asks again with it.
func (h *Hot) Lookup(key *[16]byte) (Ref, bool) {
	n, ok := h.needle(key)
	if !ok {
		return Ref{}, false
	}
	return h.find(&n)
}

func (h *Hot) find(n *needle) (Ref, bool) {
	if r, ok := h.findIn(n.first, n); ok {
		return r, true
	}
	return h.findIn(n.second, n)
}

func (h *Hot) findIn(bucket uint32, n *needle) (Ref, bool) {
	w := (*[bucketWords]uint32)(h.words[bucket*bucketWords:])
	for i := 0; i < bucketWords; i += slotWords {
		s := atomic.LoadUint32(&w[i+stateWord])
		if s&(stateUsed|stateTag) != n.match || atomic.LoadUint32(&w[i]) != n.k0 ||
			atomic.LoadUint32(&w[i+1]) != n.k1 || atomic.LoadUint32(&w[i+2]) != n.k2 {
			continue
		}
		if (atomic.LoadUint32(&w[i+stateWord])^s)&^stateStamp != 0 {
			continue // written meanwhile: what was compared may be of two peers
		}
		return Ref{slot: bucket*SlotsPerBucket + uint32(i/slotWords), state: s}, true
	}
	return Ref{}, false
}

// Touch records that the peer was heard at now.
func (h *Hot) Touch(r Ref, now Instant) {
	if stamp := stampOf(now); uint16(r.state) != stamp {
		// If it fails another was here with the same news, or the peer is gone.
		atomic.CompareAndSwapUint32(h.state(r.slot), r.state, r.state&^stateStamp|uint32(stamp))
	}
}

// state returns the state of a slot.
func (h *Hot) state(slot uint32) *uint32 { return &h.words[slot*slotWords+stateWord] }

// Mapped returns the mapping of a peer that [Hot.Lookup] found.
func (h *Hot) Mapped(key *[16]byte, r Ref) netip.AddrPort {
	if r.Foreign() {
		if m, ok := h.foreign[*key]; ok {
			return netip.AddrPortFrom(netip.AddrFrom4(m.ip), m.port)
		}
	}
	return teredo.Mapped(key)
}

// mappingOf returns the mapping of the peer in a slot, which is in this state.
func (h *Hot) mappingOf(slot, state uint32) netip.AddrPort {
	key := h.key(slot)
	return h.Mapped(&key, Ref{slot: slot, state: state})
}

// SetBusy leaves the peer of an address, if there is one, to the slow path, or
// gives it back.
func (h *Hot) SetBusy(key *[16]byte, busy bool) {
	if r, ok := h.Lookup(key); ok {
		var set uint32
		if busy {
			set = stateBusy
		}
		h.change(r.slot, stateBusy, set)
	}
}

// change replaces some bits of a state, while others may stamp it.
func (h *Hot) change(slot, mask, bits uint32) {
	s := h.state(slot)
	for {
		old := atomic.LoadUint32(s)
		if atomic.CompareAndSwapUint32(s, old, old&^mask|bits) {
			return
		}
	}
}

// Delete removes the peer of an address, if there is one.
func (h *Hot) Delete(key *[16]byte) {
	if r, ok := h.Lookup(key); ok {
		h.remove(r.slot)
	}
}

// remove clears a slot that is in use.
func (h *Hot) remove(slot uint32) {
	s := atomic.LoadUint32(h.state(slot))
	h.leave(h.mappingOf(slot, s))
	if s&stateForeign != 0 {
		key := h.key(slot)
		h.deleteForeign(&key)
	}
	h.clear(slot)
	h.len--
}

// clear empties a slot and returns its last state.
func (h *Hot) clear(slot uint32) uint32 {
	s := h.state(slot)
	return atomic.SwapUint32(s, atomic.LoadUint32(s)&stateVersion)
}

// key returns the address in a slot.
func (h *Hot) key(slot uint32) (key [16]byte) {
	w := (*[slotWords]uint32)(h.words[slot*slotWords:])
	tag := int(atomic.LoadUint32(&w[stateWord]) & stateTag >> tagShift)
	if tag < len(h.prefixes) {
		copy(key[:], h.prefixes[tag][:])
	}
	binary.NativeEndian.PutUint32(key[4:], atomic.LoadUint32(&w[0]))
	binary.NativeEndian.PutUint32(key[8:], atomic.LoadUint32(&w[1]))
	binary.NativeEndian.PutUint32(key[12:], atomic.LoadUint32(&w[2]))
	return key
}

// Walk calls f for the peers in n buckets from the one given, until f returns
// false, and returns the bucket to go on with, or -1 behind the last. While
// others write, a peer may be met twice or not at all.
func (h *Hot) Walk(from, n int, f func(key [16]byte, r Ref) bool) (next int) {
	for b := max(from, 0); b <= int(h.mask); b++ {
		if b >= from+n {
			return b
		}
		for slot := uint32(b) * SlotsPerBucket; slot < uint32(b+1)*SlotsPerBucket; slot++ {
			s := atomic.LoadUint32(h.state(slot))
			if s&stateUsed == 0 {
				continue
			}
			key := h.key(slot)
			if (atomic.LoadUint32(h.state(slot))^s)&^stateStamp == 0 && !f(key, Ref{slot: slot, state: s}) {
				return -1
			}
		}
	}
	return -1
}

// Sweep looks at the next n buckets, removes the peers not heard for age, and
// returns how many those were. It goes round: the caller does it in slices so
// small, and so often, that none is felt and each bucket has its turn in time.
func (h *Hot) Sweep(now Instant, age time.Duration, n int) (removed int) {
	for range min(n, h.Buckets()) {
		for slot := h.hand * SlotsPerBucket; slot < (h.hand+1)*SlotsPerBucket; slot++ {
			if h.stale(slot, now, age) {
				h.remove(slot)
				removed++
			}
		}
		h.hand = (h.hand + 1) & h.mask
	}
	return removed
}

// stale reports whether a slot holds a peer not heard for age.
func (h *Hot) stale(slot uint32, now Instant, age time.Duration) bool {
	s := atomic.LoadUint32(h.state(slot))
	return s&stateUsed != 0 && Ref{state: s}.Age(now) >= age
}
