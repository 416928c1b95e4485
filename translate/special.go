// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import "net/netip"

// nonGlobal4 are the addresses that the well-known prefix must not represent: RFC
// 1918 and section 3 of RFC 5735, to which RFC 6052 section 3.1 points, and the shared
// address space that came later (RFC 6598).
var nonGlobal4 = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("224.0.0.0/3"), // multicast, reserved and limited broadcast
}

// isNonGlobal tells whether the well-known prefix must not be used with a.
func isNonGlobal(a [4]byte) bool {
	addr := netip.AddrFrom4(a)
	for _, p := range nonGlobal4 {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// illegal4 tells whether no forwarded packet may have a as source or destination:
// network 0, loopback, multicast, the reserved range and limited broadcast (RFC 1812
// section 5.3.7). Multicast has no mapping to IPv6 (RFC 7915 section 1.2).
func illegal4(a [4]byte) bool { return a[0] == 0 || a[0] == 127 || a[0] >= 224 }

// illegal6 is the IPv6 counterpart: unspecified, loopback, multicast, and link-local
// addresses, which no router forwards (RFC 4291 sections 2.5 to 2.7).
func illegal6(a *[16]byte) bool {
	switch {
	case a[0] == 0xff, a[0] == 0xfe && a[1]&0xc0 == 0x80:
		return true
	case a[0] != 0:
		return false
	}
	for _, b := range a[1:15] {
		if b != 0 {
			return false
		}
	}
	return a[15] <= 1
}

// unforwarded6 are the prefixes of the addresses that illegal6 finds.
var unforwarded6 = []netip.Prefix{
	netip.MustParsePrefix("::/127"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// unicast6 tells whether every address of p may be forwarded.
func unicast6(p netip.Prefix) bool {
	for _, u := range unforwarded6 {
		if u.Overlaps(p) {
			return false
		}
	}
	return true
}

// Illegal tells whether no packet may be forwarded to or from an IPv4 address (RFC
// 1812 section 5.3.7).
func Illegal(a netip.Addr) bool { return illegal4(a.As4()) }

// Represents tells whether the prefix may stand for an IPv4 address: the well-known one
// stands for global addresses alone (RFC 6052 section 3.1).
func (p *Prefix) Represents(a netip.Addr) bool { return !p.wellKnown || !isNonGlobal(a.As4()) }
