// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"github.com/isthmus-net/isthmus/internal/packet"
)

// largestUncut is the size up to which an IPv4 packet leaves without DF (RFC 7915
// section 5): what becomes of an IPv6 packet of 1280.
const largestUncut = 1260

// smallest4 is the least MTU of an IPv4 link (RFC 791 section 3.2).
const smallest4 = 68

// toIPv4 translates a parsed IPv6 packet (RFC 7915 section 5).
func (p *pass) toIPv4(h *header6) fault {
	message := isICMPError6(h)
	switch {
	case illegal6(h.src):
		return refuse(ReasonIllegalSource)
	case illegal6(h.dst):
		return refuse(ReasonIllegalDestination)
	case h.segmentsLeft != 0:
		return fault{ReasonSegmentsLeft, uint32(h.segmentsLeft)}
	case h.proto == protoICMP || h.proto == protoIGMP:
		return refuse(ReasonMisplacedProtocol)
	}
	f := fields4{tos: p.tos(h.trafficClass), proto: protoTo4(h.proto), total: ipv4HeaderLen + len(h.payload())}
	replaced, r := p.addresses4(h, message, &f)
	if r != ReasonNone {
		return refuse(r)
	}
	if f.ttl = h.hopLimit; !p.path.HopTaken {
		if h.hopLimit <= 1 {
			return refuse(ReasonHopLimit)
		}
		f.ttl--
	}
	if message {
		return p.sendError4(h, &f, replaced)
	}
	return p.sendPlain4(h, &f)
}

// tos returns what becomes of the traffic class (RFC 7915 section 5.1).
func (p *pass) tos(trafficClass uint8) uint8 {
	if p.t.fixedTOS {
		return p.t.tos
	}
	return trafficClass
}

// protoTo4 maps ICMPv6 to ICMP and leaves the rest (RFC 7915 section 5.1).
func protoTo4(proto uint8) uint8 {
	if proto == packet.ProtoICMPv6 {
		return protoICMP
	}
	return proto
}

// addresses4 maps the addresses of the outer header. replaced is set when the source
// had no IPv4 form and one of the pool stands for it (RFC 6791).
func (p *pass) addresses4(h *header6, message bool, f *fields4) (replaced bool, r Reason) {
	if p.bound != nil {
		if !p.bound.Outer.are4() {
			return false, ReasonSourceUnmapped
		}
		f.src, f.dst = p.bound.Outer.Src.As4(), p.bound.Outer.Dst.As4()
		if p.bound.Router {
			if src, ok := p.t.pooled4(h.src, p.path.Routers); ok {
				f.src, replaced = src, true
			}
		}
		return replaced, ReasonNone
	}
	f.src, _, r = p.t.to4(h.src)
	if r == ReasonSourceUnmapped && message {
		if src, ok := p.t.routerSource4(h.src, p.path.Routers); ok {
			f.src, replaced, r = src, true, ReasonNone
		}
	}
	if r != ReasonNone {
		return false, r
	}
	var by origin
	if f.dst, by, r = p.t.to4(h.dst); r != ReasonNone {
		return false, asDestination(r)
	}
	if !message {
		p.hairpin = hairpinKey{by, f.dst}
	}
	switch { // RFC 7915 section 8: an embedded address may be one that no packet has
	case illegal4(f.src):
		return false, ReasonIllegalSource
	case illegal4(f.dst):
		return false, ReasonIllegalDestination
	}
	return replaced, ReasonNone
}

// setFragment4 writes identification, flags and offset (RFC 7915 sections 5.1, 5.1.1).
func (p *pass) setFragment4(h *header6, f *fields4) {
	if h.hasFragment {
		f.id, f.flags = uint16(h.id), h.offset
		if h.mf {
			f.flags |= flagMF
		}
		return
	}
	f.id = p.nextID(f)
	if f.total > largestUncut {
		f.flags = flagDF
	}
}

// nextID returns the identification of what the packet becomes, the same each time.
func (p *pass) nextID(f *fields4) uint16 {
	if !p.identified {
		p.id, p.identified = p.path.nextID(f.src, f.dst), true
	}
	return p.id
}

// setOuterFragment4 does so for the packet itself, which is not in an error: where hosts
// share addresses, its identification must not be one that its host has chosen.
func (p *pass) setOuterFragment4(h *header6, f *fields4) {
	p.setFragment4(h, f)
	switch {
	case p.bound == nil || !h.hasFragment:
	case h.fragment():
		f.id = p.path.FragmentID
	default:
		f.id = p.nextID(f)
	}
}

// mtu4 returns what the next IPv4 link takes.
func (p *pass) mtu4() int {
	if p.path.MTU4 == 0 {
		return 65535
	}
	return max(p.path.MTU4, smallest4)
}

// size4 judges the size of the packet (RFC 7915 section 5.1.1): what an IPv6 host may
// send anywhere is cut to fit, larger packets are refused.
func (p *pass) size4(h *header6, f *fields4) (cut int, bad fault) {
	mtu := p.mtu4()
	switch {
	case f.total <= mtu:
		return 0, fault{}
	case ipv6HeaderLen+h.length <= maxError6 || p.path.Reassembled:
		return mtu, fault{}
	}
	return 0, fault{ReasonTooBig, uint32(max(maxError6, mtu+ipv6HeaderLen-ipv4HeaderLen))}
}

// sendPlain4 translates everything but ICMPv6 errors.
func (p *pass) sendPlain4(h *header6, f *fields4) fault {
	if h.proto == packet.ProtoICMPv6 && h.fragment() && p.path.Message == 0 {
		return refuse(ReasonFragmentedICMP)
	}
	if h.offset == 0 {
		if r := judge6(h); r != ReasonNone {
			return refuse(r)
		}
	}
	if p.hairpins() {
		return p.turn(h, f)
	}
	cut, bad := p.size4(h, f)
	if bad.reason != ReasonNone {
		return bad
	}
	b := p.build4(h, f)
	if cut != 0 {
		send4(b, cut, p.out)
	} else {
		p.out.SendIP(b)
	}
	return fault{}
}

// build4 makes the whole IPv4 packet.
func (p *pass) build4(h *header6, f *fields4) []byte {
	p.setOuterFragment4(h, f)
	b := appendHeader4(p.out.Alloc(f.total), f)
	b = append(b, h.payload()...)
	if h.offset != 0 {
		return b
	}
	m := b[ipv4HeaderLen:]
	if h.proto == packet.ProtoICMPv6 {
		queryTo4(m, h.src, h.dst, p.message(h.fragment(), len(m)), p.bound.outer())
	} else {
		updateTransport(m, h.proto, addressChange4(h, f), p.bound.outer())
	}
	return b
}

// judge6 judges the transport header of a packet or first fragment.
func judge6(h *header6) Reason {
	if h.proto == packet.ProtoICMPv6 {
		return checkQuery6(h.payload())
	}
	return checkTransport(h.payload(), h.proto)
}

// addressChange4 is the change of the pseudo-header.
func addressChange4(h *header6, f *fields4) packet.Change {
	return packet.Change(0).Swap(h.src[:], f.src[:]).Swap(h.dst[:], f.dst[:])
}
