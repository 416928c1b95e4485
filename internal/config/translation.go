// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// Translation is what a NAT64 and a stateless translator have alike: where packets
// come in, and how headers are translated (RFC 7915).
type Translation struct {
	// Name is unique over all instances.
	Name string `key:"name"`
	// Interface names the TUN device, and MTU is its size, in bytes.
	Interface string `key:"interface"`
	MTU       int    `key:"mtu"`
	// Route installs the routes to what the translator translates.
	Route bool `key:"route"`
	// Workers is how many queues the device has; 0 chooses by the machine.
	Workers int `key:"workers"`
	// Announce has the prefixes announced to routers; see [Announce].
	Announce bool `key:"announce"`
	// Pool6 are the prefixes that IPv4 addresses are embedded in (RFC 6052).
	Pool6 []netip.Prefix `key:"pool6"`
	// AllowNonGlobal lets the well-known prefix carry non-global IPv4 addresses.
	AllowNonGlobal bool `key:"allow_non_global"`
	// Address4 and Address6 are the source of the ICMP errors that the translator
	// owes. Not valid: an address of this host.
	Address4 netip.Addr `key:"address4"`
	Address6 netip.Addr `key:"address6"`
	// RouterPool4 and RouterPool6 give ICMP errors of routers a source where theirs
	// has no form in the other family (RFC 6791).
	RouterPool4     []netip.Prefix `key:"router_pool4"`
	RouterPool6     []netip.Prefix `key:"router_pool6"`
	InterfaceObject bool           `key:"interface_object"`
	// IPv4MTU and IPv6MTU are the sizes that the networks take, in bytes; 0 leaves the
	// check to the host's routes.
	IPv4MTU int `key:"ipv4_mtu"`
	IPv6MTU int `key:"ipv6_mtu"`
	// LowestIPv6MTU is the size that packets without DF are cut to.
	LowestIPv6MTU int `key:"lowest_ipv6_mtu"`
	// Plateaus are likely path MTUs, the largest first. Empty: those of RFC 1191.
	Plateaus []int `key:"plateaus"`
	// UDPZeroChecksum is what becomes of IPv4 UDP packets without a checksum.
	UDPZeroChecksum ZeroChecksum `key:"udp_zero_checksum"`
	// TrafficClass, to IPv6, and TOS, to IPv4, are copied from the packet if they are
	// [Copied], or else are that octet.
	TrafficClass Octet `key:"traffic_class"`
	TOS          Octet `key:"tos"`
	// ICMPErrorsOff are the classes of errors that the translator does not send.
	ICMPErrorsOff []ErrorClass `key:"icmp_errors_off"`
	// ICMPRate is the number of ICMP errors a second in all; 0 is no limit.
	ICMPRate int `key:"icmp_rate"`
}

// ZeroChecksum chooses what becomes of IPv4 UDP packets without a checksum.
type ZeroChecksum string

// The choices of RFC 7915, section 4.5.
const (
	ZeroChecksumDrop    ZeroChecksum = "drop"
	ZeroChecksumCompute ZeroChecksum = "compute"
	ZeroChecksumForward ZeroChecksum = "forward"
)

// Octet is a value of the type of service, or Copied.
type Octet int

// Copied takes the octet from the packet.
const Copied Octet = -1

// ErrorClass is a kind of ICMP error that a translator sends.
type ErrorClass string

// The classes that both kinds of translator have.
const (
	ErrorUnreachable ErrorClass = "unreachable"
	ErrorTooBig      ErrorClass = "too_big"
	ErrorHopLimit    ErrorClass = "hop_limit"
	ErrorParameter   ErrorClass = "parameter"
)

type rawTranslation struct {
	Name            any `toml:"name"`
	Interface       any `toml:"interface"`
	MTU             any `toml:"mtu"`
	Route           any `toml:"route"`
	Workers         any `toml:"workers"`
	Announce        any `toml:"announce"`
	Pool6           any `toml:"pool6"`
	AllowNonGlobal  any `toml:"allow_non_global"`
	Address4        any `toml:"address4"`
	Address6        any `toml:"address6"`
	RouterPool4     any `toml:"router_pool4"`
	RouterPool6     any `toml:"router_pool6"`
	InterfaceObject any `toml:"interface_object"`
	IPv4MTU         any `toml:"ipv4_mtu"`
	IPv6MTU         any `toml:"ipv6_mtu"`
	LowestIPv6MTU   any `toml:"lowest_ipv6_mtu"`
	Plateaus        any `toml:"plateaus"`
	UDPZeroChecksum any `toml:"udp_zero_checksum"`
	TrafficClass    any `toml:"traffic_class"`
	TOS             any `toml:"tos"`
	ICMPErrorsOff   any `toml:"icmp_errors_off"`
	ICMPRate        any `toml:"icmp_rate"`
}

// Defaults of a translator's device: Ethernet's size on either side.
const (
	translatorMTU = 1500
	lowestIPv6MTU = 1280
)

func defaultTranslation(name string) Translation {
	return Translation{
		Name: name, Interface: name, MTU: translatorMTU, Route: true,
		LowestIPv6MTU: lowestIPv6MTU, TrafficClass: Copied, TOS: Copied,
		UDPZeroChecksum: ZeroChecksumDrop, ICMPRate: icmpRate,
	}
}

// translation reads the common keys; classes are the errors that can be switched off.
func (c *checker) translation(at string, raw rawTranslation, t *Translation, classes ...ErrorClass) {
	set(c, at, "name", raw.Name, &t.Name, instanceName)
	set(c, at, "interface", raw.Interface, &t.Interface, interfaceName)
	set(c, at, "mtu", raw.MTU, &t.MTU, integer[int](lowestIPv6MTU, 65535))
	set(c, at, "route", raw.Route, &t.Route, boolean)
	set(c, at, "workers", raw.Workers, &t.Workers, integer[int](0, maxWorkers))
	set(c, at, "announce", raw.Announce, &t.Announce, boolean)
	set(c, at, "pool6", raw.Pool6, &t.Pool6, listOf(translationPrefix))
	set(c, at, "allow_non_global", raw.AllowNonGlobal, &t.AllowNonGlobal, boolean)
	set(c, at, "address4", raw.Address4, &t.Address4, optional(address4))
	set(c, at, "address6", raw.Address6, &t.Address6, optional(address6))
	set(c, at, "router_pool4", raw.RouterPool4, &t.RouterPool4, listOf(prefix4))
	set(c, at, "router_pool6", raw.RouterPool6, &t.RouterPool6, listOf(prefix6))
	set(c, at, "interface_object", raw.InterfaceObject, &t.InterfaceObject, boolean)
	set(c, at, "ipv4_mtu", raw.IPv4MTU, &t.IPv4MTU, orZero(integer[int](68, 65535)))
	set(c, at, "ipv6_mtu", raw.IPv6MTU, &t.IPv6MTU, orZero(integer[int](lowestIPv6MTU, 65535)))
	set(c, at, "lowest_ipv6_mtu", raw.LowestIPv6MTU, &t.LowestIPv6MTU, integer[int](lowestIPv6MTU, 65535))
	set(c, at, "plateaus", raw.Plateaus, &t.Plateaus, plateaus)
	set(c, at, "udp_zero_checksum", raw.UDPZeroChecksum, &t.UDPZeroChecksum, oneOf(ZeroChecksumDrop, ZeroChecksumCompute, ZeroChecksumForward))
	set(c, at, "traffic_class", raw.TrafficClass, &t.TrafficClass, copyOrZero)
	set(c, at, "tos", raw.TOS, &t.TOS, copyOrOctet)
	set(c, at, "icmp_errors_off", raw.ICMPErrorsOff, &t.ICMPErrorsOff, listOf(oneOf(classes...)))
	set(c, at, "icmp_rate", raw.ICMPRate, &t.ICMPRate, count(0))
	c.distinct(at+".pool6", t.Pool6)
	c.distinct(at+".router_pool4", t.RouterPool4)
	c.distinct(at+".router_pool6", t.RouterPool6)
}

// distinct refuses prefixes of one list that overlap.
func (c *checker) distinct(path string, list []netip.Prefix) {
	if c.failed[path] {
		return
	}
	for i, p := range list {
		for _, other := range list[:i] {
			if p.Overlaps(other) {
				c.fail(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%s overlaps %s", p, other), "keep one of the two, or choose prefixes apart")
				return
			}
		}
	}
}

// prefix4 parses an IPv4 prefix or a single address.
var prefix4 = text("192.0.2.0/28", func(s string) (netip.Prefix, *fault) {
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return netip.PrefixFrom(a, 32), nil
	}
	p, f := prefix(s, "192.0.2.0/28")
	if f == nil && !p.Addr().Is4() {
		return p, wrong("write one like 192.0.2.0/28", "%s is not an IPv4 prefix", p)
	}
	return p, f
})

// plateaus parses a list of path MTUs, the largest first.
func plateaus(raw any) ([]int, *fault) {
	list, f := listOf(integer[int](68, 65535))(raw)
	if f == nil && !slices.IsSortedFunc(list, func(a, b int) int { return b - a }) {
		return nil, wrong("write the largest first, like [1500, 1492, 1280]", "these sizes are not in order")
	}
	return list, f
}

// orZero takes 0 for none.
func orZero(parse parser[int]) parser[int] {
	return func(raw any) (int, *fault) {
		if raw == int64(0) {
			return 0, nil
		}
		n, f := parse(raw)
		if f != nil {
			f.Remedy += ", or 0"
		}
		return n, f
	}
}

func copyOrOctet(raw any) (Octet, *fault) {
	if raw == "copy" {
		return Copied, nil
	}
	n, f := integer[int](0, 255)(raw)
	if f != nil {
		f.Remedy = `write "copy", or an octet from 0 to 255 without quotes`
	}
	return Octet(n), f
}

// copyOrZero is the choice that RFC 7915, section 4.1 leaves.
func copyOrZero(raw any) (Octet, *fault) {
	switch raw {
	case "copy":
		return Copied, nil
	case int64(0):
		return 0, nil
	}
	return 0, wrong(`write "copy", or 0 without quotes`, "this is neither")
}
