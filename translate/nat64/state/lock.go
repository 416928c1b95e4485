// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// spins bounds the wait for a lock, some 100 us. A program holds one for less than a
// microsecond, unless its core is taken away.
const spins = 1 << 15

// lock takes a lock; false when it stays held.
func lock(word *uint32) bool {
	for range spins {
		if atomic.LoadUint32(word) == 0 && atomic.CompareAndSwapUint32(word, 0, 1) {
			return true
		}
	}
	return false
}

// unlock gives it back.
func unlock(word *uint32) { atomic.StoreUint32(word, 0) }
