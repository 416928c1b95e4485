// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/teredo"
)

// maxTrailers bounds the bytes behind the IPv6 packet that are passed on. One
// trailer of each known type takes 44 bytes; the rest is for types to come, and
// too little to make the server a carrier of data hidden behind bubbles.
const maxTrailers = 256

// receive applies rules 1 to 7 of RFC 4380 section 5.3.1 to a packet that parsed
// (rule 1). It also reports whether the packet is a router solicitation.
func (e *Engine) receive(from netip.AddrPort, p *teredo.Packet) (solicitation bool, r Reason) {
	// Before all rules: what came from ourselves can only be a loop.
	if from.Port() == e.cfg.Port && e.isOwn(from.Addr()) {
		return false, SourceSelf
	}
	// A datagram from port 0 cannot be answered (RFC 768).
	if from.Port() == 0 {
		return false, PortZero
	}
	if r := e.checkContent(p); r != accepted { // rule 2
		return false, r
	}
	if !e.cfg.Global.OK(from.Addr()) { // rule 3
		return false, SourceNotGlobal
	}
	return e.checkSource(from, p.IPv6)
}

// checkContent is rule 2: only bubbles and ICMPv6 messages, and none larger than
// the link.
func (e *Engine) checkContent(p *teredo.Packet) Reason {
	if len(p.IPv6) > e.cfg.MTU || len(p.Trailers) > maxTrailers {
		return Oversized
	}
	if teredo.IsBubble(p.IPv6) {
		return accepted
	}
	if p.IPv6.NextHeader() != packet.ProtoICMPv6 {
		return NotCarried
	}
	if len(p.IPv6.Payload()) < minICMPv6 {
		return ShortICMPv6
	}
	return accepted
}

// minICMPv6 is the part that all ICMPv6 messages of use here have.
const minICMPv6 = 8

// checkSource is rules 4 to 7: the IPv6 source address must fit the IPv4 one, or
// the packet must be for a client of this server.
func (e *Engine) checkSource(from netip.AddrPort, p packet.IPv6) (solicitation bool, r Reason) {
	src, dst := p.SrcBytes(), p.DstBytes()
	switch {
	case isSolicitation(p): // rule 4
		if err := teredo.CheckRouterSolicitation(p); err != nil {
			return false, reasonOf(err)
		}
		return true, accepted
	case e.isTeredo(src): // rule 5
		if teredo.Mapped(src) != from {
			return false, SourceMismatch
		}
		return false, accepted
	case e.isTeredo(dst) && e.serves(dst): // rule 6
		// Bubbles of relays may come from a link-local address, but no packet
		// comes from others that are not forwarded.
		if !special.Forwarded6(src) && !p.Src().IsLinkLocalUnicast() {
			return false, SourceNotUnicast
		}
		return false, accepted
	}
	return false, NotServed // rule 7
}

// isSolicitation reports whether p is what rule 4 describes, right or not.
func isSolicitation(p packet.IPv6) bool {
	return p.NextHeader() == packet.ProtoICMPv6 && p.Payload()[0] == packet.ICMPv6RouterSolicitation &&
		*p.DstBytes() == allRouters && p.Src().IsLinkLocalUnicast()
}

var allRouters = teredo.AllRouters.As16()
