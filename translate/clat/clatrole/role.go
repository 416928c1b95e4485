// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/keys"
	"github.com/isthmus-net/isthmus/translate/pref64/discovery"
)

const name = "clat"

// Role is the CLAT as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "A CLAT: IPv4 on this host, which has IPv6 alone, by a NAT64 beyond (RFC 6877). A host has one. docs/clat.md",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
	},
	Summary: (*Settings).summary,
	New:     func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },
	Command: role.Command{Help: "Give this host IPv4 where the network has IPv6 alone (464XLAT).", Flags: func() any { return new(Command) }},
	Tools:   []role.Command{{Name: "pref64", Help: "Look for the NAT64 of a network.", Flags: func() any { return new(discovery.Command) }}},
}.Role()

// Settings are one [[clat]] section; what each means stands where its key is declared.
type Settings struct {
	Name, Interface, Uplink string
	Prefixes                []netip.Prefix
	Resolvers               []netip.AddrPort
	LAN                     netip.Prefix
	RouteMetric             int
	Native                  Native
}

// Native says what to do while the host has a default route of IPv4 by another link.
type Native string

// Policies for hosts with native IPv4.
const (
	// NativeAside leaves IPv4 to that route.
	NativeAside Native = "aside"
	// NativeIgnore serves all the same.
	NativeIgnore Native = "ignore"
)

func (s *Settings) keys() []key.Key {
	return []key.Key{
		key.Of("name", &s.Name, name, key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("interface", &s.Interface, &s.Name, key.Interface, key.Restart,
			"Name of the TUN device; without this line that of the instance."),
		key.Of("uplink", &s.Uplink, "", key.Optional(key.Interface), key.Restart,
			"Link to the NAT64. Empty: that of the IPv6 default route."),
		key.Of("prefixes", &s.Prefixes, []string{}, key.List(keys.Prefix), key.Restart,
			"Prefixes of the NAT64. Empty: they are looked for, first in router advertisements (RFC 8781), then by DNS (RFC 7050)."),
		key.Of("resolvers", &s.Resolvers, []string{}, key.List(keys.NameServer), key.Restart,
			"Name servers that are asked for the prefix; port 53 unless written. Empty: those that routers name, then those of /etc/resolv.conf."),
		key.Of("lan", &s.LAN, "", key.Optional(key.Prefix6), key.Restart,
			`96 bits that are routed to this host, like "2001:db8:1:46::/96": private IPv4 networks behind it are translated, too. Empty: this host alone is.`),
		// It stands behind the default routes that DHCP clients and people set.
		key.Of("route_metric", &s.RouteMetric, 2048, key.Integer[int](1, 1<<31-1), key.Restart,
			"Metric of the IPv4 default route: any other should go first."),
		key.Of("native", &s.Native, string(NativeAside), key.OneOf(NativeAside, NativeIgnore), key.Restart,
			`While the host has an IPv4 default route by another link: "aside" takes ours away, "ignore" does not.`),
	}
}

func (s *Settings) check(c *config.Checker) {
	switch {
	case !s.LAN.IsValid():
	case s.LAN.Bits() != 96:
		c.Fail("lan", fmt.Sprintf("%s has not 96 bits", s.LAN), "take 96 bits of a network that is routed to this host, such as "+netip.PrefixFrom(s.LAN.Addr(), 96).String())
	case slices.ContainsFunc(s.Prefixes, s.LAN.Overlaps):
		c.Fail("lan", fmt.Sprintf("%s overlaps a prefix of the NAT64", s.LAN), "take a network of your own")
	}
}

func (s *Settings) claims() []config.Claim {
	return []config.Claim{
		// RFC 7335: the addresses of 192.0.0.0/29 are one host's.
		config.Alone{Problem: "a host has one CLAT, since all have the same IPv4 address", Remedy: "leave one of them out"},
		config.Device{Key: "interface", Name: s.Interface},
	}
}

func (s *Settings) summary() string {
	by := "a prefix that it discovers"
	if len(s.Prefixes) > 0 {
		by = role.Join(s.Prefixes)
	}
	return fmt.Sprintf("gives this host IPv4 by %s, device %s", by, s.Interface)
}
