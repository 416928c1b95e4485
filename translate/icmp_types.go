// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// ICMP types of IPv4 (RFC 792).
const (
	icmpEchoReply        = 0
	icmpUnreachable      = 3
	icmpSourceQuench     = 4
	icmpRedirect         = 5
	icmpEcho             = 8
	icmpTimeExceeded     = 11
	icmpParameterProblem = 12
)

// Codes that are written here (RFC 792, RFC 1812 section 5.2.7.1).
const (
	codeHost            = 1
	codeProtocol        = 2
	codePort            = 3
	codeFragmentation   = 4
	codeSourceRoute     = 5
	codeHostProhibited  = 10
	codeAdminProhibited = 13

	codePort6       = 4 // RFC 4443 section 3.1
	codeNextHeader6 = 1 // RFC 4443 section 3.4
)

// isICMPError4 reports whether the packet starts an ICMP error message.
func isICMPError4(h *header4) bool {
	m := h.payload()
	return h.proto == protoICMP && h.offset == 0 && len(m) > 0 && isErrorType4(m[0])
}

func isErrorType4(typ uint8) bool {
	switch typ {
	case icmpUnreachable, icmpSourceQuench, icmpRedirect, icmpTimeExceeded, icmpParameterProblem:
		return true
	}
	return false
}

// isICMPError6 reports whether the packet starts an ICMPv6 error message (RFC 4443
// section 2.1: types below 128).
func isICMPError6(h *header6) bool {
	m := h.payload()
	return h.proto == packet.ProtoICMPv6 && h.offset == 0 && len(m) > 0 && m[0] < 128
}

// icmpHead is what an ICMP message begins with: type, code and the second word.
type icmpHead struct {
	typ, code uint8
	word      uint32
}

// errorTo6 translates the head of an ICMP error (RFC 7915 section 4.2). innerTotal is
// the total length field of the quoted packet.
func (p *pass) errorTo6(m []byte, innerTotal int) (icmpHead, Reason) {
	code := m[1]
	switch m[0] {
	case icmpUnreachable:
		return p.unreachableTo6(m, innerTotal)
	case icmpTimeExceeded:
		return icmpHead{packet.ICMPv6TimeExceeded, code, 0}, ReasonNone
	case icmpParameterProblem:
		if code != 0 && code != 2 {
			return icmpHead{}, ReasonICMPType
		}
		pointer, ok := pointerTo6(m[4])
		if !ok {
			return icmpHead{}, ReasonICMPPointer
		}
		return icmpHead{packet.ICMPv6ParameterProblem, 0, uint32(pointer)}, ReasonNone
	}
	return icmpHead{}, ReasonICMPType
}

// unreachableTo6 translates type 3 by its code.
func (p *pass) unreachableTo6(m []byte, innerTotal int) (icmpHead, Reason) {
	switch m[1] {
	case 0, 1, 5, 6, 7, 8, 11, 12:
		return icmpHead{packet.ICMPv6Unreachable, packet.UnreachableNoRoute, 0}, ReasonNone
	case codeProtocol:
		return icmpHead{packet.ICMPv6ParameterProblem, codeNextHeader6, pointerNextHeader}, ReasonNone
	case codePort:
		return icmpHead{packet.ICMPv6Unreachable, codePort6, 0}, ReasonNone
	case codeFragmentation:
		mtu := p.mtuTo6(int(binary.BigEndian.Uint16(m[6:])), innerTotal)
		return icmpHead{packet.ICMPv6PacketTooBig, 0, uint32(mtu)}, ReasonNone
	case 9, 10, 13, 15:
		return icmpHead{packet.ICMPv6Unreachable, packet.UnreachableAdmin, 0}, ReasonNone
	}
	return icmpHead{}, ReasonICMPType
}

// errorTo4 translates the head of an ICMPv6 error (RFC 7915 section 5.2). The second
// word has the pointer in its first octet and the MTU in its last two.
func (p *pass) errorTo4(m []byte, innerHasFragment bool) (icmpHead, Reason) {
	code := m[1]
	switch m[0] {
	case packet.ICMPv6Unreachable:
		switch code {
		case 0, 2, 3:
			return icmpHead{icmpUnreachable, codeHost, 0}, ReasonNone
		case packet.UnreachableAdmin:
			return icmpHead{icmpUnreachable, codeHostProhibited, 0}, ReasonNone
		case codePort6:
			return icmpHead{icmpUnreachable, codePort, 0}, ReasonNone
		}
	case packet.ICMPv6PacketTooBig:
		mtu := p.mtuTo4(binary.BigEndian.Uint32(m[4:]), innerHasFragment)
		return icmpHead{icmpUnreachable, codeFragmentation, uint32(mtu)}, ReasonNone
	case packet.ICMPv6TimeExceeded:
		return icmpHead{icmpTimeExceeded, code, 0}, ReasonNone
	case packet.ICMPv6ParameterProblem:
		return parameterProblemTo4(m)
	}
	return icmpHead{}, ReasonICMPType
}

// parameterProblemTo4 translates type 4 by its code.
func parameterProblemTo4(m []byte) (icmpHead, Reason) {
	switch m[1] {
	case 0:
		pointer, ok := pointerTo4(binary.BigEndian.Uint32(m[4:]))
		if !ok {
			return icmpHead{}, ReasonICMPPointer
		}
		return icmpHead{icmpParameterProblem, 0, uint32(pointer) << 24}, ReasonNone
	case codeNextHeader6:
		return icmpHead{icmpUnreachable, codeProtocol, 0}, ReasonNone
	}
	return icmpHead{}, ReasonICMPType
}
