// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net/netip"
)

// ICMPv6 types and codes (RFC 4443 sections 3 and 4, RFC 4861 section 4).
const (
	ICMPv6Unreachable        = 1
	ICMPv6PacketTooBig       = 2
	ICMPv6TimeExceeded       = 3
	ICMPv6ParameterProblem   = 4
	ICMPv6EchoRequest        = 128
	ICMPv6EchoReply          = 129
	ICMPv6RouterSolicitation = 133
	ICMPv6RouterAdvert       = 134
	ICMPv6Redirect           = 137

	UnreachableNoRoute = 0
	UnreachableAdmin   = 1
	UnreachableAddress = 3
)

const icmpv6HeaderLen = 8

// AppendICMPv6 appends an IPv6 packet that carries one ICMPv6 message: type,
// code, and body (everything behind the checksum), with a right checksum.
func AppendICMPv6(b []byte, src, dst netip.Addr, hopLimit, typ, code byte, body ...[]byte) []byte {
	n := 4
	for _, part := range body {
		n += len(part)
	}
	b = AppendIPv6Header(b, ProtoICMPv6, hopLimit, n, src, dst)
	start := len(b)
	b = append(b, typ, code, 0, 0)
	for _, part := range body {
		b = append(b, part...)
	}
	FillICMPv6Checksum(IPv6(b[start-IPv6HeaderLen:]))
	return b
}

// FillICMPv6Checksum writes the checksum of the ICMPv6 message that directly
// follows the header of p.
func FillICMPv6Checksum(p IPv6) {
	m := p.Payload()
	m[2], m[3] = 0, 0
	binary.BigEndian.PutUint16(m[2:4], Checksum(p.SrcBytes(), p.DstBytes(), ProtoICMPv6, m))
}

// ICMPv6 returns the ICMPv6 message that directly follows the header of p. ok is
// false when there is none, when it is shorter than the common 8 bytes (RFC 4443
// section 2.1), or when its checksum is wrong.
func (p IPv6) ICMPv6() (m []byte, ok bool) {
	m = p.Payload()
	if p.NextHeader() != ProtoICMPv6 || len(m) < icmpv6HeaderLen {
		return nil, false
	}
	return m, Checksum(p.SrcBytes(), p.DstBytes(), ProtoICMPv6, m) == 0
}

// AppendICMPv6Error appends an ICMPv6 error about the packet cause, sent from src
// to cause's source: the message may not make the whole packet larger than 1280
// bytes (RFC 4443 section 2.4 c). param is the second word of the message: the
// MTU for Packet Too Big, the pointer for Parameter Problem, else 0. It appends
// nothing when no error may be sent about cause; see [MayAnswerWithError].
func AppendICMPv6Error(b []byte, src netip.Addr, typ, code byte, param uint32, cause IPv6) []byte {
	if !MayAnswerWithError(cause) {
		return b
	}
	quote := cause[:min(len(cause), MinMTU-IPv6HeaderLen-icmpv6HeaderLen)]
	var word [4]byte
	binary.BigEndian.PutUint32(word[:], param)
	return AppendICMPv6(b, src, cause.Src(), 64, typ, code, word[:], quote)
}

// MayAnswerWithError reports whether an ICMPv6 error may be sent about p
// (RFC 4443 section 2.4 e): not about an ICMPv6 error or redirect, nor when the
// source is no single host, nor when the destination is multicast.
func MayAnswerWithError(p IPv6) bool {
	src, dst := p.Src(), p.Dst()
	if src.IsUnspecified() || src.IsMulticast() || src.IsLoopback() || dst.IsMulticast() {
		return false
	}
	proto, off, ok := p.UpperLayer()
	if !ok {
		return false
	}
	if proto != ProtoICMPv6 {
		return true
	}
	m := p[off:]
	return len(m) > 0 && m[0] >= 128 && m[0] != ICMPv6Redirect
}

// IsNeighborDiscovery reports whether p carries a Neighbor Discovery message (RFC
// 4861 section 4), also behind extension headers. Such messages belong to one link
// and never cross a tunnel.
func (p IPv6) IsNeighborDiscovery() bool {
	proto, off, ok := p.UpperLayer()
	return ok && proto == ProtoICMPv6 && len(p) > off && p[off] >= ICMPv6RouterSolicitation && p[off] <= ICMPv6Redirect
}

// maxExtensionHeaders bounds the walk over a chain of extension headers: legal
// packets have at most one of each kind and two of one (RFC 8200 section 4.1).
const maxExtensionHeaders = 8

// UpperLayer walks the extension headers and returns the protocol number and the
// offset of what they precede. In a fragment that is not the first it returns
// [ProtoFragment]. ok is false when the chain leaves the packet or is too long.
func (p IPv6) UpperLayer() (proto byte, off int, ok bool) {
	proto, off = p.NextHeader(), IPv6HeaderLen
	for range maxExtensionHeaders {
		size := 0
		switch proto {
		case ProtoHopByHop, ProtoRouting, ProtoDestOpts:
			if len(p) < off+8 {
				return 0, 0, false
			}
			size = 8 + 8*int(p[off+1])
		case ProtoFragment:
			if len(p) < off+8 {
				return 0, 0, false
			}
			if binary.BigEndian.Uint16(p[off+2:])&^7 != 0 {
				return ProtoFragment, off, true
			}
			size = 8
		default:
			return proto, off, off <= len(p)
		}
		if len(p) < off+size {
			return 0, 0, false
		}
		proto, off = p[off], off+size
	}
	return 0, 0, false
}
