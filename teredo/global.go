// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import "net/netip"

// notGlobal are the ranges that RFC 4380 section 5.2.4 excludes from sending, and
// 240.0.0.0/4, which is reserved and never a host. The limited broadcast address
// lies in the last.
var notGlobal = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"),
}

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
// nodes from being turned against local networks. The zero value applies the
// RFC's list alone.
type GlobalCheck struct {
	// Allow opens private ranges, for closed networks and labs.
	Allow []netip.Prefix
	// Broadcasts are the directed broadcast addresses of the host's own subnets.
	Broadcasts []netip.Addr
}

// OK tells whether a is acceptable as a destination.
func (c *GlobalCheck) OK(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	for _, b := range c.Broadcasts {
		if a == b {
			return false
		}
	}
	if !within(notGlobal, a) {
		return true
	}
	return within(c.Allow, a) && !within(neverUnicast, a)
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
