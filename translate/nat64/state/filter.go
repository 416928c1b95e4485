// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

// HasPeer tells whether a binding has a session with the IPv4 host, of any port, whose
// word is live: what address-dependent filtering asks (RFC 6146 section 3.5.1). It looks
// at the newest limit sessions.
func (t *Table) HasPeer(b *Binding, peer [4]byte, limit int, live func(s *Session) bool) bool {
	found := false
	t.WalkChain(b, limit, func(s *Session) bool {
		found = s.Peer == peer && live(s)
		return !found
	})
	return found
}
