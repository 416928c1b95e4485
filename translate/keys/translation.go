// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/translate"
)

// Translation is what a NAT64 and a stateless translator have alike: where packets
// come in, and how headers are translated (RFC 7915). What each field means stands
// where its key is declared.
type Translation struct {
	Name, Interface          string
	MTU                      int
	Route                    bool
	Workers                  int // 0 chooses by the machine
	Announce                 bool
	Pool6                    []netip.Prefix
	AllowNonGlobal           bool
	Address4, Address6       netip.Addr // not valid: an address of this host
	RouterPool4, RouterPool6 []netip.Prefix
	InterfaceObject          bool
	IPv4MTU, IPv6MTU         int // 0 leaves the check to the host's routes
	LowestIPv6MTU            int
	Plateaus                 []int // empty: those of RFC 1191
	UDPZeroChecksum          ZeroChecksum
	TrafficClass, TOS        Octet
	ICMPErrorsOff            []ErrorClass
	ICMPRate                 int
}

// Standard is in what the defaults of the two differ.
type Standard struct {
	Name            string
	Pool6           any // a default or an example, as [key.Of] takes it
	UDPZeroChecksum ZeroChecksum
	// Errors are the classes that can be switched off, and ErrorsOff those that are.
	Errors, ErrorsOff []ErrorClass
	ICMPRate          int
	// RateHelp says whom ICMPRate is shared among.
	RateHelp string
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

// Sizes of a translator's device, in bytes.
const (
	ethernetMTU   = 1500
	lowestIPv6MTU = 1280
	maxWorkers    = 64 // a queue takes a file and a thread
)

// DeviceKeys declares what leads packets to the translator.
func (t *Translation) DeviceKeys(std Standard) []key.Key {
	return []key.Key{
		key.Of("name", &t.Name, std.Name, key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("interface", &t.Interface, std.Name, key.Interface, key.Restart,
			"Name of the TUN device."),
		key.Of("mtu", &t.MTU, ethernetMTU, key.Integer[int](lowestIPv6MTU, 65535), key.Restart,
			"MTU of the device in bytes: what the largest packet of either network takes."),
		key.Of("route", &t.Route, true, key.Bool, key.Restart,
			"Install the routes to what is translated by this device, and answer by ARP for addresses of pool4 in connected networks."),
		key.Of("workers", &t.Workers, 0, key.Integer[int](0, maxWorkers), key.Restart,
			"Queues of the device, each served by a core of its own. 0: one for each two CPUs, at most 4."),
		key.Of("announce", &t.Announce, false, key.Bool, key.Restart,
			"Announce what is translated to the routers around this host while the translator works, as [announce] says."),
	}
}

// HeaderKeys declares how addresses, headers and errors are translated.
func (t *Translation) HeaderKeys(std Standard) []key.Key {
	return []key.Key{
		key.Of("pool6", &t.Pool6, std.Pool6, key.List(Prefix), key.Live,
			"Prefixes that IPv4 addresses are embedded in. RFC 6052: /32, /40, /48, /56, /64 or /96."),
		key.Of("allow_non_global", &t.AllowNonGlobal, false, key.Bool, key.Live,
			"Let the well-known prefix 64:ff9b::/96 carry non-global IPv4 addresses, which RFC 6052, section 3.1 forbids."),
		key.Of("address4", &t.Address4, "", key.Optional(key.Address4), key.Live,
			"IPv4 source of ICMP errors of the translator itself. Empty: an address of this host."),
		key.Of("address6", &t.Address6, "", key.Optional(key.Address6), key.Live,
			"The same for IPv6."),
		key.Of("router_pool4", &t.RouterPool4, []string{}, key.List(Prefix4), key.Live,
			"IPv4 sources for ICMP errors of routers whose own address has no form there, an address for each (RFC 6791)."),
		key.Of("router_pool6", &t.RouterPool6, []string{}, key.List(key.Prefix6), key.Live,
			"The same for IPv6."),
		key.Of("interface_object", &t.InterfaceObject, false, key.Bool, key.Live,
			"Add the true address of such a router to the error (RFC 5837)."),
		key.Of("ipv4_mtu", &t.IPv4MTU, 0, orZero(key.Integer[int](68, 65535)), key.Live,
			"Largest packets of the IPv4 network, in bytes. 0: as the routes say."),
		key.Of("ipv6_mtu", &t.IPv6MTU, 0, orZero(key.Integer[int](lowestIPv6MTU, 65535)), key.Live,
			"The same for IPv6."),
		key.Of("lowest_ipv6_mtu", &t.LowestIPv6MTU, lowestIPv6MTU, key.Integer[int](lowestIPv6MTU, 65535), key.Live,
			"Size that IPv4 packets without DF are cut to. RFC 7915, section 4.1."),
		key.Of("plateaus", &t.Plateaus, []int{}, plateaus, key.Live,
			"Likely path MTUs for routers that report none, the largest first. Empty: those of RFC 1191."),
		key.Of("udp_zero_checksum", &t.UDPZeroChecksum, string(std.UDPZeroChecksum), key.OneOf(ZeroChecksumDrop, ZeroChecksumCompute, ZeroChecksumForward), key.Live,
			`What becomes of IPv4 UDP packets without a checksum: "drop", "compute", or "forward", which lets them pass as IPv6 hosts drop them.`),
		key.Of("traffic_class", &t.TrafficClass, "copy", copyOrZero, key.Live,
			`Traffic class of IPv6 packets: "copy" or 0.`),
		key.Of("tos", &t.TOS, "copy", copyOrOctet, key.Live,
			`Type of service of IPv4 packets: "copy" or an octet.`),
		key.Of("icmp_errors_off", &t.ICMPErrorsOff, words(std.ErrorsOff), key.List(key.OneOf(std.Errors...)), key.Live,
			"Errors that are not sent: "+strings.Join(words(std.Errors), ", ")+"."),
		key.Of("icmp_rate", &t.ICMPRate, std.ICMPRate, key.Count(0), key.Live, std.RateHelp),
	}
}

func words[T ~string](list []T) []string {
	text := make([]string, len(list))
	for i, one := range list {
		text[i] = string(one)
	}
	return text
}

// Check makes the checks that take more than one key.
func (t *Translation) Check(c *config.Checker) {
	Distinct(c, "pool6", t.Pool6)
	Distinct(c, "router_pool4", t.RouterPool4)
	Distinct(c, "router_pool6", t.RouterPool6)
}

// Distinct refuses prefixes of one key that overlap.
func Distinct(c *config.Checker, key string, list []netip.Prefix) {
	if !c.OK(key) {
		return
	}
	for i, p := range list {
		for _, other := range list[:i] {
			if p.Overlaps(other) {
				c.Fail(fmt.Sprintf("%s[%d]", key, i), fmt.Sprintf("%s overlaps %s", p, other), "keep one of the two, or choose prefixes apart")
				return
			}
		}
	}
}

// Claims are the device, the routes to destinations by the keys that name them, and, if
// they are announced, those prefixes.
func (t *Translation) Claims(routes ...config.Route) []config.Claim {
	claims := []config.Claim{config.Device{Key: "interface", Name: t.Interface}}
	var all []netip.Prefix
	for _, r := range routes {
		r.Set, r.Remedy = t.Route, "give each translator prefixes of its own, or set route = false"
		claims = append(claims, r)
		all = append(all, r.Prefixes...)
	}
	if t.Announce {
		claims = append(claims, config.Announced{Key: "announce", Prefixes: all})
	}
	return claims
}

// Prefix4 parses an IPv4 prefix or a single address.
var Prefix4 = key.Text("192.0.2.0/28", func(s string) (netip.Prefix, *key.Fault) {
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return netip.PrefixFrom(a, 32), nil
	}
	p, f := key.PrefixLike(s, "192.0.2.0/28")
	if f == nil && !p.Addr().Is4() {
		return p, key.Wrong("write one like 192.0.2.0/28", "%s is not an IPv4 prefix", p)
	}
	return p, f
})

// Translated4 parses IPv4 addresses that are routed to a translator.
func Translated4(raw any) (netip.Prefix, *key.Fault) {
	p, f := Prefix4(raw)
	if f == nil && !Forwarded4(p) {
		return p, key.Wrong("name the addresses of your hosts, like 192.0.2.0/28", "no packet is forwarded to %s", p)
	}
	return p, f
}

// Forwarded4 reports whether routers forward packets to addresses of an IPv4 prefix: to
// some, but neither to all, which a default route is for, nor to those that RFC 6890 keeps
// from routers.
func Forwarded4(p netip.Prefix) bool { return p.Bits() > 0 && translate.Forwarded(p.Addr()) }

// plateaus parses a list of path MTUs, the largest first.
func plateaus(raw any) ([]int, *key.Fault) {
	list, f := key.List(key.Integer[int](68, 65535))(raw)
	if f == nil && !slices.IsSortedFunc(list, func(a, b int) int { return b - a }) {
		return nil, key.Wrong("write the largest first, like [1500, 1492, 1280]", "these sizes are not in order")
	}
	return list, f
}

// orZero takes 0 for none.
func orZero(parse key.Parser[int]) key.Parser[int] {
	return func(raw any) (int, *key.Fault) {
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

func copyOrOctet(raw any) (Octet, *key.Fault) {
	if raw == "copy" {
		return Copied, nil
	}
	n, f := key.Integer[int](0, 255)(raw)
	if f != nil {
		f.Remedy = `write "copy", or an octet from 0 to 255 without quotes`
	}
	return Octet(n), f
}

// copyOrZero is the choice that RFC 7915, section 4.1 leaves.
func copyOrZero(raw any) (Octet, *key.Fault) {
	switch raw {
	case "copy":
		return Copied, nil
	case int64(0):
		return 0, nil
	}
	return 0, key.Wrong(`write "copy", or 0 without quotes`, "this is neither")
}
