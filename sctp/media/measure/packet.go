// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Protocols.
const (
	protocolUDP  = 17
	protocolSCTP = 132
)

// AppendIP appends a packet of SCTP with the headers of IP that it travels behind, and of UDP between ports if these are
// not 0: as a capture on the link would have it, but for the hop limit and the identification.
func AppendIP(b []byte, from, to netip.AddrPort, sctp []byte) []byte {
	protocol, payload := byte(protocolSCTP), sctp
	if from.Port() != 0 || to.Port() != 0 {
		protocol = protocolUDP
		payload = appendUDP(nil, from, to, sctp)
	}
	const hops = 64
	if from.Addr().Is6() {
		return append(packet.AppendIPv6Header(b, protocol, hops, len(payload), from.Addr(), to.Addr()), payload...)
	}
	start := len(b)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+len(payload)))
	b = append(b, 0, 0, 0x40, 0, hops, protocol, 0, 0)
	b = append(append(b, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	binary.BigEndian.PutUint16(b[start+10:], ^packet.Fold(packet.Sum(0, b[start:])))
	return append(b, payload...)
}

// appendUDP appends a datagram with its checksum.
func appendUDP(b []byte, from, to netip.AddrPort, payload []byte) []byte {
	start, n := len(b), 8+len(payload)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, from.Port()), to.Port())
	b = append(binary.BigEndian.AppendUint16(b, uint16(n)), 0, 0)
	b = append(b, payload...)
	sum := packet.Sum(uint64(protocolUDP)+uint64(n), from.Addr().AsSlice())
	sum = packet.Sum(packet.Sum(sum, to.Addr().AsSlice()), b[start:])
	check := ^packet.Fold(sum)
	if check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(b[start+6:], check)
	return b
}
