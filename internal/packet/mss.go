// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"math/bits"
)

// Headers of packets without options, which a maximum segment size leaves room for (RFC
// 9293 section 3.7.1).
const (
	tcpHeaderLen = 20
	headers4     = IPv4HeaderLen + tcpHeaderLen
	headers6     = IPv6HeaderLen + tcpHeaderLen
)

// ClampMSS lowers the maximum segment size that a SYN of TCP names to what fits packets of
// mtu octets, and reports whether it did. The packet is whole, of either family; its
// checksum follows the change, and what was wrong stays wrong.
func ClampMSS(p []byte, mtu int) bool {
	const syn, flags = 0x02, 13
	m, most := tcp(p, mtu)
	if len(m) < tcpHeaderLen || m[flags]&syn == 0 {
		return false
	}
	end := min(int(m[12]>>4)*4, len(m))
	if end <= tcpHeaderLen || most <= 0 {
		return false
	}
	return clampOptions(m, m[:end], uint16(min(most, 0xffff)))
}

// tcp returns the segment of TCP that is in a packet, or at the beginning of its first
// fragment, and how large one may be.
func tcp(p []byte, mtu int) (m []byte, most int) {
	if p[0]>>4 == 4 {
		if p[9] != ProtoTCP || binary.BigEndian.Uint16(p[6:])&offsetMask != 0 {
			return nil, 0
		}
		return p[int(p[0]&0xf)*4:], mtu - headers4
	}
	proto, at := p[6], IPv6HeaderLen
	if proto != ProtoTCP {
		var ok bool
		if proto, at, ok = IPv6(p).UpperLayer(); !ok || proto != ProtoTCP {
			return nil, 0
		}
	}
	return p[at:], mtu - headers6
}

// clampOptions does so in the header of a segment (RFC 9293 section 3.2).
func clampOptions(m, header []byte, most uint16) (clamped bool) {
	const endOfOptions, nop, maximumSegmentSize, length = 0, 1, 2, 4
	for at := tcpHeaderLen; at < len(header) && header[at] != endOfOptions; {
		if header[at] == nop {
			at++
			continue
		}
		if at+1 >= len(header) || header[at+1] < 2 || at+int(header[at+1]) > len(header) {
			return clamped
		}
		if header[at] == maximumSegmentSize && header[at+1] == length {
			field := header[at+2 : at+4]
			if was := binary.BigEndian.Uint16(field); was > most {
				binary.BigEndian.PutUint16(field, most)
				is := most
				if at%2 != 0 { // its octets are in two words
					was, is = bits.ReverseBytes16(was), bits.ReverseBytes16(is)
				}
				Change(0).Gone(was).Word(is).Update(m[16:18])
				clamped = true
			}
		}
		at += int(header[at+1])
	}
	return clamped
}
