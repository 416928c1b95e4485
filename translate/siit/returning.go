// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siit

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// returning finds packets that the host would lead round in a circle. Both the IPv6 and
// the IPv4 form of an address of pool4, or of a mapping inside the prefixes, lead to the
// translator, unless the host has a route for the one IPv6 host behind it.
type returning struct {
	prefixes []translate.Prefix // longest first
	mappings *translate.Table
	pool4    []netip.Prefix
	none     bool // there can be none: so it mostly is, and costs nothing
}

func newReturning(s *Settings) returning {
	r := returning{prefixes: slices.Clone(s.Translate.Prefixes), mappings: s.Translate.Mappings, pool4: slices.Clone(s.Pool4)}
	slices.SortStableFunc(r.prefixes, func(a, b translate.Prefix) int { return b.Prefix().Bits() - a.Prefix().Bits() })
	if r.mappings == nil {
		r.mappings = new(translate.Table)
	}
	r.none = len(r.pool4) == 0 && !slices.ContainsFunc(r.prefixes, func(p translate.Prefix) bool { return r.mappings.Overlaps(p.Prefix()) })
	return r
}

// takes reports whether the destination of an IPv6 packet, translated to IPv4 and back, is
// what it was.
func (r *returning) takes(ip []byte) bool {
	if r.none || len(ip) < packet.IPv6HeaderLen {
		return false
	}
	dst := netip.AddrFrom16([16]byte(ip[24:40]))
	for i := range r.prefixes {
		v4, ok := r.prefixes[i].Extract(dst)
		if !ok {
			continue
		}
		if v4, ok := r.mappings.To4(dst); ok {
			back, ok := r.mappings.To6(v4)
			return ok && back == dst
		}
		_, mapped := r.mappings.To6(v4)
		return !mapped && slices.ContainsFunc(r.pool4, func(p netip.Prefix) bool { return p.Contains(v4) })
	}
	return false
}

// halve takes half of the hops of an IPv6 packet. The host takes one where it leads a
// packet from the translator back to it, and the device gives two back, since mostly there
// are two to be taken; so nothing else would end the circle. Half of them ends it soon,
// while a packet that a route for its IPv4 form leads out of it has enough left.
func halve(ip []byte) { ip[hopLimitAt] /= 2 }

// hopLimitAt is where the hop limit of an IPv6 packet stands (RFC 8200 section 3).
const hopLimitAt = 7
