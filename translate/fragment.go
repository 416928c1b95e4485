// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// send6 cuts an IPv6 packet that has a Fragment Header directly behind its header
// into packets of at most limit octets (RFC 7915 section 4.1).
func send6(p []byte, limit int, out *packet.Batch) {
	const headers = ipv6HeaderLen + fragmentHeaderLen
	word := binary.BigEndian.Uint16(p[ipv6HeaderLen+2:])
	offset, last := word>>3, word&1 == 0
	payload := p[headers:]
	room := limit - headers
	for at, n := 0, 0; at < len(payload); at += n {
		more := !last
		if n = len(payload) - at; n > room {
			n, more = room&^7, true
		}
		b := append(out.Alloc(headers+n), p[:headers]...)
		binary.BigEndian.PutUint16(b[4:], uint16(fragmentHeaderLen+n))
		binary.BigEndian.PutUint16(b[ipv6HeaderLen+2:], fragmentWord(offset+uint16(at/8), more))
		out.SendIP(append(b, payload[at:at+n]...))
	}
}

// send4 cuts an IPv4 packet into packets of at most limit octets (RFC 7915 section 5.1.1,
// RFC 791 section 3.2).
func send4(p []byte, limit int, out *packet.Batch) {
	for at, more := 0, true; more; more = at != 0 {
		b := out.Alloc(min(limit, len(p)-at))
		b, at = packet.AppendFragment(b, p, at, limit)
		out.SendIP(b)
	}
}
