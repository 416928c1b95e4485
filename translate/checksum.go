// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// change is what a checksum must take account of: the sum of the words that came less
// that of the words that went, in one's complement (RFC 1624 equation 3).
type change uint64

// swap notes that the words of was were replaced by those of is, in which an odd
// length is padded with zero.
func (c change) swap(was, is []byte) change { return c.without(was).with(is) }

func (c change) with(is []byte) change {
	return c + change(packet.Fold(packet.Sum(0, is)))
}

func (c change) without(was []byte) change {
	return c + change(^packet.Fold(packet.Sum(0, was)))
}

// word notes one 16-bit word that came, and gone one that went.
func (c change) word(w uint16) change { return c + change(w) }
func (c change) gone(w uint16) change { return c + change(^w) }

// update writes the new checksum over the old one in field. What was wrong stays
// wrong, for the receiver to find.
func (c change) update(field []byte) {
	old := binary.BigEndian.Uint16(field)
	binary.BigEndian.PutUint16(field, ^packet.Fold(uint64(c)+uint64(^old)))
}

// fill writes the checksum of a message whose pseudo-header has the sum acc; the field
// must hold zero.
func fill(field []byte, acc uint64, message []byte) {
	binary.BigEndian.PutUint16(field, ^packet.Fold(packet.Sum(acc, message)))
}

// pseudo6 returns the sum of the IPv6 pseudo-header (RFC 8200 section 8.1).
func pseudo6(src, dst *[16]byte, length int, proto uint8) uint64 {
	acc := packet.Sum(uint64(length)+uint64(proto), src[:])
	return packet.Sum(acc, dst[:])
}
