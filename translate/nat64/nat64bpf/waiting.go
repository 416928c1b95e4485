// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"encoding/binary"
	"math/bits"

	"github.com/isthmus-net/isthmus/fastpath"
)

// Waiting counts SYNs of the IPv4 side that the engine has stored, by a hash of their
// source: a SYN of the IPv6 side to such a source is left to the engine. The engine alone may
// write it.
//
// Programs have a 1 for each hash that is there. The count itself is here, for as many SYNs as
// anybody may forge: a tally that is full never counts back.
type Waiting struct {
	seed   [2]uint64
	tally  fastpath.Tally
	counts map[uint64]uint32
}

// Waiting returns the table.
func (n *Path) Waiting() *Waiting {
	return &Waiting{seed: n.settings.WaitingSeed, tally: fastpath.TallyOver(n.Shared()), counts: make(map[uint64]uint32)}
}

// slot returns the counter of an address and port, as bpf/nat64_flow.h finds it.
func (w *Waiting) slot(peer [4]byte, port uint16) uint64 {
	h := (uint64(binary.NativeEndian.Uint32(peer[:])) | uint64(bits.ReverseBytes16(port))<<32) ^ w.seed[0]
	h *= 0x9e3779b97f4a7c15
	h = ((h ^ h>>32) + w.seed[1]) * 0xd6e8feb86659fd93
	return h >> 48
}

// Add counts a SYN from an address and port.
func (w *Waiting) Add(peer [4]byte, port uint16) {
	slot := w.slot(peer, port)
	if w.counts[slot]++; w.counts[slot] == 1 {
		w.tally.Add(slot)
	}
}

// Remove takes back one Add.
func (w *Waiting) Remove(peer [4]byte, port uint16) {
	slot := w.slot(peer, port)
	switch w.counts[slot] {
	case 0:
	case 1:
		delete(w.counts, slot)
		w.tally.Remove(slot)
	default:
		w.counts[slot]--
	}
}

// Clear forgets all of them.
func (w *Waiting) Clear() {
	clear(w.counts)
	w.tally.Clear()
}
