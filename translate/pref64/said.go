// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

const (
	// maxKnown bounds what all routers of a link together may say of one kind.
	maxKnown = 64
	// maxOfRouter is what one of them may say: no more is read of one advertisement.
	maxOfRouter = maxOptions
)

// said is what a router said, and how long that holds.
type said[T comparable] struct {
	router  netip.Addr
	what    T
	expires time.Time
	heard   time.Time // last
}

// take takes what a router said; a lifetime of 0 is the end of it.
func take[T comparable](list []said[T], router netip.Addr, what T, lifetime time.Duration, now time.Time) []said[T] {
	at := slices.IndexFunc(list, func(s said[T]) bool { return s.router == router && s.what == what })
	fresh := said[T]{router, what, now.Add(lifetime), now}
	switch {
	case lifetime == 0 && at >= 0:
		return slices.Delete(list, at, at+1)
	case lifetime == 0:
		return list
	case at >= 0:
		list[at] = fresh
		return list
	}
	list, ok := room(list, router, now)
	if !ok {
		return list
	}
	return append(list, fresh)
}

// room makes room for one more of a router, and reports whether there is some. A router with
// its share replaces what it has not said for longest; where all room is taken, the router
// with most gives way to one that has less, so that none keeps another out.
func room[T comparable](list []said[T], router netip.Addr, now time.Time) ([]said[T], bool) {
	of := make(map[netip.Addr]int)
	for _, s := range list {
		of[s.router]++
	}
	full := of[router] >= maxOfRouter
	if !full && len(list) < maxKnown {
		return list, true
	}
	out := -1
	for i, s := range list {
		gives := of[s.router] > of[router]
		if full {
			gives = s.router == router && s.heard.Before(now)
		}
		if gives && (out < 0 || cmp.Or(of[list[out].router]-of[s.router], s.heard.Compare(list[out].heard)) < 0) {
			out = i
		}
	}
	if out < 0 {
		return list, false
	}
	return slices.Delete(list, out, out+1), true
}

// distinct returns what was said, each once, in the order in which it was first heard.
func distinct[T comparable](list []said[T]) (all []T) {
	for _, s := range list {
		if !slices.Contains(all, s.what) {
			all = append(all, s.what)
		}
	}
	return all
}
