// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// route sends an accepted packet on its way by its IPv6 destination (RFC 4380
// section 5.3.1, second half).
func (e *Engine) route(from netip.AddrPort, local int, p *teredo.Packet, payload []byte, out *packet.Batch) Reason {
	dst := p.IPv6.DstBytes()
	if *dst == allRouters || e.isLinkLocal(p.IPv6) {
		return e.handleLocal(from, local, p.IPv6, out)
	}
	// Neighbor Discovery ends at the link (RFC 4861 section 6.1): passed on, it
	// could only mislead.
	if p.IPv6.IsNeighborDiscovery() {
		return NeighborDiscovery
	}
	switch {
	case e.isTeredo(dst):
		return e.forwardIPv4(from, p, payload, out)
	case !isGlobal(dst):
		return DestinationNotGlobal
	}
	return e.forwardIPv6(p.IPv6, out)
}

// isLinkLocal reports whether p is for a link-local address of this server.
func (e *Engine) isLinkLocal(p packet.IPv6) bool {
	dst := p.Dst()
	return dst == e.linkIPv6[Primary] || dst == e.linkIPv6[Secondary]
}

// isGlobal reports whether a is a global unicast address: inside 2000::/3, the only
// part of the space that is given out as such (RFC 4291 section 2.4, RFC 3587).
// Unique local addresses are left out, as no one outside may send to them. All special
// blocks in there are forwarded.
func isGlobal(a *[16]byte) bool { return a[0]>>5 == 0b001 }
