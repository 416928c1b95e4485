// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"math/bits"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// tsns are the TSNs that have come: all up to one, and some behind it.
type tsns struct {
	cumulative uint32
	beyond     []uint64 // a bit for each TSN behind the cumulative one, the first in the lowest bit
}

// farthest is how far behind the cumulative TSN one may be: as far as a gap can be told (RFC 9260 section
// 3.3.4).
const farthest = 1<<16 - 1

// near reports whether a TSN can be kept.
func (t *tsns) near(tsn uint32) bool { return tsn-t.cumulative <= farthest }

// has reports whether a TSN has come.
func (t *tsns) has(tsn uint32) bool {
	if !before(t.cumulative, tsn) {
		return true
	}
	i := int(tsn - t.cumulative - 1)
	return i/64 < len(t.beyond) && t.beyond[i/64]>>(i%64)&1 != 0
}

// add keeps a TSN that is near, and has not come.
func (t *tsns) add(tsn uint32) {
	i := int(tsn - t.cumulative - 1)
	if i == 0 && len(t.beyond) == 0 {
		t.cumulative++
		return
	}
	for i/64 >= len(t.beyond) {
		t.beyond = append(t.beyond, 0)
	}
	t.beyond[i/64] |= 1 << (i % 64)
	t.advance()
}

// skip takes all up to a TSN for come (RFC 3758 section 3.6).
func (t *tsns) skip(tsn uint32) {
	if !before(t.cumulative, tsn) {
		return
	}
	t.shift(int(tsn - t.cumulative))
	t.advance()
}

// advance moves the cumulative TSN over those that have come.
func (t *tsns) advance() {
	n := 0
	for _, word := range t.beyond {
		ones := bits.TrailingZeros64(^word)
		if n += ones; ones < 64 {
			break
		}
	}
	t.shift(n)
}

// shift moves the cumulative TSN by so many.
func (t *tsns) shift(n int) {
	if n == 0 {
		return
	}
	t.cumulative += uint32(n)
	words, by := min(n/64, len(t.beyond)), n%64
	rest := t.beyond[words:]
	for i := range rest {
		rest[i] >>= by
		if by > 0 && i+1 < len(rest) {
			rest[i] |= rest[i+1] << (64 - by)
		}
	}
	left := copy(t.beyond, rest)
	for left > 0 && t.beyond[left-1] == 0 {
		left--
	}
	if t.beyond = t.beyond[:left]; left == 0 && cap(t.beyond) > keptPlaces {
		t.beyond = nil // an idle association is small
	}
}

// gapless reports whether nothing has come behind the cumulative TSN.
func (t *tsns) gapless() bool { return len(t.beyond) == 0 }

// highest is the highest TSN that has come.
func (t *tsns) highest() uint32 {
	last := len(t.beyond) - 1
	if last < 0 {
		return t.cumulative
	}
	return t.cumulative + uint32(last*64+bits.Len64(t.beyond[last]))
}

// gaps appends what has come behind the cumulative TSN, as many blocks as there may be at most.
func (t *tsns) gaps(list []chunk.Block, most int) []chunk.Block {
	open := -1
	for i := 0; i < 64*len(t.beyond) && len(list) < most; i++ {
		word := t.beyond[i/64] >> (i % 64)
		switch {
		case open < 0 && word == 0: // none in the rest of the word
			i |= 63
		case open < 0:
			i += bits.TrailingZeros64(word)
			open = i
		case ^word&(1<<(64-i%64)-1) == 0 && i%64 == 0: // all of the word
			i |= 63
		case word&1 == 0:
			list = append(list, chunk.Block{First: uint16(open + 1), Last: uint16(i)})
			open = -1
		}
	}
	if open >= 0 && len(list) < most {
		list = append(list, chunk.Block{First: uint16(open + 1), Last: uint16(t.highest() - t.cumulative)})
	}
	return list
}
