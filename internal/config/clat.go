// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// RoleCLAT is the role of a [CLAT].
const RoleCLAT = "clat"

// CLAT gives a host that has IPv6 alone an IPv4 address, by a NAT64 beyond (RFC 6877).
type CLAT struct {
	// Name is unique over all instances.
	Name string `key:"name"`
	// Interface names the TUN device.
	Interface string `key:"interface"`
	// Uplink is the link to the NAT64; empty: that of the default route.
	Uplink string `key:"uplink"`
	// Prefixes are those of the NAT64. Empty: they are discovered.
	Prefixes []netip.Prefix `key:"prefixes"`
	// Resolvers are asked for the prefixes if no router tells them. Empty: those of
	// the host.
	Resolvers []netip.AddrPort `key:"resolvers"`
	// LAN is a prefix of 96 bits, routed to this host, for private IPv4 networks behind
	// it. Not valid: there are none.
	LAN netip.Prefix `key:"lan"`
	// RouteMetric is that of the default route of IPv4.
	RouteMetric int `key:"route_metric"`
	// Native is what to do while the host has a default route of IPv4 by another link.
	Native Native `key:"native"`
}

type rawCLAT struct {
	Name        any `toml:"name"`
	Interface   any `toml:"interface"`
	Uplink      any `toml:"uplink"`
	Prefixes    any `toml:"prefixes"`
	Resolvers   any `toml:"resolvers"`
	LAN         any `toml:"lan"`
	RouteMetric any `toml:"route_metric"`
	Native      any `toml:"native"`
}

// clatMetric stands behind the default routes that DHCP clients and people set.
const clatMetric = 2048

// DefaultCLAT returns a CLAT as it is where the file says nothing.
func DefaultCLAT() CLAT {
	return CLAT{Name: RoleCLAT, Interface: RoleCLAT, RouteMetric: clatMetric, Native: NativeAside}
}

func (c *checker) clat(at string, raw rawCLAT) CLAT {
	s := DefaultCLAT()
	set(c, at, "name", raw.Name, &s.Name, instanceName)
	if raw.Interface == nil {
		s.Interface = s.Name
	}
	set(c, at, "interface", raw.Interface, &s.Interface, interfaceName)
	set(c, at, "uplink", raw.Uplink, &s.Uplink, optional(interfaceName))
	set(c, at, "prefixes", raw.Prefixes, &s.Prefixes, listOf(translationPrefix))
	set(c, at, "resolvers", raw.Resolvers, &s.Resolvers, listOf(dnsAddress))
	set(c, at, "lan", raw.LAN, &s.LAN, optional(prefix6))
	set(c, at, "route_metric", raw.RouteMetric, &s.RouteMetric, integer[int](1, 1<<31-1))
	set(c, at, "native", raw.Native, &s.Native, oneOf(NativeAside, NativeIgnore))
	if s.LAN.IsValid() && s.LAN.Bits() != 96 {
		c.fail(at+".lan", fmt.Sprintf("%s has not 96 bits", s.LAN), "take 96 bits of a network that is routed to this host, such as "+netip.PrefixFrom(s.LAN.Addr(), 96).String())
	}
	if s.LAN.IsValid() && slices.ContainsFunc(s.Prefixes, s.LAN.Overlaps) {
		c.fail(at+".lan", fmt.Sprintf("%s overlaps a prefix of the NAT64", s.LAN), "take a network of your own")
	}
	return s
}

// CLAT returns the CLAT of that name.
func (c *Config) CLAT(name string) (CLAT, bool) {
	return find(c.CLATs, func(s CLAT) bool { return s.Name == name })
}
