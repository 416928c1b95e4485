// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import "math/bits"

// The layout of a [Hot] table. Go and C share it, so it is a contract: a change
// needs a new version of whatever pins a table.
//
// The slab is an array of buckets, a power of two of them, each one cache line:
//
//	bucket, 64 bytes            slot, 16 bytes
//	 0  slot 0                   0  key[3], 32-bit words: bytes 4 to 15 of the
//	16  slot 1                      IPv6 address as they lie in a packet
//	32  slot 2                  12  state, one 32-bit word in host order
//	48  slot 3
//
//	state
//	31      used: the slot holds a peer; a zeroed slab is an empty table
//	30      busy: whoever holds no lock leaves the peer to the slow path
//	29      foreign: the mapping is not the one in the address; it is in a
//	        table of its own, see [Foreign]
//	28      0
//	27..24  tag: which of the Teredo prefixes the address has
//	23..16  version: counts what the slot has held
//	15..0   stamp: last reception in units of 2^28 ns, modulo 65536
//
// A peer is in one of two buckets. With the three words k0, k1, k2 of its key as
// they are loaded in host order, its tag t and the five random words s0 to s4:
//
//	h  = s0 + s1*k0 + s2*k1 + s3*k2 + s4*t     (64 bits)
//	h ^= h >> 32;  h *= 0x9e3779b97f4a7c15;  h ^= h >> 29
//	first bucket: h modulo the number of buckets; second: (h >> 32) modulo the same
//
// The sum is strongly universal, so whoever does not know the seed cannot choose
// addresses that meet; the rest spreads what is regular.
//
// One writer at a time clears "used", writes the key, and publishes the state with
// the next version. A reader loads the state, compares the key, and loads the
// state again: if anything but the stamp has changed, the slot is no match. A
// peer that moves to its other bucket is written there before it is cleared here;
// a reader may still miss it, so a miss means "ask the slow path", not "unknown".
// Stamps are set by compare-and-swap, so that none revives a cleared slot.
const (
	// BucketBytes is the size of a bucket.
	BucketBytes = 64
	// SlotBytes is the size of a slot.
	SlotBytes = 16
	// SlotsPerBucket is how many peers a bucket holds.
	SlotsPerBucket = BucketBytes / SlotBytes
	// KeyOffset and StateOffset are where key and state lie in a slot.
	KeyOffset   = 0
	StateOffset = 12

	slotWords   = SlotBytes / 4
	bucketWords = BucketBytes / 4
	stateWord   = StateOffset / 4
)

// The bits of a state.
const (
	stateUsed    uint32 = 1 << 31
	stateBusy    uint32 = 1 << 30
	stateForeign uint32 = 1 << 29
	stateZero    uint32 = 1 << 28
	stateTag     uint32 = 0xf << tagShift
	stateVersion uint32 = 0xff << versionShift
	stateStamp   uint32 = 0xffff

	tagShift     = 24
	versionShift = 16
)

// MaxPrefixes is how many Teredo prefixes the tag of a state can distinguish.
const MaxPrefixes = 16

// seedWords is how many random 64-bit words the hash takes.
const seedWords = 5

// hash returns the two buckets of a key, before they are cut to the number of
// buckets.
func hash(seed *Seed, tag, k0, k1, k2 uint32) (first, second uint32) {
	h := seed[0] + seed[1]*uint64(k0) + seed[2]*uint64(k1) + seed[3]*uint64(k2) + seed[4]*uint64(tag)
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	return uint32(h), uint32(h >> 32)
}

// fullness is how much of a table's slots may be in use, in eighths: below it an
// insertion needs few moves, and practically never fails.
const fullness = 7

// HotBytes returns the size of the slab for so many peers: 64 MiB or less for a
// million, 18 to 37 bytes a peer.
func HotBytes(peers int) int {
	buckets := (max(peers, 1)*8/fullness + SlotsPerBucket) / SlotsPerBucket
	return BucketBytes << bits.Len(uint(buckets-1))
}
