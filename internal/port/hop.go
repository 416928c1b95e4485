// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// ipv4HeaderLen is the length of an IPv4 header without options.
const ipv4HeaderLen = 20

// Offsets in the IPv4 header.
const (
	ipv4LenOff, ipv4IDOff, ipv4FragOff, ipv4TTLOff, ipv4ProtoOff, ipv4SumOff, ipv4AddrOff = 2, 4, 6, 8, 9, 10, 12
)

// addHop undoes one of the kernel's decrements (see TUNConfig.Forwarding).
func addHop(p []byte) {
	switch {
	case len(p) >= 8 && p[0]>>4 == 6:
		if p[7] < 255 {
			p[7]++
		}
	case len(p) >= ipv4HeaderLen && p[0]>>4 == 4:
		if p[ipv4TTLOff] == 255 {
			return
		}
		p[ipv4TTLOff]++
		// The time to live is the upper half of its word (RFC 1624, equation 3). A
		// wrong checksum stays wrong.
		sum := p[ipv4SumOff:]
		binary.BigEndian.PutUint16(sum, ^packet.Fold(uint64(^binary.BigEndian.Uint16(sum))+0x0100))
	}
}

// fillIPv4Sum writes the checksum of an IPv4 header.
func fillIPv4Sum(h []byte) {
	h[ipv4SumOff], h[ipv4SumOff+1] = 0, 0
	binary.BigEndian.PutUint16(h[ipv4SumOff:], ^packet.Fold(packet.Sum(0, h)))
}

// headerLen returns the length of the IP header that p begins with: that of IPv4
// with its options, that of IPv6 without extensions; 0 if there is none.
func headerLen(p []byte) int {
	switch {
	case len(p) >= packet.IPv6HeaderLen && p[0]>>4 == 6:
		return packet.IPv6HeaderLen
	case len(p) >= ipv4HeaderLen && p[0]>>4 == 4:
		if n := int(p[0]&15) * 4; n >= ipv4HeaderLen && n <= len(p) {
			return n
		}
	}
	return 0
}
