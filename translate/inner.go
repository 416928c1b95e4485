// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"github.com/isthmus-net/isthmus/internal/packet"
)

// appendInner6 appends the IPv6 form of a packet that an ICMP error quotes (RFC 7915
// section 4.3): like an outer one, but no hop is taken, lengths come from its fields
// and not from what is there, and nothing is judged that the quoting router let pass.
func (p *pass) appendInner6(b []byte, in *header4) ([]byte, Reason) {
	f := fields6{
		trafficClass: p.trafficClass(in.tos),
		hopLimit:     in.ttl,
		proto:        protoTo6(in.proto),
		payload:      in.total - in.size,
	}
	if in.fragment() {
		f.hasFragment, f.offset, f.mf, f.id = true, in.offset, in.mf, in.id
	}
	if misplacedIn4(in.proto) {
		return nil, ReasonInner
	}
	m := in.payload()
	m = m[:min(len(m), maxError6)]
	if r := innerICMP(m, in.proto == protoICMP && in.offset == 0, isErrorType4, checkInner4); r != ReasonNone {
		return nil, r
	}
	if !p.innerAddresses6(in, &f) {
		return nil, ReasonInnerUnmapped
	}
	b = appendHeader6(b, &f)
	start := len(b)
	b = append(b, m...)
	switch m = b[start:]; {
	case in.offset != 0:
	case in.proto == protoICMP:
		queryTo6(m, &f.src, &f.dst, f.payload, p.bound.inner())
	default:
		updateTransport(m, in.proto, addressChange6(in, &f), p.bound.inner())
	}
	return b, ReasonNone
}

// innerAddresses6 maps the addresses of a quoted packet, the destination by the simple
// hairpinning rule 2 (RFC 7757 section 4.2.1).
func (p *pass) innerAddresses6(in *header4, f *fields6) bool {
	if p.bound != nil {
		f.src, f.dst = p.bound.Inner.Src.As16(), p.bound.Inner.Dst.As16()
		return p.bound.Inner.are6()
	}
	var source, destination Reason
	f.src, source = p.t.to6(in.src, true)
	f.dst, destination = p.t.to6(in.dst, !p.simple())
	return source == ReasonNone && destination == ReasonNone
}

// sameAsInnerDestination is the condition of the simple hairpinning rule 3 (RFC 7757
// section 4.2.1).
func sameAsInnerDestination(h *header4) bool {
	m := h.payload()
	return len(m) >= icmpHeaderLen+ipv4HeaderLen && [4]byte(m[icmpHeaderLen+16:]) == h.src
}

// appendInner4 appends the IPv4 form of a packet that an ICMPv6 error quotes (RFC 7915
// section 5.3).
func (p *pass) appendInner4(b []byte, in *header6) ([]byte, Reason) {
	f := fields4{
		tos:   p.tos(in.trafficClass),
		ttl:   in.hopLimit,
		proto: protoTo4(in.proto),
		total: ipv4HeaderLen + in.payloadLen(),
	}
	if in.payloadLen() < 0 || f.total > 65535 || in.proto == protoICMP {
		return nil, ReasonInner
	}
	m := in.payload()
	m = m[:min(len(m), maxError6)]
	if r := innerICMP(m, in.proto == packet.ProtoICMPv6 && in.offset == 0, isErrorType6, checkInner6); r != ReasonNone {
		return nil, r
	}
	if !p.innerAddresses4(in, &f) {
		return nil, ReasonInnerUnmapped
	}
	p.setFragment4(in, &f)
	b = appendHeader4(b, &f)
	start := len(b)
	b = append(b, m...)
	switch m = b[start:]; {
	case in.offset != 0:
	case in.proto == packet.ProtoICMPv6:
		queryTo4(m, in.src, in.dst, in.payloadLen(), p.bound.inner())
	default:
		updateTransport(m, in.proto, addressChange4(in, &f), p.bound.inner())
	}
	return b, ReasonNone
}

// innerAddresses4 maps the addresses of a quoted packet. By its source it is seen
// whether the error is to be turned round (RFC 7757 section 4.2.2, conditions B).
func (p *pass) innerAddresses4(in *header6, f *fields4) bool {
	if p.bound != nil {
		if !p.bound.Inner.are4() {
			return false
		}
		f.src, f.dst = p.bound.Inner.Src.As4(), p.bound.Inner.Dst.As4()
		return true
	}
	var by origin
	var source, destination Reason
	f.src, by, source = p.t.to4(in.src)
	f.dst, _, destination = p.t.to4(in.dst)
	p.hairpin = hairpinKey{by, f.src}
	return source == ReasonNone && destination == ReasonNone
}

// innerICMP judges a quoted ICMP message: it has a type, and it is an echo or its
// reply. Translation stops at the first embedded packet (RFC 7915 sections 4.3, 5.3).
func innerICMP(m []byte, isICMP bool, isError, isQuery func(uint8) bool) Reason {
	switch {
	case !isICMP:
		return ReasonNone
	case len(m) == 0:
		return ReasonInner
	case isError(m[0]):
		return ReasonInnerError
	case !isQuery(m[0]):
		return ReasonInnerICMP
	}
	return ReasonNone
}

func isErrorType6(typ uint8) bool { return typ < 128 }

func checkInner4(typ uint8) bool { return typ == icmpEcho || typ == icmpEchoReply }

func checkInner6(typ uint8) bool {
	return typ == packet.ICMPv6EchoRequest || typ == packet.ICMPv6EchoReply
}
