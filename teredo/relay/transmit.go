// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// HandleIP takes an IPv6 packet for a Teredo client (RFC 4380 section 5.4.1). It
// may rewrite the packet, and out may alias it.
func (r *Relay) HandleIP(ip []byte, now time.Time, out *packet.Batch) {
	at := r.clock.At(now)
	// The steady state: what an entry says of its address was checked when it was
	// made.
	if r.quickIP(ip, at, out, &r.quick) {
		return
	}
	r.stats.FromIPv6++
	p, _, ok := packet.ParseIPv6(ip)
	if !ok {
		r.drop(formOf(ip))
		return
	}
	if p.DstBytes()[0] == multicast {
		r.stats.HostMulticast++
		return
	}
	if why, ok := r.admit(p); !ok {
		r.refuse(p, why, now, out)
		return
	}
	r.transmit(p, r.find(p.DstBytes(), at), at, now, out)
}

// multicast is the first byte of multicast addresses (RFC 4291 section 2.4).
// Packets to them are no traffic of others, which the kernel would not route
// here: a host says on each new link, and so on our device, what groups it is in.
const multicast = 0xff

// formOf says what keeps b from being an IPv6 packet.
func formOf(b []byte) Reason {
	switch {
	case len(b) < packet.IPv6HeaderLen:
		return Truncated
	case b[0]>>4 != 6:
		return NotIPv6
	}
	return BadLength
}

// isSource reports whether packets from a are relayed.
func (r *Relay) isSource(a *[16]byte) bool { return isHost(a) && !r.isTeredo(a) }

// admit applies the rules in the order in which an error may be sent about them:
// nothing is answered before the addresses are known to be good.
func (r *Relay) admit(p packet.IPv6) (why Reason, ok bool) {
	src, dst := p.SrcBytes(), p.DstBytes()
	switch {
	case !r.isTeredo(dst):
		return DestinationNotTeredo, false
	case !isHost(src):
		return BadSource, false
	case r.isTeredo(src):
		return TeredoToTeredo, false
	}
	if why, ok := r.checkClient(dst); !ok {
		return why, false
	}
	if len(p) > r.cfg.MTU {
		return TooBig, false
	}
	if !r.shared.Load().takeHop(p) {
		return HopLimitReached, false
	}
	return 0, true
}

// refuse drops p, with the ICMPv6 error that belongs to the reason.
func (r *Relay) refuse(p packet.IPv6, why Reason, now time.Time, out *packet.Batch) {
	r.drop(why)
	switch why {
	case TooBig:
		r.sendError(packet.ICMPv6PacketTooBig, 0, uint32(r.cfg.MTU), p, now, out)
	case HopLimitReached:
		r.sendError(packet.ICMPv6TimeExceeded, 0, 0, p, now, out)
	case PeerSilent:
		r.sendError(packet.ICMPv6Unreachable, packet.UnreachableAddress, 0, p, now, out)
	}
}

// send sends p to a client's mapped address.
func (r *Relay) send(to netip.AddrPort, p packet.IPv6, out *packet.Batch) {
	r.stats.ToUDP++
	out.SendUDP(Socket, to, p)
}
