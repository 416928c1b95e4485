// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/isthmus-net/isthmus/gprs/link"
)

// Networks behind a terminal need not be of the lease of its context: whoever lets it in may name
// routes (RFC 2865 section 5.22, RFC 3162 section 2.5) and prefixes that are delegated to it alone (RFC
// 4818). All are of the prefixes that its access point has for that, and no two of them overlap.

// Route leads to what is behind a terminal.
type Route struct {
	Prefix netip.Prefix
	// Delegated is what DHCPv6 may delegate to the terminal. It leads there while that lasts.
	Delegated bool
}

// RouteFault is why a terminal does not get a route that was granted to it.
type RouteFault uint8

// The faults.
const (
	RouteMalformed RouteFault = iota // what was said is no route
	RouteFamily                      // of a family that the context has not
	RouteLong                        // of IPv6, and longer than 64 bits
	RouteOutside                     // not of the prefixes that its access point has for that
	RouteTaken                       // some of it is somebody's already
	RouteMany                        // more than a terminal may have, or than a network has room for
	numRouteFaults
)

// NumRouteFaults is the number of faults, for an array of counters.
const NumRouteFaults = int(numRouteFaults)

var routeFaultNames = [numRouteFaults]string{"malformed", "wrong_family", "too_long", "outside", "taken", "too_many"}

// String returns the name of the fault, stable and fit for a counter's label.
func (f RouteFault) String() string { return routeFaultNames[f] }

// Bounds of routes: of one terminal, and of one network.
const (
	maxRoutesEach = 16
	maxRoutes     = 1 << 20
)

// routed is whose a route is.
type routed struct {
	session   handle
	delegated bool
}

// behind are the routes of a network.
type behind = bart.Table[routed]

// checkRouted wants prefixes that routes can be of.
func (a *APN) checkRouted() error {
	for _, p := range a.Routed {
		if p != p.Masked() || p.Addr().Is4In6() || p.Addr().Is6() && p.Bits() > prefixBits {
			return fmt.Errorf("%s cannot be behind terminals: write a prefix of IPv4, or one of IPv6 with %d bits or fewer", p, prefixBits)
		}
	}
	if a.routes6() && a.DHCP && a.DelegationTime < minDelegationTime {
		return fmt.Errorf("prefixes are delegated for %s or more", minDelegationTime)
	}
	return nil
}

// routes6 reports whether prefixes of IPv6 may be behind terminals, so that they can be delegated.
func (a *APN) routes6() bool {
	return slices.ContainsFunc(a.Routed, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// checkBehind refuses settings by which somebody could get what is behind a terminal, or a route to
// what somebody has.
func (e *Engine) checkBehind(s *Settings) error {
	for i := range s.APNs {
		to := &s.APNs[i]
		if int(to.VRF) >= len(e.vrfs) {
			continue
		}
		for _, list := range to.ranges() {
			for _, p := range list {
				if e.vrfs[to.VRF].behind.OverlapsPrefix(p) {
					return fmt.Errorf("access point %s would give addresses of %s, to which a terminal has a route: take it away until their contexts have ended", to.Name, p)
				}
			}
		}
		for _, p := range to.Routed {
			if e.uses(to.VRF, p) {
				return fmt.Errorf("access point %s would have routes to %s, of which contexts have addresses: take it away until they have ended", to.Name, p)
			}
		}
	}
	return nil
}

// uses reports whether contexts of a network have leases of a prefix.
func (e *Engine) uses(vrf uint8, of netip.Prefix) bool {
	for _, a := range e.apns {
		for _, l := range a.all() {
			if a.VRF == vrf && l.pool != nil && l.pool.Uses(of) {
				return true
			}
		}
	}
	return false
}

// setRouted notes which prefixes of the settings so far are gone, and lead to terminals still.
func (a *access) setRouted(v *vrf, next []netip.Prefix) {
	a.leftRouted = leavingRouted(v, slices.Concat(a.Routed, a.leftRouted), next)
}

// leavingRouted are those of a list that have routes in them and are not named.
func leavingRouted(v *vrf, list, named []netip.Prefix) (left []netip.Prefix) {
	for _, p := range list {
		if !slices.Contains(named, p) && !slices.Contains(left, p) && v.behind.OverlapsPrefix(p) {
			left = append(left, p)
		}
	}
	return left
}

// giveRoutes gives a session what was granted to it; what it cannot have is counted, and the session
// goes on without.
func (e *Engine) giveRoutes(h handle, s *session, g *Grant, c call) {
	if g == nil {
		return
	}
	e.stats.RoutesRefused[RouteMalformed] += uint64(g.MalformedRoutes)
	for _, r := range g.Routes {
		for e.releasing != 0 && e.releaseOne(e.ownerOf(s, r.Prefix), c) {
		}
		e.giveRoute(h, s, r, e.accessPoint(s).Routed)
	}
}

// giveRoute gives a session a route, if it is of some prefixes.
func (e *Engine) giveRoute(h handle, s *session, r Route, of []netip.Prefix) {
	if f, ok := e.routeFault(h, s, r, of); !ok {
		e.stats.RoutesRefused[f]++
		return
	}
	e.vrfOf(s).behind.Insert(r.Prefix, routed{h, r.Delegated})
	e.routes[h] = append(e.routes[h], r)
}

// routeFault returns why a session cannot have a route; ok is true if it can.
func (e *Engine) routeFault(h handle, s *session, r Route, of []netip.Prefix) (f RouteFault, ok bool) {
	p, v := r.Prefix, e.vrfOf(s)
	family := TypeIPv6
	if p.Addr().Is4() {
		family = TypeIPv4
	}
	switch {
	case !s.has.has(family):
		return RouteFamily, false
	case family == TypeIPv6 && p.Bits() > prefixBits:
		return RouteLong, false
	case !slices.ContainsFunc(of, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }):
		return RouteOutside, false
	case v.behind.OverlapsPrefix(p) || e.leased(s, p):
		return RouteTaken, false
	case len(e.routes[h]) >= maxRoutesEach || v.behind.Size() >= maxRoutes, r.Delegated && e.delegatedRoutes(h) >= link.MaxAssociations:
		return RouteMany, false
	}
	return 0, true
}

// ownerOf is a session to which some of a prefix leads; 0: there is none.
func (e *Engine) ownerOf(s *session, p netip.Prefix) handle {
	v := e.vrfOf(s)
	for _, r := range v.behind.Supernets(p) {
		return r.session
	}
	for _, r := range v.behind.Subnets(p) {
		return r.session
	}
	return 0
}

// leased reports whether a prefix is of pools, also of those that are leaving.
func (e *Engine) leased(s *session, p netip.Prefix) bool {
	vrf := e.accessPoint(s).VRF
	for _, a := range e.apns {
		for _, l := range a.all() {
			if a.VRF == vrf && (!a.gone && slices.ContainsFunc(l.named, p.Overlaps) || slices.ContainsFunc(l.left, p.Overlaps)) {
				return true
			}
		}
	}
	return false
}

// dropRoutes ends those of a session.
func (e *Engine) dropRoutes(h handle, s *session) {
	for _, r := range e.routes[h] {
		e.vrfOf(s).behind.Delete(r.Prefix)
	}
	delete(e.routes, h)
}

// findBehind returns the session that an address is behind.
func (e *Engine) findBehind(v *vrf, a netip.Addr) handle {
	r, ok := v.behind.Lookup(a)
	if !ok || r.delegated && !e.isDelegated(r.session, a) {
		return 0
	}
	return r.session
}

// find4 returns the session that has an IPv4 address, or that it is behind.
func (e *Engine) find4(v *vrf, n uint32) handle {
	if h := v.by4[n]; h != 0 || v.behind.Size4() == 0 {
		return h
	}
	return e.findBehind(v, addr4(n))
}

// delegatedRoutes is how many routes of a session lead to what is delegated.
func (e *Engine) delegatedRoutes(h handle) (n int) {
	for _, r := range e.routes[h] {
		if r.Delegated {
			n++
		}
	}
	return n
}

// routesTo are the prefixes that lead to a session at all times.
func (e *Engine) routesTo(h handle) (list []netip.Prefix) {
	for _, r := range e.routes[h] {
		if !r.Delegated {
			list = append(list, r.Prefix)
		}
	}
	return list
}

// storedRoute is one of a session.
type storedRoute struct {
	Prefix    storedPrefix
	Delegated bool
}

func (e *Engine) appendRoutes(b []byte, h handle) []byte {
	for _, r := range e.routes[h] {
		b = appendRecord(b, &storedRoute{stored(r.Prefix), r.Delegated})
	}
	return b
}

// routesOf reads those of a session; false if they cannot be read.
func (r *resuming) routesOf(n uint8) (list []Route, ok bool) {
	for range n {
		var in storedRoute
		if !r.record(&in) {
			return nil, false
		}
		if p := in.Prefix.prefix(); p.IsValid() && p == p.Masked() {
			list = append(list, Route{p, in.Delegated})
		}
	}
	return list, true
}
