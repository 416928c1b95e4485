// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// HasPeer reports whether a binding has a session with the IPv4 host, of any port, that is
// live: what address-dependent filtering asks (RFC 6146 section 3.5.1). It looks at the
// newest limit sessions.
func (t *Table) HasPeer(b *Binding, peer [4]byte, limit int, live func(s *Session) bool) bool {
	if !t.alive(b) {
		return false
	}
	s := &t.visited
	for link := atomic.LoadUint32(&t.bindings[b.Index].sessions); link != 0 && limit > 0; limit-- {
		if t.View(link-1, s) && s.Binding == b.Index && s.Peer == peer && live(s) {
			return true
		}
		link = atomic.LoadUint32(t.next(link - 1))
	}
	return false
}
