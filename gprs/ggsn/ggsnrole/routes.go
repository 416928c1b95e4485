// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// grantPrefixes reads what a server says of the prefixes of a terminal's link: each is a /64 (RFC 3162 section
// 2.3). A shorter one leads to what is behind it.
func grantPrefixes(g *ggsn.Grant, of *radius.Attributes) {
	for _, v := range of.All(radius.FramedIPv6Prefix) {
		switch p, ok := radius.ParsePrefix(v); {
		case !ok:
			g.MalformedRoutes++
		case p.Bits() != 64:
			g.Routes = append(g.Routes, ggsn.Route{Prefix: p})
		case !g.Prefix6.IsValid():
			g.Prefix6 = p
		default:
			g.Further6 = append(g.Further6, p)
		}
	}
}

// grantRoutes reads what a server says of networks behind a terminal.
func grantRoutes(g *ggsn.Grant, of *radius.Attributes) {
	add := func(p netip.Prefix, delegated, ok bool) {
		if ok {
			g.Routes = append(g.Routes, ggsn.Route{Prefix: p, Delegated: delegated})
		} else {
			g.MalformedRoutes++
		}
	}
	for _, v := range of.All(radius.DelegatedIPv6Prefix) {
		p, ok := radius.ParsePrefix(v)
		add(p, true, ok)
	}
	for _, v := range of.All(radius.FramedRoute) {
		p, ok := parseRoute(string(v), netip.Addr.Is4)
		add(p, false, ok)
	}
	for _, v := range of.All(radius.FramedIPv6Route) {
		p, ok := parseRoute(string(v), netip.Addr.Is6)
		add(p, false, ok)
	}
}

// parseRoute reads a route as RFC 2865 section 5.22 and RFC 3162 section 2.5 have it: a prefix, a
// gateway and metrics, the latter if they are there. These say nothing here, where a context is the only
// way, but are to be well formed.
func parseRoute(text string, family func(netip.Addr) bool) (p netip.Prefix, ok bool) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return p, false
	}
	if p, ok = parseDestination(words[0]); !ok || !family(p.Addr()) || p != p.Masked() {
		return p, false
	}
	for i, word := range words[1:] {
		if i == 0 {
			gateway, err := netip.ParseAddr(word)
			ok = err == nil && family(gateway)
		} else {
			_, err := strconv.ParseInt(word, 10, 32)
			ok = err == nil
		}
		if !ok {
			return p, false
		}
	}
	return p, true
}

// parseDestination reads a prefix. One of IPv4 without a length has that of its class.
func parseDestination(word string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(word); err == nil {
		return p, true
	}
	a, err := netip.ParseAddr(word)
	if err != nil || !a.Is4() {
		return netip.Prefix{}, false
	}
	switch first := a.As4()[0]; {
	case first < 128:
		return netip.PrefixFrom(a, 8), true
	case first < 192:
		return netip.PrefixFrom(a, 16), true
	case first < 224:
		return netip.PrefixFrom(a, 24), true
	}
	return netip.Prefix{}, false
}
