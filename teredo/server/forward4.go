// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// forwardIPv4 sends a packet to the Teredo client that its destination names,
// from the primary address (RFC 4380 section 5.3.1). The trailers go with it
// unchanged: they are between the clients (RFC 6081 section 4). The hop limit
// stays: bubbles may start with 0 or 1, and the client's link begins here.
func (e *Engine) forwardIPv4(from netip.AddrPort, p *teredo.Packet, payload []byte, out *packet.Batch) Reason {
	dst := p.IPv6.DstBytes()
	to := teredo.Mapped(dst)
	if r := e.checkMapped(to, dst); r != accepted {
		return r
	}
	b := payload[len(payload)-len(p.IPv6)-len(p.Trailers):]
	// The origin tells our client where the packet came from, so that it can
	// answer there; clients of other servers do not trust us with that.
	if e.serves(dst) {
		withOrigin := out.Alloc(originLen + len(b))
		b = append(teredo.AppendOrigin(withOrigin, from), b...)
	}
	out.SendUDP(Primary, to, b)
	if teredo.IsBubble(p.IPv6) {
		e.counters.Bubbles++
	} else {
		e.counters.ICMPv6ToClients++
	}
	return accepted
}

// checkMapped reports whether a packet may be sent to the mapped address of the
// Teredo address dst.
func (e *Engine) checkMapped(to netip.AddrPort, dst *[16]byte) Reason {
	switch {
	case !e.cfg.Global.OK(to.Addr()):
		return MappedNotGlobal
	case to.Port() == 0:
		return PortZero
	// No one's client lives on a server's own address and port. Such addresses
	// are made up to send packets in circles, through us or through the server
	// that the address names.
	case e.isOwn(to.Addr()):
		return MappedSelf
	case to.Port() == teredo.Port && to.Addr() == teredo.Server(dst):
		return MappedServer
	}
	return accepted
}
