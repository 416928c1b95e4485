// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"encoding/binary"
	"math/bits"

	"github.com/isthmus-net/isthmus/fastpath"
)

// Waiting counts SYNs of the IPv4 side that the engine has stored, by a hash of their
// source, saturating: a SYN of the IPv6 side to such a source is left to the engine. The
// engine alone may write it.
type Waiting struct {
	seed  [2]uint64
	tally fastpath.Tally
}

// Waiting returns the table.
func (n *Path) Waiting() *Waiting {
	return &Waiting{seed: n.settings.WaitingSeed, tally: fastpath.TallyOver(n.Shared())}
}

// slot returns the counter of an address and port, as bpf/nat64_flow.h finds it.
func (w *Waiting) slot(peer [4]byte, port uint16) uint64 {
	h := (uint64(binary.NativeEndian.Uint32(peer[:])) | uint64(bits.ReverseBytes16(port))<<32) ^ w.seed[0]
	h *= 0x9e3779b97f4a7c15
	h = ((h ^ h>>32) + w.seed[1]) * 0xd6e8feb86659fd93
	return h >> 48
}

// Add counts a SYN from an address and port.
func (w *Waiting) Add(peer [4]byte, port uint16) { w.tally.Add(w.slot(peer, port)) }

// Remove takes back one Add.
func (w *Waiting) Remove(peer [4]byte, port uint16) { w.tally.Remove(w.slot(peer, port)) }

// Clear forgets all of them.
func (w *Waiting) Clear() { w.tally.Clear() }
