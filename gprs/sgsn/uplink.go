// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// gtpRoom is the longest header of a G-PDU: that of version 0.
const gtpRoom = 20

// HandleUE takes a packet that a terminal sends by its link. Its source says whose it is.
func (e *Engine) HandleUE(link int, ip []byte, now time.Time, out *Output) {
	from, ok := e.sourceOf(link, ip, now, out)
	if !ok {
		return
	}
	s := e.sources[from]
	if s == nil {
		s = e.routerOf(link, ip)
	}
	if s == nil {
		e.drops[dropSource]++
		return
	}
	if !e.silent(s, ip) {
		e.encapsulate(s.choose(ip), ip, now, out)
	}
}

// sourceOf returns where a packet comes from. Neighbor Discovery is this engine's work: that of
// a stack behind the link goes no further.
func (e *Engine) sourceOf(link int, ip []byte, now time.Time, out *Output) (from source, ok bool) {
	switch {
	case len(ip) >= packet.IPv4HeaderLen && ip[0]>>4 == 4:
		return source{link, netip.AddrFrom4([4]byte(ip[12:16]))}, true
	case len(ip) >= packet.IPv6HeaderLen && ip[0]>>4 == 6:
		p := packet.IPv6(ip)
		if p.NextHeader() == packet.ProtoICMPv6 && p.IsNeighborDiscovery() {
			if !e.solicited(link, p, now, out) {
				e.drops[dropDiscovery]++
			}
			return from, false
		}
		addr := p.Src()
		if !addr.IsLinkLocalUnicast() {
			addr = network(addr)
		}
		return source{link, addr}, true
	}
	e.drops[dropNotIP]++
	return from, false
}

// encapsulate sends a packet by a context, with its traffic class outside, too (RFC 2983 section 3.1,
// RFC 6040 section 4.1).
func (e *Engine) encapsulate(c *PDPContext, ip []byte, now time.Time, out *Output) {
	if !c.carries() {
		e.drops[dropNotReady]++
		return
	}
	s := c.session
	h := gtp.Header{Version: s.version(), TEID: c.remoteData}
	if h.Version == gtp.V0 {
		h.TEID, h.FlowLabel, h.TID, h.HasSequence = 0, uint16(c.remoteData), c.key, true
	}
	if h.HasSequence = h.HasSequence || e.set.UserSequence; h.HasSequence {
		h.Sequence = c.sequence
		c.sequence++
	}
	b, err := gtp.Encapsulate(out.Alloc(gtpRoom+len(ip)), &h, ip)
	if err != nil {
		e.drops[dropTooLong]++
		return
	}
	out.SendUDP(Socket(c.local, userPlane(s.version())), c.remoteUser, b)
	out.UDP[len(out.UDP)-1].Class = packet.TrafficClass(ip)
	c.counts.UpPackets++
	c.counts.UpOctets += uint64(len(ip))
	e.stats.UpPackets++
	e.stats.UpOctets += uint64(len(ip))
}
