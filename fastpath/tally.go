// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"sync/atomic"
	"unsafe"
)

// Tally counts by the slot of a hash, saturating, for programs that ask whether there is
// anything of that hash. One side alone writes it.
type Tally struct{ words []uint32 }

// TallySlots is how many slots a tally has: as many as a hash of 16 bits.
const TallySlots = 65536

// TallyOver lays it over mapped memory.
func TallyOver(b []byte) Tally {
	return Tally{unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), TallySlots/4)}
}

// full is where a counter stays: what has met so often is never forgotten, until clear.
const full = 255

// Add counts one more.
func (t Tally) Add(slot uint64) {
	word, shift := &t.words[slot/4], slot%4*8
	if n := *word >> shift & full; n < full {
		atomic.StoreUint32(word, *word+1<<shift)
	}
}

// Remove takes back one Add.
func (t Tally) Remove(slot uint64) {
	word, shift := &t.words[slot/4], slot%4*8
	if n := *word >> shift & full; n > 0 && n < full {
		atomic.StoreUint32(word, *word-1<<shift)
	}
}

// Count returns how many there are with the hash; full stands for any number from there.
func (t Tally) Count(slot uint64) uint32 {
	return atomic.LoadUint32(&t.words[slot/4]) >> (slot % 4 * 8) & full
}

// Clear forgets all.
func (t Tally) Clear() {
	for i := range t.words {
		atomic.StoreUint32(&t.words[i], 0)
	}
}
