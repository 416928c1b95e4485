// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
)

// Claim is something of the host that one instance has alone. The key that claims it
// stands in errors; no other claim of the same instance is in its way.
type Claim interface {
	// key is that of the configuration; empty is the section itself.
	key() string
	// against returns what keeps two claims of different instances apart, of which
	// other is that of an instance known to people as by; nil is nothing.
	against(other Claim, by string) *fault
}

// Device is the name of a network device.
type Device struct{ Key, Name string }

func (d Device) key() string { return d.Key }

func (d Device) against(other Claim, by string) *fault {
	if other, ok := other.(Device); !ok || other.Name != d.Name {
		return nil
	}
	return wrong(`give each instance an interface = "…" of its own`, "%s is also the interface of %s", d.Name, by)
}

// Socket is a port of an address, the unspecified one for all addresses. Without an
// address, or with port 0, nothing is claimed.
type Socket struct {
	Key string
	// Protocol is "UDP" or "TCP".
	Protocol string
	At       netip.AddrPort
	// Only6 reports that the unspecified address of IPv6 is none of IPv4.
	Only6 bool
	// Fixed reports that the port is that of a standard, and no key changes it.
	Fixed bool
}

func (s Socket) key() string { return s.Key }

func (s Socket) against(other Claim, by string) *fault {
	if other, ok := other.(Socket); ok && other.Protocol == s.Protocol && s.overlaps(&other) {
		return wrong(s.remedy(), "%s %s is also bound by %s", s.Protocol, other.At, by)
	}
	return nil
}

func (s Socket) remedy() string {
	if s.Fixed {
		return "choose another address"
	}
	return "choose another port or address"
}

// overlaps reports whether two sockets of one protocol cannot exist side by side.
func (s *Socket) overlaps(other *Socket) bool {
	a, b := s.At, other.At
	return a.Addr().IsValid() && b.Addr().IsValid() && a.Port() != 0 && a.Port() == b.Port() &&
		(a.Addr() == b.Addr() || s.covers(b.Addr()) || other.covers(a.Addr()))
}

// covers reports whether a socket is for all addresses of the family of one: one for all of IPv6 may be one for all of
// IPv4, too.
func (s *Socket) covers(one netip.Addr) bool {
	all := s.At.Addr()
	return all.IsUnspecified() && (one.Is4() == all.Is4() || all.Is6() && !s.Only6)
}

// Route are destinations whose packets go to the instance.
type Route struct {
	Key      string
	Prefixes []netip.Prefix
	// VRF is the one whose packets they are; the same destinations in others are others.
	VRF string
	// Set reports that the instance sets the routes itself. Two that do are in each other's
	// way, which Remedy is told of.
	Set    bool
	Remedy string
}

func (r Route) key() string { return r.Key }

func (r Route) against(other Claim, by string) *fault {
	theirs, ok := other.(Route)
	if !ok || !r.Set || !theirs.Set || r.VRF != theirs.VRF {
		return nil
	}
	for _, p := range r.Prefixes {
		for _, o := range theirs.Prefixes {
			if p.Overlaps(o) {
				if p == o {
					return wrong(r.Remedy, "%s is also routed to %s", p, by)
				}
				return wrong(r.Remedy, "%s overlaps %s of %s", p, o, by)
			}
		}
	}
	return nil
}

// DefaultRoute is one of IPv6, with a metric of its own.
type DefaultRoute struct {
	Key    string
	Metric int
}

func (d DefaultRoute) key() string { return d.Key }

func (d DefaultRoute) against(other Claim, by string) *fault {
	if other, ok := other.(DefaultRoute); !ok || other.Metric != d.Metric {
		return nil
	}
	return wrong("give each client a route_metric of its own; the smallest one wins", "%d is also the metric of %s", d.Metric, by)
}

// Group is a multicast group with the UDP port on which the instance hears its neighbours.
// Several may, but no socket that takes what comes to it, not even one of its own.
type Group struct {
	Key string
	At  netip.AddrPort
}

func (g Group) key() string { return g.Key }

func (Group) against(Claim, string) *fault { return nil }

// Right is a capability of Linux that the instance needs, which no one has alone.
type Right struct {
	Capability uint
	Name       string
	// Purpose is what it is for, as a verb with its object.
	Purpose string
}

func (Right) key() string { return "" }

func (Right) against(Claim, string) *fault { return nil }

// Announced are prefixes that routers are told of.
type Announced struct {
	Key      string
	Prefixes []netip.Prefix
}

func (a Announced) key() string { return a.Key }

func (a Announced) against(other Claim, by string) *fault {
	theirs, ok := other.(Announced)
	if !ok {
		return nil
	}
	for _, p := range a.Prefixes {
		if slices.Contains(theirs.Prefixes, p) {
			return wrong("announce each prefix for one instance", "%s is also announced for %s", p, by)
		}
	}
	return nil
}

// Alone is claimed by what a host has once.
type Alone struct {
	// Problem and Remedy are told of the second.
	Problem, Remedy string
}

func (a Alone) key() string { return "" }

func (a Alone) against(other Claim, _ string) *fault {
	if other != a {
		return nil
	}
	return &fault{Problem: a.Problem, Remedy: a.Remedy}
}
