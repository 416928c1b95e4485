// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"math/bits"
)

// peers remembers which IPv4 hosts have sessions with which address of the pool, as a Bloom
// filter that each round of the sweep fills again. Fragments behind the first tell no more of
// whom they are for; those of such hosts are kept apart from what anybody can forge. A
// session counts from its first packet here or the next round on, for two rounds at most
// after its end.
type peers struct {
	seed      uint64
	now, last []uint64
}

// newPeers has 16 bits or more for each session up to a million: a full table lets one
// stranger in 30 pass for a peer, who then is counted by his address.
func newPeers(sessions int, seed uint64) peers {
	words := 1 << bits.Len(uint(min(sessions, 1<<20)/4))
	return peers{seed: seed, now: make([]uint64, words), last: make([]uint64, words)}
}

// place returns the word that a host has two bits in.
func (p *peers) place(pool, peer [4]byte) (word int, mask uint64) {
	var both [16]byte
	copy(both[:], pool[:])
	copy(both[8:], peer[:])
	h := mix(p.seed, both)
	return int(h >> 12 & uint64(len(p.now)-1)), 1<<(h&63) | 1<<(h>>6&63)
}

func (p *peers) add(pool, peer [4]byte) {
	word, mask := p.place(pool, peer)
	p.now[word] |= mask
}

func (p *peers) has(pool, peer [4]byte) bool {
	word, mask := p.place(pool, peer)
	return p.now[word]&mask == mask || p.last[word]&mask == mask
}

// round begins a new round.
func (p *peers) round() {
	p.now, p.last = p.last, p.now
	clear(p.now)
}

// mix is a hash of an address for tables that forget.
func mix(seed uint64, a [16]byte) uint64 {
	h, l := bits.Mul64(binary.BigEndian.Uint64(a[:])^seed, binary.BigEndian.Uint64(a[8:])^0x9e3779b97f4a7c15)
	h, l = bits.Mul64(h^l^seed, 0x9e3779b97f4a7c15)
	return h ^ l
}
