// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// checkQuery4 judges a whole ICMP message that is no error: echo and its reply alone
// have a counterpart (RFC 7915 section 4.2).
func checkQuery4(m []byte) Reason {
	if len(m) < icmpHeaderLen {
		return ReasonTransport
	}
	if m[0] != icmpEcho && m[0] != icmpEchoReply {
		return ReasonICMPType
	}
	return ReasonNone
}

// checkQuery6 does so for ICMPv6 (RFC 7915 section 5.2).
func checkQuery6(m []byte) Reason {
	if len(m) < icmpHeaderLen {
		return ReasonTransport
	}
	if m[0] != packet.ICMPv6EchoRequest && m[0] != packet.ICMPv6EchoReply {
		return ReasonICMPType
	}
	return ReasonNone
}

// message returns the length of an ICMP message, of which size octets are in the packet.
func (p *pass) message(fragment bool, size int) int {
	if fragment {
		return p.path.Message
	}
	return size
}

// queryTo6 makes an ICMPv6 echo or reply of an ICMP one: the type changes and the
// checksum gains the pseudo-header with the given length. m has at least its type and
// may be cut behind it, where it is quoted.
func queryTo6(m []byte, src, dst *[16]byte, length int, e *Endpoints) {
	typ := uint8(packet.ICMPv6EchoRequest)
	if m[0] == icmpEchoReply {
		typ = packet.ICMPv6EchoReply
	}
	c := packet.Change(0).Word(packet.Fold(pseudo6(src, dst, length, packet.ProtoICMPv6)))
	rewriteQuery(m, typ, c, e)
}

// queryTo4 is the way back: the checksum loses the pseudo-header.
func queryTo4(m []byte, src, dst *[16]byte, length int, e *Endpoints) {
	typ := uint8(icmpEcho)
	if m[0] == packet.ICMPv6EchoReply {
		typ = icmpEchoReply
	}
	c := packet.Change(0).Gone(packet.Fold(pseudo6(src, dst, length, packet.ProtoICMPv6)))
	rewriteQuery(m, typ, c, e)
}

// rewriteQuery writes the new type, and the new identifier if there is one, and takes
// both into the checksum.
func rewriteQuery(m []byte, typ uint8, c packet.Change, e *Endpoints) {
	c = c.Gone(uint16(m[0]) << 8).Word(uint16(typ) << 8)
	m[0] = typ
	if e != nil && e.Ports && len(m) >= 6 {
		c = c.Without(m[4:6])
		binary.BigEndian.PutUint16(m[4:], e.SrcPort)
		c = c.Word(e.SrcPort)
	}
	if len(m) >= 4 {
		c.Update(m[2:4])
	}
}
