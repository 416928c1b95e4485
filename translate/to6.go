// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"github.com/isthmus-net/isthmus/internal/packet"
)

// toIPv6 translates a parsed IPv4 packet (RFC 7915 section 4).
func (p *pass) toIPv6(h *header4) fault {
	message := isICMPError4(h)
	switch {
	case illegal4(h.src) && !message: // section 4.1: in errors it helps to find trouble
		return refuse(ReasonIllegalSource)
	case illegal4(h.dst):
		return refuse(ReasonIllegalDestination)
	case h.proto == protoIGMP:
		return refuse(ReasonIGMP)
	case misplacedIn4(h.proto):
		return refuse(ReasonMisplacedProtocol)
	case h.sourceRoute():
		return refuse(ReasonSourceRoute)
	}
	f := fields6{trafficClass: p.trafficClass(h.tos), proto: protoTo6(h.proto), payload: len(h.payload())}
	if r := p.addresses6(h, message, &f); r != ReasonNone {
		return refuse(r)
	}
	if f.hopLimit = h.ttl; !p.turned && !p.path.HopTaken {
		if h.ttl <= 1 {
			return refuse(ReasonHopLimit)
		}
		f.hopLimit--
	}
	if message {
		return p.sendError6(h, &f)
	}
	return p.sendPlain6(h, &f)
}

// trafficClass returns what becomes of the TOS octet (RFC 7915 section 4.1).
func (p *pass) trafficClass(tos uint8) uint8 {
	if p.t.zeroTrafficClass {
		return 0
	}
	return tos
}

// protoTo6 maps ICMP to ICMPv6 and leaves the rest (RFC 7915 section 4.1).
func protoTo6(proto uint8) uint8 {
	if proto == protoICMP {
		return packet.ProtoICMPv6
	}
	return proto
}

// addresses6 maps the addresses of the outer header, with the simple hairpinning
// rules 1 and 3 where they hold (RFC 7757 section 4.2.1).
func (p *pass) addresses6(h *header4, message bool, f *fields6) Reason {
	if p.bound != nil {
		if !p.bound.Outer.are6() {
			return ReasonSourceUnmapped
		}
		f.src, f.dst = p.bound.Outer.Src.As16(), p.bound.Outer.Dst.As16()
		if p.bound.Router {
			if src, ok := p.t.pooled6(h.src, p.path.Routers); ok {
				f.src = src
			}
		}
		return ReasonNone
	}
	explicit := true
	if p.simple() {
		explicit = message && !sameAsInnerDestination(h)
	}
	var r Reason
	if f.src, r = p.t.to6(h.src, explicit); r != ReasonNone {
		if !message {
			return r
		}
		replaced, ok := p.t.routerSource6(h.src, p.path.Routers)
		if !ok {
			return r
		}
		f.src = replaced
	}
	f.dst, r = p.t.to6(h.dst, true)
	return asDestination(r)
}

// simple reports whether the rules of RFC 7757 section 4.2.1 hold.
func (p *pass) simple() bool { return p.turned || p.t.hairpin == HairpinSimple }

// size6 judges the size of the packet (RFC 7915 section 4.1). cut is the size to cut
// it to, or 0; f gains a Fragment Header where one is needed.
func (p *pass) size6(h *header4, f *fields6) (cut int, bad fault) {
	size := ipv6HeaderLen + f.payload
	mtu := p.path.MTU6
	if mtu != 0 {
		mtu = max(mtu, maxError6) // no IPv6 link has less (RFC 8200 section 5)
	}
	if h.fragment() {
		f.hasFragment, f.offset, f.mf, f.id = true, h.offset, h.mf, h.id
		size += fragmentHeaderLen
	}
	if h.df {
		grows := ipv6HeaderLen - ipv4HeaderLen
		if f.hasFragment {
			grows += fragmentHeaderLen
		}
		if mtu != 0 && h.total+grows > mtu {
			return 0, fault{ReasonTooBig, uint32(mtu - grows)}
		}
		return 0, fault{}
	}
	limit := p.t.lowestMTU
	if mtu != 0 {
		limit = min(limit, mtu)
	}
	if size <= limit {
		return 0, fault{}
	}
	f.hasFragment, f.id = true, h.id
	return limit, fault{}
}

// sendPlain6 translates everything but ICMP errors.
func (p *pass) sendPlain6(h *header4, f *fields6) fault {
	if h.proto == protoICMP && h.fragment() && p.path.Message == 0 {
		return refuse(ReasonFragmentedICMP)
	}
	compute := false
	if h.offset == 0 {
		var r Reason
		if compute, r = p.judge4(h); r != ReasonNone {
			return refuse(r)
		}
	}
	cut, bad := p.size6(h, f)
	if bad.reason != ReasonNone {
		return bad
	}
	room := ipv6HeaderLen + fragmentHeaderLen + f.payload
	b := appendHeader6(p.out.Alloc(room), f)
	m := len(b)
	b = append(b, h.payload()...)
	if h.offset == 0 {
		p.payload6(b[m:], h, f, compute)
	}
	if cut != 0 {
		send6(b, cut, p.out)
	} else {
		p.out.SendIP(b)
	}
	return fault{}
}

// judge4 judges the transport header of a packet or first fragment.
func (p *pass) judge4(h *header4) (compute bool, r Reason) {
	m := h.payload()
	if h.proto == protoICMP {
		return false, checkQuery4(m)
	}
	if r = checkTransport(m, h.proto); r != ReasonNone {
		return false, r
	}
	if h.proto == packet.ProtoUDP && m[6]|m[7] == 0 {
		return p.t.judgeZeroChecksum(m, h.fragment())
	}
	return false, ReasonNone
}

// payload6 adapts the transport header of the translated packet.
func (p *pass) payload6(m []byte, h *header4, f *fields6, compute bool) {
	if h.proto == protoICMP {
		queryTo6(m, &f.src, &f.dst, p.message(h.fragment(), f.payload), p.bound.outer())
		return
	}
	updateTransport(m, h.proto, addressChange6(h, f), p.bound.outer())
	if compute {
		fillUDP(m, &f.src, &f.dst)
	}
}

// addressChange6 is the change of the pseudo-header: the addresses alone, since
// length and protocol stay.
func addressChange6(h *header4, f *fields6) packet.Change {
	return packet.Change(0).Swap(h.packet[12:20], f.src[:]).With(f.dst[:])
}
