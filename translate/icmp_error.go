// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// errorRoom is what is reserved for an ICMP error before it is cut: a quoted payload as
// large as the largest error, and both headers.
const errorRoom = maxError6 + 2*(ipv6HeaderLen+fragmentHeaderLen)

// sendError6 translates an ICMP error with the packet that it quotes (RFC 7915
// sections 4.2, 4.3).
func (p *pass) sendError6(h *header4, f *fields6) fault {
	m := h.payload()
	switch {
	case h.fragment():
		return refuse(ReasonFragmentedICMP)
	case len(m) < icmpHeaderLen:
		return refuse(ReasonTransport)
	case packet.Fold(packet.Sum(0, m)) != 0xffff:
		return refuse(ReasonICMPChecksum) // a new checksum would hide it
	}
	quote, extension, r := splitError(m, int(m[5])*4)
	if r != ReasonNone {
		return refuse(r)
	}
	inner, r := readHeader4(quote)
	if r != ReasonNone {
		return refuse(ReasonInner)
	}
	head, r := p.errorTo6(m, inner.total)
	if r != ReasonNone {
		return refuse(r)
	}
	if len(extension) == 0 {
		inner.packet = quote // whatever its length field says, nothing follows it
	}
	b := appendHeader6(p.out.Alloc(errorRoom), f)
	b = append(b, head.typ, head.code, 0, 0)
	b = binary.BigEndian.AppendUint32(b, head.word)
	if b, r = p.appendInner6(b, &inner); r != ReasonNone {
		return refuse(r)
	}
	if head.typ != packet.ICMPv6Unreachable && head.typ != packet.ICMPv6TimeExceeded {
		extension = nil // RFC 4884 section 4.6: these have no place for a length
	}
	b, length := finishError(b, ipv6HeaderLen+icmpHeaderLen, maxError6, 8, extension)
	if length != 0 {
		b[ipv6HeaderLen+4] = length
	}
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6HeaderLen))
	packet.FillICMPv6Checksum(packet.IPv6(b))
	p.out.SendIP(b)
	return fault{}
}

// sendError4 translates an ICMPv6 error with the packet that it quotes (RFC 7915
// sections 5.2, 5.3). replaced reports that the source is one of the pool.
func (p *pass) sendError4(h *header6, f *fields4, replaced bool) fault {
	m := h.payload()
	switch {
	case h.fragment():
		return refuse(ReasonFragmentedICMP)
	case len(m) < icmpHeaderLen:
		return refuse(ReasonTransport)
	case packet.Checksum(h.src, h.dst, packet.ProtoICMPv6, m) != 0:
		return refuse(ReasonICMPChecksum)
	}
	length := 0
	if m[0] == packet.ICMPv6Unreachable || m[0] == packet.ICMPv6TimeExceeded {
		length = int(m[4]) * 8
	}
	quote, extension, r := splitError(m, length)
	if r != ReasonNone {
		return refuse(r)
	}
	inner, r := readHeader6(quote)
	if r != ReasonNone {
		return refuse(ReasonInner)
	}
	head, r := p.errorTo4(m, inner.hasFragment)
	if r != ReasonNone {
		return refuse(r)
	}
	if len(extension) == 0 {
		inner.packet = quote
	}
	p.setOuterFragment4(h, f)
	b := appendHeader4(p.out.Alloc(errorRoom), f)
	b = append(b, head.typ, head.code, 0, 0)
	b = binary.BigEndian.AppendUint32(b, head.word)
	if b, r = p.appendInner4(b, &inner); r != ReasonNone {
		return refuse(r)
	}
	if replaced && p.t.interfaceObject {
		extension = appendInterfaceObject(p.out, extension, h.src)
	}
	return p.finishError4(b, extension)
}

// finishError4 brings the message to its length, and sends it or turns it round.
func (p *pass) finishError4(b, extension []byte) fault {
	turned := p.hairpins()
	limit := maxError4
	if turned {
		limit = maxError6
	}
	b, words := finishError(b, ipv4HeaderLen+icmpHeaderLen, limit, 4, extension)
	b[ipv4HeaderLen+5] = words
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	if len(b) <= largestUncut {
		b[6] &^= flagDF >> 8
	}
	sumHeader4(b)
	fill(b[ipv4HeaderLen+2:ipv4HeaderLen+4], 0, b[ipv4HeaderLen:])
	if turned {
		return p.back(b)
	}
	if mtu := p.mtu4(); len(b) > mtu {
		send4(b, mtu, p.out)
	} else {
		p.out.SendIP(b)
	}
	return fault{}
}
