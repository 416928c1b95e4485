// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import "math/bits"

const (
	wordBits  = 6 // each word has the bits of 64 numbers
	levelsAll = 11
)

// numbers is a set of 64-bit numbers that finds the next one that is not in it by a few
// steps. A word of level 0 has a bit for each of 64 numbers; one of each level above, a
// bit for each of 64 words below, set where that is full. Words without a bit have no
// memory.
type numbers struct {
	levels [levelsAll]map[uint64]uint64
}

func (s *numbers) has(n uint64) bool {
	return s.levels[0][n>>wordBits]>>(n%64)&1 != 0
}

// add adds a number.
func (s *numbers) add(n uint64) {
	for k := range s.levels {
		if s.levels[k] == nil {
			s.levels[k] = make(map[uint64]uint64)
		}
		word := s.levels[k][n>>wordBits] | 1<<(n%64)
		s.levels[k][n>>wordBits] = word
		if word != ^uint64(0) {
			return
		}
		n >>= wordBits
	}
}

// remove removes a number that is there.
func (s *numbers) remove(n uint64) {
	for k := range s.levels {
		old := s.levels[k][n>>wordBits]
		if word := old &^ (1 << (n % 64)); word != 0 {
			s.levels[k][n>>wordBits] = word
		} else {
			delete(s.levels[k], n>>wordBits)
		}
		if old != ^uint64(0) {
			return
		}
		n >>= wordBits
	}
}

// free returns the first number of a span that is not in the set.
func (s *numbers) free(in span) (n uint64, ok bool) {
	k, at := 0, in.first
	for ; ; k++ { // up, until something to the right is free
		if at > in.last>>(k*wordBits) {
			return 0, false
		}
		if left := ^s.levels[k][at>>wordBits] >> (at % 64); left != 0 {
			at += uint64(bits.TrailingZeros64(left))
			break
		}
		at = at>>wordBits + 1
	}
	if at > in.last>>(k*wordBits) {
		return 0, false
	}
	for ; k > 0; k-- { // and down to the first of it
		at = at<<wordBits + uint64(bits.TrailingZeros64(^s.levels[k-1][at]))
	}
	return at, at <= in.last
}
