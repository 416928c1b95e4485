// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/packet"
)

const (
	dhcp6Delegations = 25 // RFC 8415 section 21.21
	dhcp6Prefix      = 26
	maxDelegated     = 4 // prefixes of one terminal
)

// delegated notes the prefixes that a program behind a link is told of by DHCPv6, since its
// packets have them from then on. This engine asks for none itself.
func (e *Engine) delegated(s *session, p packet.IPv6) {
	m := p.Payload()
	if p.NextHeader() != packet.ProtoUDP || len(m) < packet.UDPHeaderLen+dhcp6Header || !p.Src().IsLinkLocalUnicast() ||
		binary.BigEndian.Uint16(m[2:]) != dhcp6Client || m[packet.UDPHeaderLen] != dhcp6Reply {
		return
	}
	eachDHCP6(m[packet.UDPHeaderLen+dhcp6Header:], func(code uint16, v []byte) {
		if code == dhcp6Delegations && len(v) >= 12 {
			eachDHCP6(v[12:], func(code uint16, v []byte) {
				if code == dhcp6Prefix && len(v) >= 25 && v[8] > 0 && v[8] <= 64 {
					p := netip.PrefixFrom(netip.AddrFrom16([16]byte(v[9:])), int(v[8])).Masked()
					s.six.take6(p, binary.BigEndian.Uint32(v[4:]) > 0)
				}
			})
		}
	})
	if len(s.six.delegated) > 0 {
		e.routers[s.wanted.Link] = s
	}
}

// eachDHCP6 calls f for options until one is cut short.
func eachDHCP6(b []byte, f func(code uint16, v []byte)) {
	for len(b) >= 4 && len(b) >= 4+int(binary.BigEndian.Uint16(b[2:])) {
		end := 4 + int(binary.BigEndian.Uint16(b[2:]))
		f(binary.BigEndian.Uint16(b), b[4:end])
		b = b[end:]
	}
}

// take6 notes a prefix, or that it is no more.
func (h *host6) take6(p netip.Prefix, valid bool) {
	h.delegated = slices.DeleteFunc(h.delegated, func(o netip.Prefix) bool { return o == p })
	if valid && len(h.delegated) < maxDelegated {
		h.delegated = append(h.delegated, p)
	}
}

// routes reports whether an address is of a prefix that was delegated.
func (h *host6) routes(a netip.Addr) bool {
	return slices.ContainsFunc(h.delegated, func(p netip.Prefix) bool { return p.Contains(a) })
}

// routerOf returns the session that a packet of a delegated prefix is of; nil: there is none.
func (e *Engine) routerOf(link int, ip []byte) *session {
	s := e.routers[link]
	if s == nil || ip[0]>>4 != 6 || !s.six.routes(packet.IPv6(ip).Src()) {
		return nil
	}
	return s
}
