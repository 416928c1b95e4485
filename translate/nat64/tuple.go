// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// protoICMP is ICMP's number in an IPv4 header (IANA).
const protoICMP = 1

// tuple is an incoming tuple (RFC 6146 section 3.4) less its addresses, which stand in
// the view. In an ICMP query both ports are its identifier.
type tuple struct {
	transport state.Transport
	src, dst  uint16
	flags     uint8 // of TCP
}

// tupleOf reads the tuple of a whole packet, or of a first fragment, that is no ICMP
// error. TCP and UDP headers have to be there as far as their checksums, which are to
// be changed.
func tupleOf(v *translate.View) (t tuple, r Reason) {
	m := v.Payload
	switch {
	case v.Proto == packet.ProtoTCP:
		if len(m) < 20 {
			return t, Reason(translate.ReasonTransport)
		}
		t = tuple{transport: state.TCP, flags: m[13]}
	case v.Proto == packet.ProtoUDP:
		if len(m) < packet.UDPHeaderLen {
			return t, Reason(translate.ReasonTransport)
		}
		t = tuple{transport: state.UDP}
	case isICMP(v):
		return queryTuple(v, true)
	default:
		return t, Protocol
	}
	t.src, t.dst = binary.BigEndian.Uint16(m), binary.BigEndian.Uint16(m[2:])
	return t, none
}

// quotedTuple reads the tuple of the packet that an ICMP error quotes, with source and
// destination as they stand in it. Only the ports must be there (RFC 792: 8 octets).
func quotedTuple(v *translate.View) (t tuple, r Reason) {
	m := v.Payload
	switch {
	case v.Offset != 0:
		return t, Reason(translate.ReasonInner) // without ports no one can be found
	case isICMP(v):
		return queryTuple(v, false)
	case v.Proto == packet.ProtoTCP:
		t.transport = state.TCP
	case v.Proto == packet.ProtoUDP:
		t.transport = state.UDP
	default:
		return t, Reason(translate.ReasonInner)
	}
	if len(m) < 4 {
		return t, Reason(translate.ReasonInner)
	}
	t.src, t.dst = binary.BigEndian.Uint16(m), binary.BigEndian.Uint16(m[2:])
	return t, none
}

// queryTuple reads the identifier of an ICMP query: an echo or its reply, which alone
// have a counterpart in the other family (RFC 7915 sections 4.2, 5.2).
func queryTuple(v *translate.View, outer bool) (t tuple, r Reason) {
	m := v.Payload
	bad, other := Reason(translate.ReasonInner), Reason(translate.ReasonInnerICMP)
	if outer {
		bad, other = Reason(translate.ReasonTransport), Reason(translate.ReasonICMPType)
	}
	switch {
	case len(m) > 0 && v.IsError():
		return t, Reason(translate.ReasonInnerError)
	case len(m) > 0 && !isEcho(v.Src.Is4(), m[0]):
		return t, other
	case len(m) < 8:
		return t, bad
	}
	id := binary.BigEndian.Uint16(m[4:])
	return tuple{transport: state.ICMP, src: id, dst: id}, none
}

// isICMP reports whether the view is of the ICMP of its own family.
func isICMP(v *translate.View) bool {
	if v.Src.Is4() {
		return v.Proto == protoICMP
	}
	return v.Proto == packet.ProtoICMPv6
}

// isEcho reports whether a type is that of an echo request or reply.
func isEcho(ipv4 bool, typ uint8) bool {
	if ipv4 {
		return typ == 8 || typ == 0
	}
	return typ == packet.ICMPv6EchoRequest || typ == packet.ICMPv6EchoReply
}
