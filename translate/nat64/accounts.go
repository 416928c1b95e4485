// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import "math/bits"

// accounts say on whose account fragments and SYNs are remembered, and who gives way when
// there is no room for more: whoever holds most. So no one can take what others need, however many
// senders he is or pretends to be (docs/decisions/0018).
//
// They are a tree of two levels. On the upper one are clients, networks of clients that are
// smaller than a /64, and one account each for all who are not known to have a session:
// such senders cost nothing to forge, and so count as one against the clients. What an
// account holds is part of what the one above it holds.
type accounts struct {
	index   map[accountKey]int32
	slots   []account
	free    []int32
	members []members // of accounts that have some; the first are those of the upper level
	unused  []int32   // of them
	length  int       // of a client's prefix
	share   [things]int
}

// account is one of them.
type account struct {
	key     accountKey
	above   int32 // account, or noSlot for one of the upper level
	members int32 // those below it; noSlot if something waits on it
	held    [things]int32
	ring    [things]struct{ before, after int32 } // of those that hold about as much
	lists   [turns]list                           // of what waits, by who gives way first
}

// thing is what there is a limited number of.
type thing uint8

const (
	packets thing = iota // assemblies, SYNs
	memory               // chunks of the arena
	things
)

// accountKey names an account.
type accountKey struct {
	kind    accountKind
	address [16]byte
}

// accountKind is whom an account is of.
type accountKind uint8

const (
	ofClient    accountKind = iota // a client that has a session: of it, or for it
	ofNetwork                      // clients of one /64
	ofNewcomer                     // from a network of clients that have no session yet
	ofNewcomers                    // all of them
	ofPeer                         // from an IPv4 host that has a session with someone
	ofPeers                        // all of them
	ofStranger                     // from other IPv4 hosts, for an address of the pool
	ofStrangers                    // all of them
)

// members are the accounts below one, in rings by the magnitude of what they hold, so that
// who holds most is found at once, within a factor of two.
type members [things]rings

type rings struct {
	filled uint32 // a bit for each that is not empty
	first  [magnitudes]int32
}

// magnitudes are the powers of two up to the most there can be of a thing.
const magnitudes = 23

func magnitude(held int32) int { return bits.Len32(uint32(held)) }

// newAccounts makes room for those of n packets; one account may hold its share.
func newAccounts(n, length int, share [things]int) accounts {
	groups := 4
	if length > 64 {
		groups += n + 1
	}
	t := accounts{index: make(map[accountKey]int32, n+groups), slots: make([]account, n+1+groups), members: make([]members, groups), length: length, share: share}
	for i := len(t.slots) - 1; i >= 0; i-- {
		t.free = append(t.free, int32(i))
	}
	for i := len(t.members) - 1; i > 0; i-- {
		t.unused = append(t.unused, int32(i))
	}
	return t
}

// above returns the account that one of a key is below; ok is false on the upper level.
func (t *accounts) above(k accountKey) (above accountKey, ok bool) {
	switch {
	case k.kind == ofClient && t.length > 64:
		above = accountKey{kind: ofNetwork}
		copy(above.address[:8], k.address[:])
		return above, true
	case k.kind == ofNewcomer || k.kind == ofPeer || k.kind == ofStranger:
		return accountKey{kind: k.kind + 1}, true
	}
	return above, false
}

// beyond reports whether n more of a thing are more than the share of an account. Strangers
// have none to keep: they are limited by what others leave them.
func (t *accounts) beyond(account int32, what thing, n int) bool {
	a := &t.slots[account]
	return a.key.kind != ofStranger && int(a.held[what])+n > t.share[what]
}

// find returns the account of a key, or noSlot.
func (t *accounts) find(k accountKey) int32 {
	if i, ok := t.index[k]; ok {
		return i
	}
	return noSlot
}

// open returns the account of a key, a new one if it has none. It ends with what it holds.
func (t *accounts) open(k accountKey) int32 {
	if i, ok := t.index[k]; ok {
		return i
	}
	a := account{key: k, above: noSlot, members: noSlot}
	for i := range a.lists {
		a.lists[i] = list{noSlot, noSlot}
	}
	if above, ok := t.above(k); ok {
		a.above = t.open(above)
		if up := &t.slots[a.above]; up.members == noSlot {
			up.members = t.unused[len(t.unused)-1]
			t.unused = t.unused[:len(t.unused)-1]
		}
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.slots[i], t.index[k] = a, i
	return i
}

// hold adds to what an account holds of a thing, or takes from it. One that holds nothing
// any more ends.
func (t *accounts) hold(i int32, what thing, n int) {
	for i != noSlot {
		a := &t.slots[i]
		before := magnitude(a.held[what])
		a.held[what] += int32(n)
		if now := magnitude(a.held[what]); now != before {
			t.leave(i, what, before)
			t.join(i, what, now)
		}
		above := a.above
		if a.held == [things]int32{} {
			t.end(i)
		}
		i = above
	}
}

func (t *accounts) end(i int32) {
	a := &t.slots[i]
	if a.members != noSlot {
		t.unused = append(t.unused, a.members)
	}
	delete(t.index, a.key)
	t.free = append(t.free, i)
}

// beside returns the members that an account is one of.
func (t *accounts) beside(a *account) *members {
	if a.above == noSlot {
		return &t.members[0]
	}
	return &t.members[t.slots[a.above].members]
}

// join puts an account at the end of a ring; who holds nothing is in none.
func (t *accounts) join(i int32, what thing, ring int) {
	if ring == 0 {
		return
	}
	a := &t.slots[i]
	m := &t.beside(a)[what]
	a.ring[what].before, a.ring[what].after = i, i
	if m.filled>>ring&1 == 0 {
		m.filled |= 1 << ring
		m.first[ring] = i
		return
	}
	first := m.first[ring]
	last := t.slots[first].ring[what].before
	a.ring[what].before, a.ring[what].after = last, first
	t.slots[last].ring[what].after, t.slots[first].ring[what].before = i, i
}

func (t *accounts) leave(i int32, what thing, ring int) {
	if ring == 0 {
		return
	}
	a := &t.slots[i]
	m := &t.beside(a)[what]
	before, after := a.ring[what].before, a.ring[what].after
	if after == i {
		m.filled &^= 1 << ring
		return
	}
	t.slots[before].ring[what].after, t.slots[after].ring[what].before = after, before
	if m.first[ring] == i {
		m.first[ring] = after
	}
}

// greatest returns the account that gives way when one of a key wants n more of a thing: of
// those that hold most on the upper level the first, and so below it. It is the one that
// wants more itself if that would hold as much.
func (t *accounts) greatest(k accountKey, what thing, n int) int32 {
	own := t.find(k)
	upper := own
	if above, ok := t.above(k); ok {
		upper = t.find(above)
	}
	i := t.most(&t.members[0][what], upper, what, n)
	switch {
	case t.slots[i].members == noSlot:
		return i
	case i != upper:
		own = noSlot
	}
	return t.most(&t.members[t.slots[i].members][what], own, what, n)
}

func (t *accounts) most(r *rings, own int32, what thing, n int) int32 {
	ring := bits.Len32(r.filled) - 1
	if own != noSlot {
		if held := t.slots[own].held[what]; held > 0 && magnitude(held+int32(n)) >= ring {
			return own
		}
	}
	return r.first[ring]
}
