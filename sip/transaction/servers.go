// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// avoidFor is how long a server that has failed is asked behind the others of its name, so that an
// ACK, which nobody answers, does not go to it, and not each request waits for it anew. No more than
// maxAvoided are remembered.
const (
	avoidFor   = time.Minute
	maxAvoided = 1024
)

// server is a target without the address of this host.
type server struct {
	transport string
	remote    netip.AddrPort
}

func serverAt(t Target) server { return server{t.Transport, t.Remote} }

// Others returns which of the targets that are left a request goes to next, with another branch,
// since the server of an event has failed (RFC 3263 section 4.3): it could not be reached, has
// answered 503, or nothing at all in time. Silent or overloaded, it is not asked by another transport
// either. There are none for a request that was given up, or that a server has passed on, as a
// provisional response other than 100 shows.
func (l *Layer) Others(v *Event, left []Target, now time.Time) (others []Target) {
	c := v.Client
	switch {
	case c.cancel != nil || c.heard > 100:
		return nil
	case v.Kind == Unreachable:
		others = left
	case v.Kind == Timeout && c.heard == 0, v.Kind == Response && v.Message.Status == 503:
		others = slices.DeleteFunc(slices.Clone(left), func(t Target) bool { return t.Remote == c.To.Remote })
	}
	if len(others) > 0 {
		l.Avoid(c.To, now)
	}
	return others
}

// Avoid has a target that has failed come last for a while.
func (l *Layer) Avoid(to Target, now time.Time) {
	if len(l.avoided) >= maxAvoided {
		maps.DeleteFunc(l.avoided, func(_ server, until time.Time) bool { return !until.After(now) })
	}
	if len(l.avoided) < maxAvoided {
		l.avoided[serverAt(to)] = now.Add(avoidFor)
	}
}

// Order has targets that have failed lately come last; else they stay as they are.
func (l *Layer) Order(targets []Target, now time.Time) []Target {
	failed := func(t Target) bool { return l.avoided[serverAt(t)].After(now) }
	last := slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return !failed(t) })
	return append(slices.DeleteFunc(targets, failed), last...)
}
