// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// SetDSCP gives an IPv4 or IPv6 packet another code point (RFC 2474). Its ECN field stays; of IPv4
// the checksum takes account of the change (RFC 1624).
func SetDSCP(p []byte, dscp uint8) {
	was := binary.BigEndian.Uint16(p)
	if p[0]>>4 == 6 {
		binary.BigEndian.PutUint16(p, was&^0x0fc0|uint16(dscp)<<6)
		return
	}
	is := was&^0x00fc | uint16(dscp)<<2
	binary.BigEndian.PutUint16(p, is)
	sum := uint32(^binary.BigEndian.Uint16(p[10:])) + uint32(^was) + uint32(is)
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
}
