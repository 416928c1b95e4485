// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"sync/atomic"
	"unsafe"
)

// tally counts by the slot of a hash, saturating, for programs that ask whether there is
// anything of that hash. One side alone writes it.
type tally struct{ words []uint32 }

// tallyOver lays it over mapped memory.
func tallyOver(b []byte) tally {
	return tally{unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)}
}

// full is where a counter stays: what has met so often is never forgotten, until clear.
const full = 255

func (t tally) add(slot uint64) {
	word, shift := &t.words[slot/4], slot%4*8
	if n := *word >> shift & full; n < full {
		atomic.StoreUint32(word, *word+1<<shift)
	}
}

func (t tally) remove(slot uint64) {
	word, shift := &t.words[slot/4], slot%4*8
	if n := *word >> shift & full; n > 0 && n < full {
		atomic.StoreUint32(word, *word-1<<shift)
	}
}

// count returns how many there are with the hash; full stands for any number from there.
func (t tally) count(slot uint64) uint32 {
	return atomic.LoadUint32(&t.words[slot/4]) >> (slot % 4 * 8) & full
}

func (t tally) clear() {
	for i := range t.words {
		atomic.StoreUint32(&t.words[i], 0)
	}
}
