// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package translate turns IPv4 packets into IPv6 packets and back, by RFC 7915:
// headers, ICMP messages with the packets they quote, fragments and checksums. It
// holds the address forms of RFC 6052, the explicit mappings of RFC 7757 and the
// source pools of RFC 6791. Bytes in, bytes and a [Result] out: no socket, no clock,
// no state. A [Translator] never changes once made, so several threads may share it
// and a new one may take its place between two packets.
//
// A stateful translator decides addresses and ports itself and has the rest done by
// [Translator.IPv4Bound] and [Translator.IPv6Bound].
//
//house:codec
package translate

// Protocol numbers beside those of internal/packet (IANA).
const (
	protoICMP     = 1
	protoIGMP     = 2
	protoDCCP     = 33
	protoESP      = 50
	protoAH       = 51
	protoMobility = 135
	protoUDPLite  = 136
	protoHIP      = 139
	protoShim6    = 140
)

// Header sizes in octets.
const (
	ipv4HeaderLen     = 20 // RFC 791 section 3.1, without options
	ipv6HeaderLen     = 40 // RFC 8200 section 3
	fragmentHeaderLen = 8  // RFC 8200 section 4.5
	icmpHeaderLen     = 8  // RFC 792, RFC 4443: the common part and the second word
)

// Largest packets that carry an ICMP error.
const (
	maxError4 = 576  // RFC 1812 section 4.3.2.3
	maxError6 = 1280 // RFC 4443 section 2.4 c
)
