// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
)

// HandleIP takes a packet for terminals that came from a network. The packet is changed.
func (e *Engine) HandleIP(vrf uint8, ip []byte, now time.Time, out *Output) {
	c := e.begin(now, out)
	if r := e.fromNetwork(c, vrf, ip); r != none {
		e.stats.Dropped[r]++
	}
}

func (e *Engine) fromNetwork(c call, number uint8, ip []byte) Reason {
	if len(ip) == 0 || int(number) >= len(e.vrfs) {
		return NotIP
	}
	v, o := e.vrfs[number], origin{vrf: number}
	switch ip[0] >> 4 {
	case 4:
		p, ok := whole4(ip)
		if !ok {
			return NotIP
		}
		src := [4]byte(p[12:16])
		from := binary.BigEndian.Uint32(src[:])
		switch {
		case !special.Forwarded4(src):
			return BadSource
		case e.isInside(e.owner4(v, from)):
			return InsideSource
		case isRedirect4(p):
			return Redirect
		}
		return e.toTerminal(c, o, e.find4(v, binary.BigEndian.Uint32(p[16:])), p)
	case 6:
		p, _, ok := packet.ParseIPv6(ip)
		if !ok {
			return NotIP
		}
		from, to := binary.BigEndian.Uint64(p[8:]), binary.BigEndian.Uint64(p[24:])
		switch {
		case staysOnLink(to): // the kernel reports its groups on the device, from the address of all zeros (RFC 3810 section 5.2.13)
			return LinkScope
		case !special.Forwarded6(p.SrcBytes()):
			return BadSource
		case e.isInside(e.owner6(v, from)):
			return InsideSource
		case isRedirect6(p):
			return Redirect
		}
		return e.toTerminal(c, o, e.find6(v, to), p)
	}
	return NotIP
}

// isRedirect4 reports whether a packet tells of a better first hop (RFC 792). A terminal has
// one alone, its context, and the host redirects what it sends back by the way it came.
func isRedirect4(p []byte) bool {
	head := headerLen4(p)
	return p[9] == packet.ProtoICMPv4 && binary.BigEndian.Uint16(p[6:])&0x1fff == 0 && len(p) > head && p[head] == 5
}

// isRedirect6 is its counterpart (RFC 4861 section 4.5).
func isRedirect6(p packet.IPv6) bool {
	m := p.Payload()
	return p.NextHeader() == packet.ProtoICMPv6 && len(m) > 0 && m[0] == packet.ICMPv6Redirect
}

// toTerminal hands a packet of the network to the session that has its destination.
func (e *Engine) toTerminal(c call, o origin, to handle, p []byte) Reason {
	if to == 0 {
		e.unreachable(c, o, p)
		return NoContext
	}
	if hopLimit(p) <= 1 {
		e.timeExceeded(c, o, e.sessions.at(to), p)
		return HopLimit
	}
	return e.down(c, o, to, p, maxMTU)
}

func hopLimit(p []byte) byte {
	if p[0]>>4 == 6 {
		return p[7]
	}
	return p[8]
}

// down hands a packet to a terminal, by the context whose filters it matches. Its hop limit
// is 2 or more. mtu is that of the way so far.
func (e *Engine) down(c call, o origin, to handle, p []byte, mtu int) Reason {
	s := e.sessions.at(to)
	x, ok := e.downContext(s, p)
	if !ok {
		return NoFilter
	}
	a, u := e.accessPoint(s), e.contexts.at(x)
	mtu = min(mtu, e.mtuOf(s))
	// Of a packet that is too large its source is told, at whatever rate it comes.
	if len(p) <= mtu || p[0]>>4 == 4 && packet.Fragmentable(p) {
		if u.full > 0 {
			e.closeFull(x, c)
		}
		_, own := e.rates(x, u)
		_, all := e.together(s, u)
		if !u.down.pass(own, all, len(p), c) {
			return OverRate
		}
	}
	if a.MarkInner {
		packet.SetDSCP(p, u.mark)
	}
	r := e.fit(c, o, a, p, mtu, func(b []byte) { e.encapsulate(c, x, s, b) })
	if r == none && e.shared != nil {
		e.enter(x, c)
	}
	return r
}

// fit sends a packet on by a link, in pieces if it is too large and may be cut. Of one that may
// not, its source is told.
func (e *Engine) fit(c call, o origin, a *access, p []byte, mtu int, send func([]byte)) Reason {
	switch {
	case len(p) <= mtu:
		hop(p)
		e.clamp(p, mtu)
		send(p)
	case p[0]>>4 == 4 && packet.Fragmentable(p):
		hop(p)
		for at, more := 0, true; more; more = at != 0 {
			var b []byte
			b, at = packet.AppendFragment(c.out.Alloc(mtu), p, at, mtu)
			send(b)
		}
	default:
		e.complain(c, o, a.speaker(), complaint{type4: 3, code4: 4, type6: packet.ICMPv6PacketTooBig, mtu: mtu}, p)
		return TooBig
	}
	return none
}

// clamp lowers the segment size that a SYN names to what fits the MTU.
func (e *Engine) clamp(p []byte, mtu int) {
	if packet.ClampMSS(p, mtu) {
		e.stats.Clamped++
	}
}

// encapsulate sends a packet to a terminal as a G-PDU.
func (e *Engine) encapsulate(c call, x handle, s *session, p []byte) {
	u := e.contexts.at(x)
	e.carry(c, x, u, &u.down, len(p))
	e.stats.Down.add(len(p))
	addr := e.peers.at(u.user).addr
	socket := Socket(userPath(s.version)).of(addr)
	h := gtp.Header{Version: s.version, Type: gtp.TypeGPDU, TEID: u.peerTEID}
	if s.version == gtp.V0 {
		h.FlowLabel, h.TID, h.HasSequence = uint16(u.peerTEID), e.wireTID(addr, tidOf(s, u.nsapi)), true
	}
	if h.HasSequence = h.HasSequence || e.accessPoint(s).SequenceNumbers; h.HasSequence {
		h.Sequence = u.sent
		u.sent++
	}
	b, err := h.AppendTo(c.out.Alloc(h.Len()+len(p)), len(p))
	if err != nil {
		return // no packet is so long: see maxMTU
	}
	c.out.SendUDP(int(socket), netip.AddrPortFrom(addr, socket.Port()), append(b, p...))
	c.out.UDP[len(c.out.UDP)-1].Class = e.accessPoint(s).outerClass(u.mark, p)
}
