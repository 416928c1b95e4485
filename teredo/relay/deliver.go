// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// deliver gives p, which came from the client with this mapping, to the IPv6 side
// when its destination is served (RFC 4380 section 5.4.2). Bubbles end here.
func (r *Relay) deliver(p packet.IPv6, mapped netip.AddrPort, now time.Time, out *packet.Batch) {
	if p.NextHeader() == packet.ProtoNone {
		r.stats.BubblesReceived++
		return
	}
	if why, ok := r.mayDeliver(p, r.shared.Load()); !ok {
		r.drop(why)
		return
	}
	if !r.shared.Load().takeHop(p) {
		r.drop(HopLimitReached)
		if b := r.buildError(packet.ICMPv6TimeExceeded, 0, 0, p, now, out); b != nil {
			out.SendUDP(Socket, mapped, b)
		}
		return
	}
	r.stats.ToIPv6++
	out.SendIP(p)
}

// mayDeliver applies the rules on clients' packets: where they may go, and that
// no one meddles with the neighbours of the host, which a host-specific relay, that
// takes no hop, would let through.
func (r *Relay) mayDeliver(p packet.IPv6, s *shared) (why Reason, ok bool) {
	dst := p.DstBytes()
	switch next := p.NextHeader(); {
	case !isHost(dst):
		return BadDestination, false
	case r.isTeredo(dst):
		return TeredoToTeredo, false
	case !s.serves(dst):
		return NotServed, false
	case next != packet.ProtoTCP && next != packet.ProtoUDP && p.IsNeighborDiscovery():
		return NeighborDiscovery, false
	}
	return 0, true
}
