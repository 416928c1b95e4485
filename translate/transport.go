// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// transport says where a protocol keeps its checksum over the pseudo-header.
type transport struct {
	checksum int  // offset of the field; 0: the protocol is passed as it is
	header   int  // octets that must be there
	zero     bool // a computed zero is written as 0xffff
}

// transportOf knows TCP, UDP, DCCP (RFC 4340 section 9.1) and UDP-Lite (RFC 3828
// section 3.1). All four begin with two ports.
func transportOf(proto uint8) transport {
	switch proto {
	case packet.ProtoTCP:
		return transport{checksum: 16, header: 20}
	case packet.ProtoUDP:
		return transport{checksum: 6, header: 8, zero: true}
	case protoDCCP:
		return transport{checksum: 6, header: 12}
	case protoUDPLite:
		return transport{checksum: 6, header: 8, zero: true}
	}
	return transport{}
}

// updateTransport takes the change of addresses, and of the ports if any, into the
// checksum of the message m (RFC 7915 sections 4.5, 5.5). A UDP checksum of zero
// stays: there is none. What lies behind the end of a quoted message is left alone.
func updateTransport(m []byte, proto uint8, addresses packet.Change, e *Endpoints) {
	kind := transportOf(proto)
	if kind.checksum == 0 || len(m) < 4 {
		return
	}
	c := addresses
	if e != nil && e.Ports {
		c = c.Without(m[:4])
		binary.BigEndian.PutUint16(m, e.SrcPort)
		binary.BigEndian.PutUint16(m[2:], e.DstPort)
		c = c.With(m[:4])
	}
	if len(m) < kind.checksum+2 {
		return
	}
	field := m[kind.checksum : kind.checksum+2]
	if proto == packet.ProtoUDP && field[0]|field[1] == 0 {
		return
	}
	c.Update(field)
	if kind.zero && field[0]|field[1] == 0 {
		field[0], field[1] = 0xff, 0xff
	}
}

// checkTransport judges the transport header at the start of m, the payload of a
// packet or of a first fragment: a cut one could have its checksum in the next
// fragment, out of reach.
func checkTransport(m []byte, proto uint8) Reason {
	if len(m) < transportOf(proto).header {
		return ReasonTransport
	}
	return ReasonNone
}

// judgeZeroChecksum judges an IPv4 UDP message without a checksum (RFC 7915 section 4.5).
// compute is set when one is to be made.
func (t *Translator) judgeZeroChecksum(m []byte, fragment bool) (compute bool, r Reason) {
	switch {
	case t.zeroChecksum == ZeroChecksumForward:
		return false, ReasonNone
	case fragment:
		return false, ReasonUDPZeroFragment
	case t.zeroChecksum == ZeroChecksumDrop:
		return false, ReasonUDPZeroChecksum
	}
	if n := int(binary.BigEndian.Uint16(m[4:])); n < packet.UDPHeaderLen || n > len(m) {
		return false, ReasonUDPLength
	}
	return true, ReasonNone
}

// fillUDP writes the checksum of a UDP message over IPv6, whose length was judged.
func fillUDP(m []byte, src, dst *[16]byte) {
	n := int(binary.BigEndian.Uint16(m[4:]))
	fill(m[6:8], pseudo6(src, dst, n, packet.ProtoUDP), m[:n])
	if m[6]|m[7] == 0 {
		m[6], m[7] = 0xff, 0xff
	}
}

// misplacedIn4 reports whether a protocol number of an IPv4 packet has a meaning in IPv6 only,
// so that the packet would come out as something it never was: an ICMP message that
// no one translated, or extension headers.
func misplacedIn4(proto uint8) bool {
	switch proto {
	case packet.ProtoHopByHop, packet.ProtoRouting, packet.ProtoFragment, packet.ProtoDestOpts, packet.ProtoICMPv6:
		return true
	}
	return false
}
