// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"math/bits"
	"sync/atomic"
)

// bitmap is a set of numbers below size.
type bitmap struct {
	words []uint64
	size  uint32
}

// take sets a clear bit, the first from hint on, and returns its number.
func (m bitmap) take(hint uint32) (n uint32, ok bool) {
	at := int(hint/64) % len(m.words)
	for range m.words {
		if n, ok := m.takeIn(at); ok {
			return n, true
		}
		if at++; at == len(m.words) {
			at = 0
		}
	}
	return 0, false
}

// takeIn sets a clear bit of one word.
func (m bitmap) takeIn(at int) (n uint32, ok bool) {
	for {
		free := ^atomic.LoadUint64(&m.words[at])
		if free == 0 {
			return 0, false
		}
		n = uint32(at)*64 + uint32(bits.TrailingZeros64(free))
		if n >= m.size {
			return 0, false
		}
		if m.set(n) {
			return n, true
		}
	}
}

// set sets a bit; false when it was set.
func (m bitmap) set(n uint32) bool {
	bit := uint64(1) << (n % 64)
	return atomic.OrUint64(&m.words[n/64], bit)&bit == 0
}

// give clears a bit.
func (m bitmap) give(n uint32) {
	atomic.AndUint64(&m.words[n/64], ^(uint64(1) << (n % 64)))
}

// has reports whether a bit is set.
func (m bitmap) has(n uint32) bool {
	return atomic.LoadUint64(&m.words[n/64])>>(n%64)&1 != 0
}

// mark sets a bit that is often set already.
func (m bitmap) mark(n uint32) {
	if !m.has(n) {
		m.set(n)
	}
}

// next returns the first set bit from n on, below limit.
func (m bitmap) next(n, limit uint32) (uint32, bool) {
	limit = min(limit, m.size)
	for n < limit {
		if w := atomic.LoadUint64(&m.words[n/64]) >> (n % 64); w != 0 {
			n += uint32(bits.TrailingZeros64(w))
			return n, n < limit
		}
		n = (n/64 + 1) * 64
	}
	return 0, false
}

// count returns how many bits are set.
func (m bitmap) count() (n int) {
	for i := range m.words {
		n += bits.OnesCount64(atomic.LoadUint64(&m.words[i]))
	}
	return n
}

// reset clears all bits.
func (m bitmap) reset() { clear(m.words) }

// fill sets all bits.
func (m bitmap) fill() {
	for i := range m.words {
		m.words[i] = ^uint64(0)
	}
}
