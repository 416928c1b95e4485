// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"slices"
)

// maxOwnDNS is how many name servers a session can be granted: with more, protocol configuration options have no
// room for the rest.
const maxOwnDNS = 4

// ownLink is what a session was granted for its link, in place of what its access point says: name servers (RFC
// 6911 section 3.2; empty: those) and an MTU (RFC 2865 section 5.12; 0: that).
type ownLink struct {
	dns []netip.Addr
	mtu int
}

// setLink gives a session what it was granted. What cannot be that of a link is left out.
func (e *Engine) setLink(h handle, s *session, g *Grant) {
	if g == nil {
		return
	}
	var own ownLink
	if g.MTU > 0 {
		own.mtu = max(g.MTU, minMTU)
	}
	if s.has.has(TypeIPv6) {
		list := slices.DeleteFunc(slices.Clone(g.DNS6), func(a netip.Addr) bool {
			return !a.Is6() || a.Is4In6() || !unicast(a) || a.IsLoopback()
		})
		own.dns = list[:min(len(list), maxOwnDNS)]
	}
	if own.mtu > 0 || len(own.dns) > 0 {
		s.marks |= markOwn
		e.ownLinks[h] = own
	}
}

// ownOf is what a session was granted.
func (e *Engine) ownOf(s *session) ownLink {
	if !s.marked(markOwn) {
		return ownLink{}
	}
	return e.ownLinks[e.contexts.at(s.first).session]
}

// dnsOf are the IPv6 name servers that a session is told.
func (e *Engine) dnsOf(s *session) []netip.Addr {
	if own := e.ownOf(s); len(own.dns) > 0 {
		return own.dns
	}
	return e.accessPoint(s).DNS6
}

// mtuOf is the MTU of a session's link: what it was granted does not make the way wider.
func (e *Engine) mtuOf(s *session) int {
	mtu := e.accessPoint(s).MTU
	if own := e.ownOf(s); own.mtu > 0 {
		mtu = min(mtu, own.mtu)
	}
	return mtu
}

func (e *Engine) appendOwn(b []byte, h handle) []byte {
	for _, a := range e.ownLinks[h].dns {
		raw := a.As16()
		b = append(b, raw[:]...)
	}
	return b
}

// readDNS reads the name servers of a session; false if they cannot be read.
func (r *resuming) readDNS(n uint8) (list []netip.Addr, ok bool) {
	for range n {
		var raw [16]byte
		if !r.record(&raw) {
			return nil, false
		}
		list = append(list, netip.AddrFrom16(raw))
	}
	return list, true
}
