// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"slices"
)

// prefixes are destinations, for look-ups both of what they are in and of what is in them.
type prefixes struct {
	set     map[netip.Prefix]uint32 // with the metric
	sorted  []netip.Prefix          // by address
	lengths [2][]int                // present, by family, longest first
}

// newPrefixes makes a list ready for look-ups.
func newPrefixes(list []netip.Prefix) *prefixes {
	p := &prefixes{set: make(map[netip.Prefix]uint32, len(list)), sorted: slices.Clone(list)}
	slices.SortFunc(p.sorted, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for _, one := range list {
		p.add(one, 0)
	}
	return p
}

// add adds a destination that need not be found inside another.
func (p *prefixes) add(one netip.Prefix, metric uint32) {
	p.set[one] = metric
	lengths := &p.lengths[one.Addr().BitLen()/128]
	if at, found := slices.BinarySearchFunc(*lengths, one.Bits(), func(a, b int) int { return b - a }); !found {
		*lengths = slices.Insert(*lengths, at, one.Bits())
	}
}

// around returns the longest destination that q is in, or that is q.
func (p *prefixes) around(q netip.Prefix) (netip.Prefix, bool) {
	for _, n := range p.lengths[q.Addr().BitLen()/128] {
		if n > q.Bits() {
			continue
		}
		wide := netip.PrefixFrom(q.Addr(), n).Masked()
		if _, found := p.set[wide]; found {
			return wide, true
		}
	}
	return netip.Prefix{}, false
}

// overlaps tells whether q is in a destination, or one in it.
func (p *prefixes) overlaps(q netip.Prefix) bool {
	if _, found := p.around(q); found {
		return true
	}
	at, _ := slices.BinarySearchFunc(p.sorted, q.Addr(), func(a netip.Prefix, b netip.Addr) int { return a.Addr().Compare(b) })
	return at < len(p.sorted) && q.Contains(p.sorted[at].Addr())
}

// covers tells whether all of q is in destinations, be they several.
func (p *prefixes) covers(q netip.Prefix) bool {
	if _, found := p.around(q); found {
		return true
	}
	if q.Bits() == q.Addr().BitLen() || !p.overlaps(q) {
		return false
	}
	low, high := halves(q)
	return p.covers(low) && p.covers(high)
}

// halves cuts a prefix in two.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	raw := p.Masked().Addr().AsSlice()
	raw[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	upper, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(p.Masked().Addr(), p.Bits()+1), netip.PrefixFrom(upper, p.Bits()+1)
}
