// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"net/netip"
	"slices"
	"time"
)

// Source is how prefixes were learnt.
type Source uint8

// Sources, the best last (RFC 8781 section 5.1).
const (
	SourceNone          Source = iota
	SourceDNS                  // RFC 7050
	SourceAdvertisement        // RFC 8781
)

// String returns the source for people.
func (s Source) String() string {
	switch s {
	case SourceDNS:
		return "dns"
	case SourceAdvertisement:
		return "router advertisement"
	}
	return "none"
}

// Set are the prefixes of the NAT64 behind one interface, by one source. An IPv4
// destination is reached by any of them; they stand in the order in which they were
// received, which local synthesis keeps (RFC 7050 section 3).
type Set struct {
	Prefixes []netip.Prefix
	Source   Source
}

// Equal reports whether two sets say the same.
func (s Set) Equal(o Set) bool {
	return s.Source == o.Source && slices.Equal(s.Prefixes, o.Prefixes)
}

// Known is what was learnt of one interface and when that ends. The zero value knows
// nothing. It is not safe for concurrent use.
type Known struct {
	advertised []said[netip.Prefix]
	named      []said[netip.Addr]
	networks   []announced
	resolved   []netip.Prefix
	until      time.Time // of resolved
}

// announced is a network that a router announces, since when, when it did so last, and until
// when hosts prefer addresses there.
type announced struct {
	router             netip.Addr
	network            netip.Prefix
	since, last, until time.Time
}

// Advertised takes the options that a router sent. A prefix with a lifetime of 0 is not
// used any more; one that an advertisement does not name stays until its time is over.
func (k *Known) Advertised(router netip.Addr, options []Option, now time.Time) {
	k.expire(now)
	for _, o := range options {
		k.advertised = take(k.advertised, router, o.Prefix, o.Lifetime, now)
	}
}

// Named takes the name servers that a router names, likewise (RFC 8106 section 5.1).
func (k *Known) Named(router netip.Addr, resolvers []Resolver, now time.Time) {
	k.expire(now)
	for _, r := range resolvers {
		k.named = take(k.named, router, r.Addr, r.Lifetime, now)
	}
}

// Resolvers are the name servers that routers name now, so many as one of them may.
func (k *Known) Resolvers(now time.Time) []netip.Addr {
	k.expire(now)
	all := distinct(k.named)
	return all[:min(len(all), MaxResolvers)]
}

// Announced takes the networks of an advertisement, before the options of the same. Of all
// that routers announce what was heard last is kept. A network that was deprecated, and comes
// back, is announced since then: what was said of others meanwhile is not about it.
func (k *Known) Announced(router netip.Addr, networks []Network, now time.Time) {
	for _, n := range networks {
		fresh := announced{router, n.Prefix, now, now, now.Add(n.Preferred)}
		at := slices.IndexFunc(k.networks, func(a announced) bool { return a.router == router && a.network == n.Prefix })
		switch {
		case at >= 0:
			if now.Before(k.networks[at].until) || n.Preferred == 0 {
				fresh.since = k.networks[at].since
			}
			k.networks[at] = fresh
			continue
		case len(k.networks) == maxKnown:
			oldest := slices.MinFunc(k.networks, func(a, b announced) int { return a.last.Compare(b.last) })
			k.networks = slices.DeleteFunc(k.networks, func(a announced) bool { return a == oldest })
		}
		k.networks = append(k.networks, fresh)
	}
}

// announces reports since when a router has announced a network, or one around it.
func (k *Known) announces(router netip.Addr, network netip.Prefix) (since time.Time, ok bool) {
	for _, a := range k.networks {
		if a.router == router && a.network.Bits() <= network.Bits() && a.network.Contains(network.Addr()) && (!ok || a.since.Before(since)) {
			since, ok = a.since, true
		}
	}
	return since, ok
}

// Moved forgets what says nothing of the network that the host is in now: all but what a
// router has advertised since it announces that one. So the advertisement that renumbers a
// link has its prefixes used at once, and those of the network before are forgotten.
func (k *Known) Moved(network netip.Prefix) {
	stale := func(router netip.Addr, heard time.Time) bool {
		since, ok := k.announces(router, network)
		return !ok || heard.Before(since)
	}
	k.advertised = slices.DeleteFunc(k.advertised, func(s said[netip.Prefix]) bool { return stale(s.router, s.heard) })
	k.named = slices.DeleteFunc(k.named, func(s said[netip.Addr]) bool { return stale(s.router, s.heard) })
	k.resolved = nil
}

// Resolved takes what name servers said, and how long that is good.
func (k *Known) Resolved(prefixes []netip.Prefix, until time.Time) {
	k.resolved, k.until = prefixes, until
}

func (k *Known) expire(now time.Time) {
	k.advertised = slices.DeleteFunc(k.advertised, func(s said[netip.Prefix]) bool { return !now.Before(s.expires) })
	k.named = slices.DeleteFunc(k.named, func(s said[netip.Addr]) bool { return !now.Before(s.expires) })
	if !now.Before(k.until) {
		k.resolved = nil
	}
}

// Set is what holds now: what routers said, or else what name servers did.
func (k *Known) Set(now time.Time) Set {
	k.expire(now)
	s := Set{Prefixes: distinct(k.advertised)}
	switch {
	case len(s.Prefixes) > 0:
		s.Source = SourceAdvertisement
	case len(k.resolved) > 0:
		s = Set{slices.Clone(k.resolved), SourceDNS}
	}
	return s
}

// Next is when something that is known ends by itself; zero is never.
func (k *Known) Next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, a := range k.advertised {
		sooner(a.expires)
	}
	for _, n := range k.named {
		sooner(n.expires)
	}
	if len(k.resolved) > 0 {
		sooner(k.until)
	}
	return next
}
