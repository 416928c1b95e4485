// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// know has the pool know its addresses, and those that were taken out as long as something
// is bound there.
func (e *Engine) know() {
	before := e.pool.known
	e.pool.known = make(map[netip.Addr]bool, len(e.pool.addresses))
	for _, a := range e.pool.addresses {
		e.pool.known[a] = true
		delete(before, a)
	}
	if before == nil || len(before) > 0 {
		e.table.WalkBindings(0, math.MaxInt32, func(b *state.Binding) { e.pool.known[netip.AddrFrom4(b.Pool)] = true })
	}
}

// Leaving returns what sessions have and the settings do not name any more: prefixes of
// pool6, and addresses of pool4 as prefixes.
func (e *Engine) Leaving() (list []netip.Prefix) {
	var prefixes [MaxPrefixes]bool
	addresses := make(map[netip.Addr]bool)
	e.table.WalkSessions(0, math.MaxInt32, func(s *state.Session) {
		if int(s.Prefix) < len(e.prefixes) && e.prefixes[s.Prefix].out {
			prefixes[s.Prefix] = true
		}
		a := netip.AddrFrom4(s.Pool)
		if _, named := e.pool.order[a]; !named {
			addresses[a] = true
		}
	})
	for i, p := range e.prefixes {
		if prefixes[i] {
			list = append(list, p.prefix.Prefix())
		}
	}
	for a := range addresses {
		list = append(list, netip.PrefixFrom(a, 32))
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}

// End ends the sessions that f chooses, as if their time were over. It looks at n records
// from the one given and returns how many it has ended and where to go on, 0 behind the last.
func (e *Engine) End(from uint32, n int, now time.Time, out *Out, f func(SessionInfo) bool) (ended int, next uint32) {
	c := e.begin(translate.Path{}, now, out)
	next = e.table.WalkSessions(from, n, func(s *state.Session) {
		if f(e.describe(s, now, c.at)) && e.end(&c, s) {
			ended++
		}
	})
	if next == 0 {
		e.know()
	}
	return ended, next
}

// Has reports whether the outer end of a session or binding is in the range.
func (r Range) Has(transport state.Transport, outside netip.AddrPort) bool {
	first, last := r.ports()
	return r.Prefix.Contains(outside.Addr()) && r.transports()>>transport&1 != 0 && first <= int(outside.Port()) && int(outside.Port()) <= last
}

// Covers reports whether all of another range is in this one.
func (r Range) Covers(o Range) bool {
	first, last := r.ports()
	otherFirst, otherLast := o.ports()
	return r.Prefix.Bits() <= o.Prefix.Bits() && r.Prefix.Overlaps(o.Prefix) &&
		first <= otherFirst && otherLast <= last && o.transports()&^r.transports() == 0
}
