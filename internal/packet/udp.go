// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// FillUDP sets the lengths and the checksum of a whole packet of IPv6 with UDP, whose checksum
// is zero.
func FillUDP(p IPv6) {
	m := p.Payload()
	binary.BigEndian.PutUint16(p[4:], uint16(len(m)))
	binary.BigEndian.PutUint16(m[4:], uint16(len(m)))
	sum := Checksum(p.SrcBytes(), p.DstBytes(), ProtoUDP, m)
	if sum == 0 {
		sum = 0xffff // zero is none, which IPv6 does not have (RFC 8200 section 8.1)
	}
	binary.BigEndian.PutUint16(m[6:], sum)
}
