// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// TrafficClass returns the octet of an IPv4 or IPv6 header that has DSCP and ECN field (RFC 2474, 3168).
func TrafficClass(p []byte) uint8 {
	if p[0]>>4 == 6 {
		return p[0]<<4 | p[1]>>4
	}
	return p[1]
}

// SetTrafficClass gives a packet another one; of IPv4 the checksum takes account of the change (RFC 1624).
func SetTrafficClass(p []byte, class uint8) {
	was := binary.BigEndian.Uint16(p)
	if p[0]>>4 == 6 {
		binary.BigEndian.PutUint16(p, was&^0x0ff0|uint16(class)<<4)
		return
	}
	is := was&^0x00ff | uint16(class)
	binary.BigEndian.PutUint16(p, is)
	sum := uint32(^binary.BigEndian.Uint16(p[10:])) + uint32(^was) + uint32(is)
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
}

// SetDSCP gives a packet another code point. Its ECN field stays.
func SetDSCP(p []byte, dscp uint8) { SetTrafficClass(p, dscp<<2|TrafficClass(p)&ECN) }
