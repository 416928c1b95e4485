// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import "net/netip"

// The mirrors remember just enough to tell a change from news that change
// nothing: neighbours pass from reachable to stale and back all the time.

// neighbourKey names a neighbour.
type neighbourKey struct {
	family uint8 // 4 or 6
	link   int32
	addr   netip.Addr
}

// maxNeighbours bounds the mirror; the kernel's own limit is 1,024 of each
// family unless raised. A mirror that is full is emptied: what it forgot then
// counts as a change when it is heard of again.
const maxNeighbours = 1 << 16

// neighbourMirror holds the valid neighbours that were heard of. Its zero value
// is empty.
type neighbourMirror struct {
	valid map[neighbourKey]mac
}

// novelty is how new news of a neighbour are.
type novelty int

const (
	unchanged novelty = iota
	// sure is a change of the MAC or of validity.
	sure
	// unsure is a neighbour that is not valid and was not known to be: it may
	// have been valid before the mirror began.
	unsure
)

// change notes what an event says and reports how new it is.
func (m *neighbourMirror) change(k neighbourKey, address mac, valid bool) novelty {
	old, known := m.valid[k]
	switch {
	case !valid && known:
		delete(m.valid, k)
		return sure
	case !valid:
		return unsure
	case known && old == address:
		return unchanged
	}
	if m.valid == nil || len(m.valid) >= maxNeighbours {
		m.valid = make(map[neighbourKey]mac)
	}
	m.valid[k] = address
	return sure
}

func (m *neighbourMirror) clear() { clear(m.valid) }

// linkState is what of a link a next hop depends on.
type linkState struct {
	flags  uint32 // up, running and carrier
	mtu    uint32
	master uint32
	mac    mac
	gone   bool
}

// maxLinks bounds the mirror of links, as maxNeighbours does.
const maxLinks = 1 << 14

// linkMirror holds the links that were heard of. Its zero value is empty.
type linkMirror struct {
	known map[int32]linkState
}

// change notes a link's state. carrier reports that the link can carry packets now
// and could not before, or the other way about, or that nothing was known of it:
// then the kernel may have taken its IPv4 routes away, without a word.
func (m *linkMirror) change(link int32, s linkState) (changed, carrier bool) {
	old, known := m.known[link]
	if known && old == s {
		return false, false
	}
	if m.known == nil || len(m.known) >= maxLinks {
		m.known = make(map[int32]linkState)
	}
	m.known[link] = s
	if s.gone {
		delete(m.known, link)
	}
	return true, !known || s.gone || old.flags != s.flags
}

func (m *linkMirror) clear() { clear(m.known) }
