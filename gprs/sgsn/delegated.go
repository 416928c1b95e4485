// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// maxDelegated is how many prefixes a terminal has at most, by its own client, and again by programs behind it.
const maxDelegated = 8

// overheard notes the prefixes that a program behind a link is told of by DHCPv6, since its
// packets have them from then on.
func (e *Engine) overheard(s *session, p packet.IPv6) {
	m := p.Payload()
	if p.NextHeader() != packet.ProtoUDP || len(m) < packet.UDPHeaderLen+dhcp6Header || !p.Src().IsLinkLocalUnicast() ||
		binary.BigEndian.Uint16(m[2:]) != link.ClientPort || m[packet.UDPHeaderLen] != link.MessageReply {
		return
	}
	eachDHCP6(m[packet.UDPHeaderLen+dhcp6Header:], func(code uint16, v []byte) {
		if code == link.OptionIAPD && len(v) >= 12 {
			eachDHCP6(v[12:], func(code uint16, v []byte) {
				if code == link.OptionPrefix && len(v) >= 25 && v[8] > 0 && v[8] <= 64 {
					p := netip.PrefixFrom(netip.AddrFrom16([16]byte(v[9:])), int(v[8])).Masked()
					s.six.take6(p, binary.BigEndian.Uint32(v[4:]) > 0)
				}
			})
		}
	})
	if len(s.six.overheard) > 0 {
		e.routers[s.wanted.Link] = s
	}
}

// eachDHCP6 calls f for options until one is cut short.
func eachDHCP6(b []byte, f func(code uint16, v []byte)) {
	_ = allDHCP6(b, func(code uint16, v []byte) bool {
		f(code, v)
		return true
	})
}

// take6 notes a prefix, or that it is no more.
func (h *host6) take6(p netip.Prefix, valid bool) {
	h.overheard = slices.DeleteFunc(h.overheard, func(o netip.Prefix) bool { return o == p })
	if valid && len(h.overheard) < maxDelegated {
		h.overheard = append(h.overheard, p)
	}
}

// routes reports whether an address is of a prefix that was delegated.
func (h *host6) routes(a netip.Addr) bool {
	return slices.ContainsFunc(h.overheard, func(p netip.Prefix) bool { return p.Contains(a) }) ||
		slices.ContainsFunc(h.leases(), func(d Delegated) bool { return d.Prefix.Contains(a) })
}

// leases are those of the terminal's own client.
func (h *host6) leases() []Delegated {
	if h.prefix == nil {
		return nil
	}
	return h.prefix.leases
}

// routerOf returns the session that a packet of a delegated prefix is of; nil: there is none.
func (e *Engine) routerOf(link int, ip []byte) *session {
	s := e.routers[link]
	if s == nil || ip[0]>>4 != 6 || !s.six.routes(packet.IPv6(ip).Src()) {
		return nil
	}
	return s
}
