// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// advertise tells a terminal what the GGSN has advertised. A stack behind a station hears all of
// it, from the router of its link. The stack of a device has addresses and routes from us, and
// programs there hear what else they may want, such as a CLAT the prefix of a NAT64: from
// somebody who is nobody's router (RFC 4861 section 4.2), so that the stack makes nothing of it.
func (e *Engine) advertise(s *session, now time.Time, out *Output) {
	h, t := &s.six, e.stations[s.wanted.Link]
	lifetime := uint16(0)
	if h.router.IsValid() {
		lifetime = uint16(min(left(h.until, now), 9000)) // the timer of its end may be late
	}
	switch {
	case t == nil && len(h.resolvers(nil))+len(h.searchList())+len(h.nat64) > 0:
		out.deliver(s.wanted.Link, routerAdvertisement(h.appendServices(make([]byte, 12), lifetime, now)))
	case t != nil && t.six == s:
		body := append(binary.BigEndian.AppendUint16([]byte{64, 0}, lifetime), make([]byte, 8)...)
		body = h.appendServices(h.appendNetwork(body, now), lifetime, now)
		body = append(append(body, packet.NDSourceLinkLayer, 1), t.own[:]...)
		t.frame(etherIPv6, routerAdvertisement(body), out)
	}
}

// routerAdvertisement is one to all nodes of a terminal's link.
func routerAdvertisement(body []byte) []byte {
	return packet.AppendICMPv6(nil, stationRouter, packet.AllNodes, packet.NDHopLimit, packet.ICMPv6RouterAdvert, 0, body)
}

// appendNetwork appends the prefixes, which are not said to be on the link, as the GGSN's are
// not, and the MTU.
func (h *host6) appendNetwork(body []byte, now time.Time) []byte {
	for _, a := range h.prefixes {
		prefix := netip.PrefixFrom(network(a.Address), 64)
		body = packet.AppendPrefixInformation(body, prefix, packet.PrefixAutonomous, left(a.Valid, now), left(a.Preferred, now))
	}
	if h.mtu != 0 {
		body = packet.AppendMTU(body, uint32(h.mtu))
	}
	return body
}

// appendServices appends name servers and the search list, which last as long as the router, and
// the prefixes of NAT64s.
func (h *host6) appendServices(body []byte, lifetime uint16, now time.Time) []byte {
	body = link.AppendResolvers(body, h.resolvers(nil), uint32(lifetime))
	if domains, err := link.EncodeDomains(h.searchList()); err == nil && len(domains) > 0 {
		body = link.AppendSearchList(body, domains, uint32(lifetime))
	}
	for _, n := range h.nat64 {
		body, _ = pref64.AppendOption(body, pref64.Option{Prefix: n.prefix, Lifetime: max(n.until.Sub(now), 0)})
	}
	return body
}

// left is what is left of a lifetime in seconds; one that has no end is of all ones.
func left(end, now time.Time) uint32 {
	if end.IsZero() {
		return packet.Infinite
	}
	return uint32(max(end.Sub(now), 0) / time.Second)
}

// solicited answers a solicitation of a program on a terminal's device. It reports whether the
// packet was one.
func (e *Engine) solicited(link int, p packet.IPv6, now time.Time, out *Output) bool {
	m, ok := p.ICMPv6()
	s := e.sources[source{link, p.Src()}]
	if !ok || m[0] != packet.ICMPv6RouterSolicitation || m[1] != 0 || p.HopLimit() != packet.NDHopLimit || s == nil || !p.Src().IsLinkLocalUnicast() {
		return false
	}
	e.advertise(s, now, out)
	return true
}
