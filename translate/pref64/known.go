// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"cmp"
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

const (
	// maxKnown bounds what all routers of a link together may say.
	maxKnown = 64
	// maxOfRouter is what one of them may say: no more is read of one advertisement.
	maxOfRouter = maxOptions
)

// Known is what was learnt of one interface and when that ends. The zero value knows
// nothing. It is not safe for concurrent use.
type Known struct {
	advertised []advertised
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

type advertised struct {
	router  netip.Addr
	prefix  netip.Prefix
	expires time.Time
	heard   time.Time // last
}

// Advertised takes the options that a router sent. A prefix with a lifetime of 0 is not
// used any more; one that an advertisement does not name stays until its time is over.
func (k *Known) Advertised(router netip.Addr, options []Option, now time.Time) {
	k.expire(now)
	for _, o := range options {
		at := slices.IndexFunc(k.advertised, func(a advertised) bool { return a.router == router && a.prefix == o.Prefix })
		switch {
		case o.Lifetime == 0 && at >= 0:
			k.advertised = slices.Delete(k.advertised, at, at+1)
		case o.Lifetime == 0:
		case at >= 0:
			k.advertised[at].expires, k.advertised[at].heard = now.Add(o.Lifetime), now
		case k.room(router, now):
			k.advertised = append(k.advertised, advertised{router, o.Prefix, now.Add(o.Lifetime), now})
		}
	}
}

// room makes room for one more prefix of a router, and reports whether there is some. A router
// with its share replaces what it has not said for longest; where all room is taken, the
// router with most gives way to one that has less, so that none keeps another out.
func (k *Known) room(router netip.Addr, now time.Time) bool {
	of := make(map[netip.Addr]int)
	for _, a := range k.advertised {
		of[a.router]++
	}
	full := of[router] >= maxOfRouter
	if !full && len(k.advertised) < maxKnown {
		return true
	}
	out := -1
	for i, a := range k.advertised {
		gives := of[a.router] > of[router]
		if full {
			gives = a.router == router && a.heard.Before(now)
		}
		if gives && (out < 0 || cmp.Or(of[k.advertised[out].router]-of[a.router], a.heard.Compare(k.advertised[out].heard)) < 0) {
			out = i
		}
	}
	if out >= 0 {
		k.advertised = slices.Delete(k.advertised, out, out+1)
	}
	return out >= 0
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

// Announces reports since when a router has announced a network, or one around it.
func (k *Known) Announces(router netip.Addr, network netip.Prefix) (since time.Time, ok bool) {
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
	k.advertised = slices.DeleteFunc(k.advertised, func(a advertised) bool {
		since, ok := k.Announces(a.router, network)
		return !ok || a.heard.Before(since)
	})
	k.resolved = nil
}

// Resolved takes what name servers said, and how long that is good.
func (k *Known) Resolved(prefixes []netip.Prefix, until time.Time) {
	k.resolved, k.until = prefixes, until
}

func (k *Known) expire(now time.Time) {
	k.advertised = slices.DeleteFunc(k.advertised, func(a advertised) bool { return !now.Before(a.expires) })
	if !now.Before(k.until) {
		k.resolved = nil
	}
}

// Set is what holds now: what routers said, or else what name servers did.
func (k *Known) Set(now time.Time) Set {
	k.expire(now)
	var s Set
	for _, a := range k.advertised {
		if !slices.Contains(s.Prefixes, a.prefix) {
			s.Prefixes = append(s.Prefixes, a.prefix)
		}
	}
	switch {
	case len(s.Prefixes) > 0:
		s.Source = SourceAdvertisement
	case len(k.resolved) > 0:
		s = Set{slices.Clone(k.resolved), SourceDNS}
	}
	return s
}

// Next is when [Known.Set] changes by itself; zero is never.
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
	if len(k.resolved) > 0 {
		sooner(k.until)
	}
	return next
}
