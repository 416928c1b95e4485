// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/special"
)

// neverUnicast are the ranges that no list of allowed ranges can open: nothing
// there is another host.
var neverUnicast = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"),
}

// GlobalCheck decides which IPv4 addresses taken from a packet may be sent to:
// the global unicast address check of RFC 4380 section 5.2.4, which keeps Teredo
// nodes from being turned against local networks. Its list has grown since with the
// registry of special-purpose addresses (RFC 6890): shared address space (RFC 6598)
// and all else that is not globally reachable is refused, but for the addresses of
// examples.
type GlobalCheck struct {
	// Allow opens private ranges: for closed networks, labs, and for a node inside of
	// a carrier's NAT, whose subscribers have shared address space.
	Allow []netip.Prefix
	// Broadcasts are the directed broadcast addresses of the host's own subnets.
	Broadcasts []netip.Addr
}

// OK reports whether a is acceptable as a destination.
func (c *GlobalCheck) OK(a netip.Addr) bool {
	if !a.Is4() || slices.Contains(c.Broadcasts, a) {
		return false
	}
	if raw := a.As4(); special.Global4(raw) || special.Example4(raw) {
		return true
	}
	return within(c.Allow, a) && !within(neverUnicast, a)
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
