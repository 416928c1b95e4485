// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// Server and flags of a Teredo address are free, so whoever has one IPv4 address and port
// can have any number of peers there. A client needs one, and for a while another for each
// change of its server.
const (
	// mappingLimit bounds the peers at one mapping.
	mappingLimit = 200
	// crowdedMappingLimit is the same while a quarter of the table is taken: so high that
	// practically no one is refused for others who share his counters, and so low that all
	// ports of one IPv4 address leave a quarter of a million places.
	crowdedMappingLimit = 8
)

// mappingCounters returns the two counters of a mapping. Others may share one; the lower
// one is taken for the number of its peers, which is never too low.
func (h *Hot) mappingCounters(mapped netip.AddrPort) (a, b *uint8) {
	ip := mapped.Addr().As4()
	first, second := hash(&h.seed, 0, binary.BigEndian.Uint32(ip[:]), uint32(mapped.Port()), 0)
	mask := uint32(len(h.counters) - 1)
	return &h.counters[first&mask], &h.counters[second&mask]
}

// join counts one more peer at a mapping. It returns false, and does nothing, when there are
// as many as there may be.
func (h *Hot) join(mapped netip.AddrPort, limit uint8) bool {
	a, b := h.mappingCounters(mapped)
	if min(*a, *b) >= limit || max(*a, *b) > math.MaxUint8-2 { // both may be one
		return false
	}
	*a++
	*b++
	return true
}

// leave takes back what join has counted.
func (h *Hot) leave(mapped netip.AddrPort) {
	a, b := h.mappingCounters(mapped)
	*a--
	*b--
}

// limitAt returns how many peers a mapping may have now; foreign is one that is not in the
// address of the newcomer.
func (h *Hot) limitAt(foreign bool) uint8 {
	if h.len >= h.limit/4 || foreign && len(h.foreign) >= h.foreignLimit/4 {
		return crowdedMappingLimit
	}
	return mappingLimit
}
