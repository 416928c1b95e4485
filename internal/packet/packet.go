// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package packet holds what every engine needs to read and build packets: header
// views, the Internet checksum, ICMPv6 messages, and the batch that carries what
// an engine call produced. It does no I/O and knows no role.
package packet

import (
	"encoding/binary"
	"net/netip"
)

// Sizes and protocol numbers (RFC 8200 section 3, RFC 4443, IANA).
const (
	IPv6HeaderLen = 40
	UDPHeaderLen  = 8
	MinMTU        = 1280 // RFC 8200 section 5

	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoICMPv6 = 58
	ProtoNone   = 59 // "no next header": a Teredo bubble

	// Extension headers (RFC 8200 section 4).
	ProtoHopByHop = 0
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoDestOpts = 60
)

// IPv6 is a view of a whole IPv6 packet: header, then exactly the payload that
// the header announces. Make one with [ParseIPv6]; the accessors do not check
// lengths again.
type IPv6 []byte

// ParseIPv6 returns the IPv6 packet at the start of b and what follows it.
// ok is false when b does not start with version 6 or is shorter than the header
// plus its payload length (RFC 8200 section 3; RFC 6081 section 4 allows bytes
// behind the packet).
func ParseIPv6(b []byte) (p IPv6, rest []byte, ok bool) {
	if len(b) < IPv6HeaderLen || b[0]>>4 != 6 {
		return nil, nil, false
	}
	n := IPv6HeaderLen + int(binary.BigEndian.Uint16(b[4:6]))
	if len(b) < n {
		return nil, nil, false
	}
	return IPv6(b[:n:n]), b[n:], true
}

// NextHeader returns the protocol number that follows the fixed header.
func (p IPv6) NextHeader() byte { return p[6] }

// HopLimit returns the hop limit.
func (p IPv6) HopLimit() byte { return p[7] }

// SetHopLimit writes the hop limit; no checksum covers it.
func (p IPv6) SetHopLimit(h byte) { p[7] = h }

// Src returns the source address.
func (p IPv6) Src() netip.Addr { return netip.AddrFrom16([16]byte(p[8:24])) }

// Dst returns the destination address.
func (p IPv6) Dst() netip.Addr { return netip.AddrFrom16([16]byte(p[24:40])) }

// SrcBytes and DstBytes give the raw addresses, for code that looks up without
// building a [netip.Addr].
func (p IPv6) SrcBytes() *[16]byte { return (*[16]byte)(p[8:24]) }

// DstBytes is the destination's counterpart of [IPv6.SrcBytes].
func (p IPv6) DstBytes() *[16]byte { return (*[16]byte)(p[24:40]) }

// Payload returns what follows the fixed header.
func (p IPv6) Payload() []byte { return p[IPv6HeaderLen:] }

// AppendIPv6Header appends a fixed header with traffic class and flow label zero.
// src and dst must be IPv6 addresses.
func AppendIPv6Header(b []byte, next, hopLimit byte, payloadLen int, src, dst netip.Addr) []byte {
	s, d := src.As16(), dst.As16()
	b = append(b, 0x60, 0, 0, 0, byte(payloadLen>>8), byte(payloadLen), next, hopLimit)
	b = append(b, s[:]...)
	return append(b, d[:]...)
}
