// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"math/bits"
)

// Sum adds the bytes of b to the one's complement sum acc, as 16-bit words in
// network order (RFC 1071). An odd last byte counts as the high half of a word,
// so only the last part of a message may have an odd length. Eight bytes are
// added at a time: the sum is the same for any word size that 16 divides.
func Sum(acc uint64, b []byte) uint64 {
	var carry uint64
	for len(b) >= 8 {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	var tail uint64
	for i := 0; i+1 < len(b); i += 2 {
		tail += uint64(b[i])<<8 | uint64(b[i+1])
	}
	if len(b)%2 == 1 {
		tail += uint64(b[len(b)-1]) << 8
	}
	acc, carry = bits.Add64(acc, tail, carry)
	return acc + carry
}

// Fold reduces a sum to 16 bits; the checksum field holds its complement.
func Fold(acc uint64) uint16 {
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	return uint16(acc)
}

// Checksum returns the upper-layer checksum of payload carried by next header
// proto between src and dst, with the IPv6 pseudo-header (RFC 8200 section 8.1).
// Over a payload that already holds its checksum the result is 0 when it is right.
func Checksum(src, dst *[16]byte, proto byte, payload []byte) uint16 {
	acc := Sum(uint64(len(payload))+uint64(proto), src[:])
	acc = Sum(acc, dst[:])
	return ^Fold(Sum(acc, payload))
}
