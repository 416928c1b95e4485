// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"math/bits"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// peerIndex finds a session of a binding with an IPv4 host, of any port: what filtering asks of
// packets from IPv4 (RFC 6146 section 3.5.1). A binding's chain of sessions does not answer
// that: one client could make it so long that looking through it for each packet holds up all
// others.
//
// It holds numbers of records, which say themselves whether they are still of that session.
// Where a bucket has no room for another session, that is found by its chain as long as it is
// among the newest there.
type peerIndex struct {
	seed    uint64
	buckets [][indexWidth]peerSlot // none: no filter wants it
	held    state.Session
}

// peerSlot is a session, by its number: the index of its record + 1.
type peerSlot struct{ tag, number uint32 }

// indexWidth is how many slots a bucket has: one cache line.
const indexWidth = 8

// newPeerIndex has two slots or more for each session: of a full table, all of whose sessions
// are of other bindings or hosts, one in 100 finds no room.
func newPeerIndex(sessions int, seed uint64) peerIndex {
	return peerIndex{seed: seed, buckets: make([][indexWidth]peerSlot, 1<<bits.Len(uint(sessions-1)/4))}
}

// place returns the bucket of a binding and a host, and what tells them from others there.
func (x *peerIndex) place(binding uint32, peer [4]byte) (bucket *[indexWidth]peerSlot, tag uint32) {
	var key [16]byte
	binary.BigEndian.PutUint32(key[:], binding)
	copy(key[8:], peer[:])
	h := mix(x.seed, key)
	return &x.buckets[h>>32&uint64(len(x.buckets)-1)], uint32(h)
}

// add takes a session in. Of several with one host the last that a packet has come for stays.
func (x *peerIndex) add(t *state.Table, s *state.Session, at uint32) {
	if x.buckets == nil {
		return
	}
	bucket, tag := x.place(s.Binding, s.Peer)
	room := -1
	for i := range bucket {
		slot := &bucket[i]
		switch {
		case slot.number == 0:
			room = i
		case slot.tag == tag:
			if slot.number != s.Index+1 && (!x.stands(t, slot) || x.held.Word.Age(at) > s.Word.Age(at)) {
				slot.number = s.Index + 1
			}
			return
		}
	}
	for i := 0; room < 0 && i < len(bucket); i++ {
		if !x.stands(t, &bucket[i]) {
			room = i
		}
	}
	if room >= 0 {
		bucket[room] = peerSlot{tag, s.Index + 1}
	}
}

// stands reports whether the session of a slot goes on, and leaves it in held.
func (x *peerIndex) stands(t *state.Table, slot *peerSlot) bool {
	if !t.View(slot.number-1, &x.held) {
		return false
	}
	_, tag := x.place(x.held.Binding, x.held.Peer)
	return tag == slot.tag
}

// has reports whether a live session of a binding with a host is here.
func (x *peerIndex) has(t *state.Table, b *state.Binding, peer [4]byte, live func(*state.Session) bool) bool {
	if x.buckets == nil {
		return false
	}
	bucket, tag := x.place(b.Index, peer)
	for i := range bucket {
		slot := &bucket[i]
		if slot.number != 0 && slot.tag == tag && x.stands(t, slot) && x.held.Binding == b.Index && x.held.Peer == peer && live(&x.held) {
			return true
		}
	}
	return false
}
