// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import "github.com/isthmus-net/isthmus/teredo/peer"

// lateFilter tells a fast path's filter of clients that are no longer under test a
// little later than it is so. A fast path that looked for a client just before it
// became trusted, and into the filter just after, would else take it for a stranger
// and drop its packet.
type lateFilter struct {
	filter  peer.Filter
	pending [][16]byte
}

func newLateFilter(f peer.Filter) *lateFilter {
	return &lateFilter{filter: f, pending: make([][16]byte, 0, publishRoom)}
}

// Add implements [peer.Filter].
func (l *lateFilter) Add(key [16]byte) { l.filter.Add(key) }

// Remove implements [peer.Filter].
func (l *lateFilter) Remove(key [16]byte) {
	if len(l.pending) == cap(l.pending) {
		l.flush()
	}
	l.pending = append(l.pending, key)
}

// flush tells the filter; what was removed before is long done by then, since the
// packets of its batch have been sent.
func (l *lateFilter) flush() {
	if l == nil {
		return
	}
	for _, key := range l.pending {
		l.filter.Remove(key)
	}
	l.pending = l.pending[:0]
}
