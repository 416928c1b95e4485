// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// Places in an advertisement.
const (
	advertisedOptions = packet.IPv6HeaderLen + 16
	advertisedPrefix  = advertisedOptions + 16
	advertisedMTU     = advertisedOptions + 32 + 4
)

// advertisement makes one (RFC 4861 section 4.2) that says of the prefix that addresses
// under it are not on the link, and without an end (RFC 7066 section 2.3).
func (s *Settings) advertisement(domains []byte) []byte {
	const currentHopLimit, otherConfiguration = 64, 0x40
	lifetime := uint32(lifetimes * s.Interval / time.Second)
	m := make([]byte, 12, packet.MinMTU)
	m[0] = currentHopLimit
	if s.DHCP {
		m[1] = otherConfiguration
	}
	binary.BigEndian.PutUint16(m[2:], uint16(lifetime))
	m = packet.AppendPrefixInformation(m, Link{}.prefix(), packet.PrefixAutonomous, packet.Infinite, packet.Infinite)
	m = packet.AppendMTU(m, uint32(s.MTU))
	m = AppendResolvers(m, s.DNS, lifetime)
	m = AppendResolvers(m, s.withdrawn.dns, 0)
	m = appendPREF64(m, s.PREF64, pref64.DefaultLifetime(s.Interval))
	m = appendPREF64(m, s.withdrawn.pref64, 0)
	if len(domains) > 0 {
		m = AppendSearchList(m, domains, lifetime)
	}
	return packet.AppendICMPv6(nil, RouterAddress, packet.AllNodes, packet.NDHopLimit, packet.ICMPv6RouterAdvert, 0, m)
}

// AppendResolvers appends the option of name servers (RFC 8106 section 5.1), if there are any.
func AppendResolvers(m []byte, list []netip.Addr, lifetime uint32) []byte {
	if len(list) == 0 {
		return m
	}
	m = append(m, packet.NDResolvers, byte(1+2*len(list)), 0, 0)
	return appendAddresses(binary.BigEndian.AppendUint32(m, lifetime), list)
}

// AppendSearchList appends the option with a search list (RFC 8106 section 5.2), as
// [EncodeDomains] has written it.
func AppendSearchList(m, domains []byte, lifetime uint32) []byte {
	units := (8 + len(domains) + 7) / 8
	m = append(m, packet.NDSearchList, byte(min(units, 255)), 0, 0)
	m = append(binary.BigEndian.AppendUint32(m, lifetime), domains...)
	return append(m, make([]byte, units*8-8-len(domains))...)
}

// appendPREF64 appends an option for each prefix (RFC 8781 section 4), which were checked.
func appendPREF64(m []byte, list []netip.Prefix, lifetime time.Duration) []byte {
	for _, p := range list {
		m, _ = pref64.AppendOption(m, pref64.Option{Prefix: p, Lifetime: lifetime})
	}
	return m
}

func appendAddresses(b []byte, list []netip.Addr) []byte {
	for _, a := range list {
		raw := a.As16()
		b = append(b, raw[:]...)
	}
	return b
}

// Same reports whether routers of both settings say the same.
func (s *Settings) Same(o *Settings) bool {
	return s.MTU == o.MTU && s.DHCP == o.DHCP && s.UUID == o.UUID && s.Interval == o.Interval &&
		slices.Equal(s.DNS, o.DNS) && slices.Equal(s.Domains, o.Domains) && slices.Equal(s.PREF64, o.PREF64)
}

// Replace has the settings withdraw what earlier ones have told and these do not: terminals
// would use it until it ends (RFC 8106 section 5.1, RFC 8781 section 4.1).
func (s *Settings) Replace(earlier *Settings) {
	s.withdrawn.dns = withdrawn(earlier.withdrawn.dns, earlier.DNS, s.DNS)
	s.withdrawn.pref64 = withdrawn(earlier.withdrawn.pref64, earlier.PREF64, s.PREF64)
}

// withdrawn are the last of those that were told and are not any more.
func withdrawn[T comparable](before, told, now []T) []T {
	gone := slices.DeleteFunc(slices.Concat(before, told), func(v T) bool { return slices.Contains(now, v) })
	return gone[max(len(gone)-maxWithdrawn, 0):]
}
