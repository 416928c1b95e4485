// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// SetClosed names the IPv4 addresses that clients may not send to: those of this host
// itself. What pool4 has of them is bound as ever.
func (e *Engine) SetClosed(prefixes []netip.Prefix) { e.closed = newClosed(prefixes) }

// closed is a set of IPv4 addresses: ranges in order, apart from each other.
type closed []span4

type span4 struct{ first, last uint32 }

// newClosed makes it of prefixes without bits behind their lengths.
func newClosed(prefixes []netip.Prefix) (out closed) {
	sorted := slices.SortedFunc(slices.Values(prefixes), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range sorted {
		first := number4(p.Addr())
		last := first | uint32(1<<(32-p.Bits())-1)
		if n := len(out); n == 0 || out[n-1].last < first {
			out = append(out, span4{first, last})
		}
	}
	return out
}

func number4(a netip.Addr) uint32 {
	raw := a.As4()
	return binary.BigEndian.Uint32(raw[:])
}

// has reports whether the address is in the set.
func (c closed) has(a netip.Addr) bool {
	n := number4(a)
	i, found := slices.BinarySearchFunc(c, n, func(r span4, n uint32) int { return cmp.Compare(r.first, n) })
	return found || i > 0 && n <= c[i-1].last
}
