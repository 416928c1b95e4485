// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway"
)

// routing are the destinations of a stateless translator, for the search for what leads
// packets past it: an address of this host and a more specific route win over it (RFC 7915
// sections 4.6 and 5.6), and its programs look at neither.
type routing struct {
	wanted *gateway.Prefixes // what leads to the device
	// What programs leave to the engine, and so to the host's routes, since it would come
	// back to the translator: IPv4 addresses of IPv6 hosts, and mapped addresses.
	back4, back6 *gateway.Prefixes
	pool6        []translate.Prefix
}

// knownPool4 is how much of pool4 programs know.
const knownPool4 = 16

func newRouting(cfg *Settings, mappings []translate.Mapping) *routing {
	back4, back6 := make([]netip.Prefix, 0, len(mappings)), make([]netip.Prefix, 0, len(mappings))
	for _, m := range mappings {
		back4, back6 = append(back4, m.IPv4), append(back6, m.IPv6)
	}
	back4 = append(back4, cfg.Pool4[:min(len(cfg.Pool4), knownPool4)]...)
	r := &routing{wanted: gateway.NewPrefixes(destinations(cfg, mappings)), back4: gateway.NewPrefixes(back4), back6: gateway.NewPrefixes(back6)}
	for _, one := range cfg.Pool6 {
		if p, err := translate.NewPrefix(one); err == nil {
			r.pool6 = append(r.pool6, p)
		}
	}
	return r
}

// concerns reports whether a change of a route may matter.
func (r *routing) concerns(c port.Change) bool {
	return c.Kind != port.RouteChanged || c.Source || r.wanted.Overlaps(c.Dst)
}

// diversion says why packets that are to be translated would not all reach the device of
// that index; empty: they would.
func (r *routing) diversion(host *port.Host, device int) string {
	led := gateway.NewPrefixes(nil)
	others, err := r.others(host, device, led)
	if err != nil {
		return "what leads packets past the translator cannot be determined: " + err.Error()
	}
	for _, p := range r.wanted.Sorted {
		if _, found := led.Around(p); !found {
			return fmt.Sprintf("no route leads packets for %s to the translator's device", p)
		}
	}
	return r.lost(led, others)
}

// wouldDivert says the same for a translator that has no device yet.
func (r *routing) wouldDivert() string {
	host, err := port.OpenHost()
	if err != nil {
		return err.Error()
	}
	defer host.Close()
	others, err := r.others(host, -1, gateway.NewPrefixes(nil))
	if err != nil {
		return err.Error()
	}
	return r.lost(r.wanted, others)
}

// others lists what leads elsewhere than to the device; what leads to it is added to led.
func (r *routing) others(host *port.Host, device int, led *gateway.Prefixes) (others []port.RouteEntry, err error) {
	err = host.EachRoute(func(one port.RouteEntry) {
		if one.Link == device {
			led.Add(one.Dst, one.Metric)
		} else if one.Source || r.wanted.Overlaps(one.Dst) {
			others = append(others, one)
		}
	})
	return others, err
}

// lost says which of others wins over what leads to the device, and matters.
func (r *routing) lost(led *gateway.Prefixes, others []port.RouteEntry) string {
	for _, one := range others {
		wide, inside := led.Around(one.Dst)
		switch {
		case one.Source:
			return fmt.Sprintf("the route to %s is for packets of some sources alone, and programs remember a next hop for all: remove it for the fast path", one.Dst)
		case r.comesBack(one.Dst):
		case one.Local:
			return fmt.Sprintf("packets for %s end on this host, where no program may take them: take it out of pool6, pool4 and the mappings, or from its interface", one.Dst)
		case inside && (wide != one.Dst || one.Metric < led.Set[wide]):
			return fmt.Sprintf("the route to %s leads packets past the translator, where the programs would not: remove it for the fast path", one.Dst)
		}
	}
	return ""
}

// comesBack reports whether programs leave all packets to p to the engine and the host.
func (r *routing) comesBack(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return false
	}
	if _, found := r.back6.Around(p); found {
		return true
	}
	for _, prefix := range r.pool6 {
		if within := prefix.Prefix(); within.Contains(p.Addr()) && within.Bits() <= p.Bits() {
			return r.back4.Covers(embedded(&prefix, p))
		}
	}
	return false
}

// embedded are the IPv4 addresses that an IPv6 prefix in that of a translator holds (RFC
// 6052 section 2.2).
func embedded(in *translate.Prefix, p netip.Prefix) netip.Prefix {
	bits := p.Bits() - in.Prefix().Bits()
	if in.Prefix().Bits() <= 64 && p.Bits() > 64 { // octet 8 is no part of them
		bits -= min(p.Bits()-64, 8)
	}
	v4, _ := in.Extract(p.Addr())
	return netip.PrefixFrom(v4, min(bits, 32)).Masked()
}
