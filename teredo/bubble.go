// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// BubbleLen is the size of a bubble without trailers.
const BubbleLen = packet.IPv6HeaderLen

// BubbleHopLimit is what we send; RFC 4380 section 2.8 leaves it open and
// receivers accept any (Miredo sends 0).
const BubbleHopLimit = 255

// AppendBubble appends a bubble: an IPv6 header with no payload and next header
// 59 (RFC 4380 section 2.8).
func AppendBubble(b []byte, src, dst netip.Addr) []byte {
	return packet.AppendIPv6Header(b, packet.ProtoNone, BubbleHopLimit, 0, src, dst)
}

// IsBubble reports whether p is a bubble.
func IsBubble(p packet.IPv6) bool {
	return p.NextHeader() == packet.ProtoNone && len(p) == BubbleLen
}

// AppendLocalDiscovery appends a local discovery bubble (RFC 4380 section 5.2.8):
// from the client's global Teredo address to all nodes, hop limit 1.
func AppendLocalDiscovery(b []byte, src netip.Addr) []byte {
	return packet.AppendIPv6Header(b, packet.ProtoNone, 1, 0, src, AllNodes)
}

// EchoTestHopLimit is the hop limit of echo tests; they cross the IPv6 Internet.
const EchoTestHopLimit = 64

// EchoNonceLen is the size of the nonce in an echo test; RFC 4380 section 5.2.9
// recommends at least 64 bits. The whole ICMPv6 message stays under 88 bytes,
// which some servers take as their limit.
const EchoNonceLen = 16

// AppendEchoTest appends the ICMPv6 echo request of the direct IPv6 connectivity
// test (RFC 4380 section 5.2.9), with the nonce as its data.
func AppendEchoTest(b []byte, src, dst netip.Addr, nonce *[EchoNonceLen]byte) []byte {
	return packet.AppendICMPv6(b, src, dst, EchoTestHopLimit, packet.ICMPv6EchoRequest, 0, echoIDSeq[:], nonce[:])
}

// echoIDSeq are the identifier and sequence number of echo tests: the nonce in
// the data distinguishes them, so both can be constant.
var echoIDSeq = [4]byte{}

// EchoTestReply returns the nonce of an echo reply whose data has the size of an
// echo test's nonce. ok is false for every other packet.
func EchoTestReply(p packet.IPv6) (nonce [EchoNonceLen]byte, ok bool) {
	if p.NextHeader() != packet.ProtoICMPv6 || len(p) != packet.IPv6HeaderLen+8+EchoNonceLen {
		return nonce, false
	}
	m, ok := p.ICMPv6()
	if !ok || m[0] != packet.ICMPv6EchoReply || m[1] != 0 {
		return nonce, false
	}
	return [EchoNonceLen]byte(m[8:]), true
}
