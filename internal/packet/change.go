// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// Change is what a checksum must take account of: the sum of the words that came less
// that of the words that went, in one's complement (RFC 1624 equation 3).
type Change uint64

// Swap notes that the words of was were replaced by those of is, in which an odd
// length is padded with zero.
func (c Change) Swap(was, is []byte) Change { return c.Without(was).With(is) }

// With notes words that came, and Without words that went.
func (c Change) With(is []byte) Change { return c + Change(Fold(Sum(0, is))) }

// Without is the counterpart of [Change.With].
func (c Change) Without(was []byte) Change { return c + Change(^Fold(Sum(0, was))) }

// Word notes one 16-bit word that came, and Gone one that went.
func (c Change) Word(w uint16) Change { return c + Change(w) }

// Gone is the counterpart of [Change.Word].
func (c Change) Gone(w uint16) Change { return c + Change(^w) }

// Update writes the new checksum over the old one in field. What was wrong stays
// wrong, for the receiver to find.
func (c Change) Update(field []byte) {
	old := binary.BigEndian.Uint16(field)
	binary.BigEndian.PutUint16(field, ^Fold(uint64(c)+uint64(^old)))
}
