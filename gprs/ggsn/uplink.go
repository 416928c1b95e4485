// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
)

// uplink takes a G-PDU: by its TEID it belongs to a context, which may send from its own
// addresses alone.
func (e *Engine) uplink(c call, socket Socket, from netip.AddrPort, b []byte) Reason {
	h, err := gtp.Decapsulate(b)
	if err != nil {
		return reasonOf(err)
	}
	if h.Version == gtp.V0 {
		h.TID = e.wireTID(from.Addr(), h.TID)
	}
	if !h.Extensions.Empty() {
		if _, unknown := h.Extensions.Uncomprehended(); unknown {
			return e.extensionOfUser(c, socket, from, &h)
		}
	}
	x := e.contextOf(&h)
	if x == 0 {
		if x = e.contextBefore(&h, from.Addr(), c.at); x == 0 {
			return e.indicate(c, socket, from, &h)
		}
	}
	u := e.contexts.at(x)
	s := e.sessions.at(u.session)
	if e.peers.at(u.user).addr != from.Addr() && !e.accessPoint(s).AnyOuterSource && e.contextBefore(&h, from.Addr(), c.at) != x {
		return OuterSource
	}
	return e.fromTerminal(c, x, u, s, h.Payload)
}

// contextOf returns the context that a G-PDU is of.
func (e *Engine) contextOf(h *gtp.Header) handle {
	if h.Version == gtp.V1 {
		return e.byTEID[h.TEID]
	}
	x := e.byTID[h.TID]
	if x == 0 || uint16(e.contexts.at(x).teid) != h.FlowLabel || e.sessions.at(e.contexts.at(x).session).version != gtp.V0 {
		return 0
	}
	return x
}

// extensionOfUser tells a node that an extension header of its G-PDU is not known.
func (e *Engine) extensionOfUser(c call, socket Socket, from netip.AddrPort, h *gtp.Header) Reason {
	t := transaction{call: c, socket: socket, from: from, header: *h}
	if known := e.byAddress[addressKey(from.Addr().As16())]; known != 0 {
		t.ph, t.p = known, e.peers.at(known)
		return e.notifyExtensions(&t)
	}
	return ExtensionUnknown
}

// fromTerminal judges a packet of a terminal.
func (e *Engine) fromTerminal(c call, x handle, u *pdpContext, s *session, ip []byte) Reason {
	if len(ip) == 0 {
		return NotIP
	}
	switch ip[0] >> 4 {
	case 4:
		p, ok := whole4(ip)
		switch {
		case !ok:
			return NotIP
		case !s.has.has(TypeIPv4):
			return WrongFamily
		case !e.emerge(c, s, p):
			return Congestion
		}
		return e.up4(c, x, u, s, p)
	case 6:
		p, _, ok := packet.ParseIPv6(ip)
		switch {
		case !ok:
			return NotIP
		case !s.has.has(TypeIPv6):
			return WrongFamily
		case !e.emerge(c, s, p):
			return Congestion
		}
		return e.up6(c, x, u, s, p)
	}
	return NotIP
}

// whole4 returns the IPv4 packet at the start of b. Its checksum is left to who gets it:
// what is wrong with it stays wrong.
func whole4(b []byte) (p []byte, ok bool) {
	if len(b) < packet.IPv4HeaderLen {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if head := headerLen4(b); head < packet.IPv4HeaderLen || n < head || n > len(b) {
		return nil, false
	}
	return b[:n:n], true
}

// up4 judges a packet of IPv4 by its addresses.
func (e *Engine) up4(c call, x handle, u *pdpContext, s *session, p []byte) Reason {
	v := e.vrfOf(s)
	if from := binary.BigEndian.Uint32(p[12:]); from != s.address && e.find4(v, from) != u.session {
		return SpoofedIPv4
	}
	dst := [4]byte(p[16:20])
	to := binary.BigEndian.Uint32(dst[:])
	owner, inside := e.owner4(v, to)
	switch {
	case to == e.own4:
		return OwnAddress
	case to>>28 == 0xe:
		return Multicast
	case owner == u.session || !special.Forwarded4(dst):
		return BadDestination
	}
	if !e.maySend(c, x, u, s, len(p)) {
		return OverRate
	}
	o := origin{vrf: e.accessPoint(s).VRF, context: x}
	if p[8] <= 1 {
		e.timeExceeded(c, o, s, p)
		return HopLimit
	}
	return e.forward(c, o, s, p, owner, inside)
}

// up6 judges a packet of IPv6 by its addresses. Link-local ones stay on the link, whose other
// end is this node (RFC 4291 section 2.5.6).
func (e *Engine) up6(c call, x handle, u *pdpContext, s *session, p packet.IPv6) Reason {
	src, dst := p.SrcBytes(), p.DstBytes()
	from, to := binary.BigEndian.Uint64(src[:]), binary.BigEndian.Uint64(dst[:])
	v := e.vrfOf(s)
	own := from == s.prefix || e.find6(v, from) == u.session
	if !own && !e.link(s).Has(src) && !p.Src().IsUnspecified() {
		if from&linkLocalMask == linkLocal {
			return SpoofedLinkLocal
		}
		return SpoofedIPv6
	}
	switch {
	case staysOnLink(to):
		e.seen(c, x, u, len(p))
		return e.toRouter(c, x, s, p)
	case to>>56 == 0xff:
		return Multicast
	case !own:
		return LinkScope
	case *dst == e.own6:
		return OwnAddress
	}
	owner, inside := e.owner6(v, to)
	if owner == u.session || !special.Forwarded6(dst) {
		return BadDestination
	}
	if !e.maySend(c, x, u, s, len(p)) {
		return OverRate
	}
	o := origin{vrf: e.accessPoint(s).VRF, context: x}
	if p.HopLimit() <= 1 {
		e.timeExceeded(c, o, s, p)
		return HopLimit
	}
	return e.forward(c, o, s, p, owner, inside)
}

// staysOnLink reports whether an address, by its upper half, is one of a link alone: of one host, or of a group.
func staysOnLink(to uint64) bool {
	group := to >> 48 &^ 0x00f0
	return to&linkLocalMask == linkLocal || group == 0xff01 || group == 0xff02
}

// linkLocalMask are the bits that make an address link-local.
const linkLocalMask uint64 = 0xffc0 << 48

// link is the IPv6 link that a session's contexts are.
func (e *Engine) link(s *session) link.Link {
	return link.Link{
		Prefix: s.prefix, More: e.accessPoint(s).morePrefixes(s), Further: e.furtherOf(s).prefixes, ID: s.interfaceID, Former: e.formerLink(s),
		DNS: e.ownOf(s).dns, MTU: e.mtuOf(s),
	}
}

// seen counts a packet of the terminal, for its accounts and for all of them alike, whatever becomes of it.
func (e *Engine) seen(c call, x handle, u *pdpContext, octets int) {
	u.lastSeen = c.seconds()
	e.carry(c, x, u, &u.up, octets)
	e.stats.Up.add(octets)
}

// maySend reports whether the terminal may send so much now, and counts what it may.
func (e *Engine) maySend(c call, x handle, u *pdpContext, s *session, octets int) bool {
	if u.full > 0 {
		e.closeFull(x, c) // by what programs have carried: what is dropped now is not of that
	}
	own, _ := e.rates(x, u)
	all, _ := e.together(s, u)
	if !u.up.pass(own, all, octets, c) {
		return false
	}
	e.seen(c, x, u, octets)
	return true
}

// forward takes a packet of a terminal on: to the network, or to another terminal if that
// has its destination. One inside that no terminal has is nowhere: the network would send it
// back.
func (e *Engine) forward(c call, o origin, s *session, p []byte, to handle, inside bool) Reason {
	a := e.accessPoint(s)
	way := a.UserToUser
	if to != 0 {
		way = between(way, e.accessPoint(e.sessions.at(to)).UserToUser)
	}
	switch {
	case to == 0 && inside && way != UserExternal:
		e.complain(c, o, a.speaker(), complainNoHost, p)
		return NoContext
	case to != 0 && way == UserAllow:
		return e.down(c, o, to, p, e.mtuOf(s))
	case to != 0 && way == UserDeny:
		e.prohibited(c, o, s, p)
		return UserDenied
	case to != 0 && way == UserSilent:
		return UserDenied
	}
	if a.MarkInner {
		packet.SetDSCP(p, e.contexts.at(o.context).mark)
	}
	r := e.fit(c, o, a, p, e.mtuOf(s), func(b []byte) { c.out.sendIP(a.VRF, b) })
	if r == none && e.shared != nil {
		e.enter(o.context, c)
	}
	return r
}

// between returns what becomes of packets from a terminal of one access point for one of
// another: they pass by the way that both have.
func between(from, to UserToUser) UserToUser {
	switch {
	case from == to:
		return from
	case from == UserSilent, to == UserSilent:
		return UserSilent
	}
	return UserDeny
}

// hop takes one off the hop limit; of IPv4 the checksum takes account of that (RFC 1624).
func hop(p []byte) {
	if p[0]>>4 == 6 {
		p[7]--
		return
	}
	p[8]--
	// The word with the hop limit fell by 0x0100, so the checksum rises by it.
	sum := uint32(binary.BigEndian.Uint16(p[10:])) + 0x0100
	binary.BigEndian.PutUint16(p[10:], uint16(sum+sum>>16))
}
