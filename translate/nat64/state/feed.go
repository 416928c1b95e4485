// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"math/bits"
	"sync/atomic"
)

// Change is a session that was made, or ended, or has another state: as it is now.
type Change struct {
	Index   uint32
	Gone    bool    // there is none in the record
	Session Session // the rest, unless Gone
}

// Feed tells a copy of the table elsewhere what has changed. It takes no more memory
// however much that is: of several changes of a record the last is told.
type Feed struct {
	table *Table
	word  int // of the dirty bits, where to go on
}

// Feed returns the table's feed. There is one: what one reader was told, another is not.
func (t *Table) Feed() *Feed { return &t.feed }

// Changes fills buf with changes that were not told before, and returns how many these
// are; fewer than buf has room for when there are no more now.
func (f *Feed) Changes(buf []Change) (n int) {
	dirty := f.table.dirty.words
	for range len(dirty) {
		n += f.drain(&dirty[f.word], buf[n:])
		if n == len(buf) {
			return n
		}
		if f.word++; f.word == len(dirty) {
			f.word = 0
		}
	}
	return n
}

// drain tells the changes of one word of bits, as many as there is room for.
func (f *Feed) drain(word *uint64, buf []Change) (n int) {
	for n < len(buf) {
		w := atomic.LoadUint64(word)
		if w == 0 {
			return n
		}
		bit := w & -w
		// First the bit, then the record: what changes from here on sets it again.
		atomic.AndUint64(word, ^bit)
		c := &buf[n]
		c.Index = uint32(f.word*64 + bits.TrailingZeros64(bit))
		c.Gone = !f.table.View(c.Index, &c.Session)
		n++
	}
	return n
}

// Resync lets all sessions that there are, and all that have just ended, be told again.
func (f *Feed) Resync() {
	t := f.table
	for i := range t.dirty.words {
		atomic.OrUint64(&t.dirty.words[i], atomic.LoadUint64(&t.sessionsUsed.words[i]))
	}
}
