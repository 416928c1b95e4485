// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

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
