// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"net/netip"
	"strings"
)

// Address4 parses the IPv4 address of a host.
var Address4 = Text("192.0.2.1", func(s string) (netip.Addr, *Fault) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return a, Wrong("write it like 192.0.2.1", "%q is not an IPv4 address", s)
	}
	if a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return a, Wrong("write the address of one host, like 192.0.2.1", "%s is not the address of a host", a)
	}
	return a, nil
})

// Address6 parses the IPv6 address of a host.
var Address6 = Text("2001:db8::1", func(s string) (netip.Addr, *Fault) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Is4In6() || a.Zone() != "" {
		return a, Wrong("write it like 2001:db8::1", "%q is not an IPv6 address", s)
	}
	if !a.IsGlobalUnicast() {
		return a, Wrong("write a global one, like 2001:db8::1", "%s cannot be reached from other networks", a)
	}
	return a, nil
})

// Host parses the address of a host of either family.
var Host = Text("2001:db8::1", func(s string) (netip.Addr, *Fault) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, Wrong("write it like 2001:db8::1 or 192.0.2.1", "%q is not an address", s)
	}
	if a.Is4() {
		return Address4(s)
	}
	return Address6(s)
})

// PrefixLike parses a prefix of either family; remedies show the example.
func PrefixLike(s, example string) (netip.Prefix, *Fault) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, Wrong("write it like "+example, "%q is not a prefix", s)
	}
	if p != p.Masked() {
		return p, Wrong("write "+p.Masked().String(), "%s has bits behind its length", p)
	}
	return p, nil
}

// Prefix parses a prefix of either family.
var Prefix = Text("2001:db8:1::/48", func(s string) (netip.Prefix, *Fault) { return PrefixLike(s, "2001:db8:1::/48") })

// Network parses the prefix of a network of either family, or one address.
var Network = Text("192.0.2.0/24", func(s string) (netip.Prefix, *Fault) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return PrefixLike(s, "192.0.2.0/24 or 2001:db8:1::/64")
})

// Prefix6 parses an IPv6 prefix.
var Prefix6 = Text("2001:db8::/32", func(s string) (netip.Prefix, *Fault) {
	p, f := PrefixLike(s, "2001:db8::/32")
	if f == nil && !p.Addr().Is6() {
		return p, Wrong("write one like 2001:db8::/32", "%s is not an IPv6 prefix", p)
	}
	return p, f
})

// IsHostName reports whether s is the name of a host (RFC 1123, section 2.1; lengths: RFC 1035, section 2.3.4).
func IsHostName(s string) bool {
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if !isName(label, 63, "-") || strings.HasSuffix(label, "-") {
			return false
		}
	}
	return len(s) <= 253
}

// isName reports whether s is of 1 to most letters and digits of ASCII, and signs, which are not in front. Each start of
// the program would pay for a regular expression.
func isName(s string, most int, signs string) bool {
	strange := func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		return !letter && !('0' <= r && r <= '9') && !strings.ContainsRune(signs, r)
	}
	return s != "" && len(s) <= most && !strings.ContainsRune(signs, rune(s[0])) && !strings.ContainsFunc(s, strange)
}

// InstanceName parses the name of an instance, which is to be fit for labels, paths and command lines.
var InstanceName = Text("north", func(s string) (string, *Fault) {
	if !isName(s, 32, "._-") || s != strings.ToLower(s) || strings.ContainsAny(s[len(s)-1:], "._-") {
		return "", Wrong("use 1 to 32 small letters, digits, dots and hyphens, like north-1", "%q cannot be a name", s)
	}
	return s, nil
})

// Interface parses the name of a network interface: the kernel takes 15 bytes, no slash, blank or colon.
var Interface = Text("teredo", func(s string) (string, *Fault) {
	// The kernel has settings of these names (net.ipv6.conf.all) in place of devices.
	if s == "all" || s == "default" {
		return "", Wrong("choose another one, like teredo0", "the kernel gives no interface the name %s", s)
	}
	if !isName(s, 15, "._-") {
		return "", Wrong("use at most 15 letters, digits, dots and hyphens, like teredo0", "%q cannot be the name of an interface", s)
	}
	return s, nil
})

// File parses the path of a file.
var File = Text("/etc/isthmus/keys.toml", func(s string) (string, *Fault) {
	if !strings.HasPrefix(s, "/") || strings.ContainsRune(s, 0) {
		return "", Wrong("write an absolute path, like /etc/isthmus/keys.toml", "%q cannot be the path of a file", s)
	}
	return s, nil
})
