// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"slices"
)

// Prefixes are destinations, for look-ups both of what they are in and of what is in them.
type Prefixes struct {
	Set     map[netip.Prefix]uint32 // with the metric
	Sorted  []netip.Prefix          // by address
	lengths [2][]int                // present, by family, longest first
}

// NewPrefixes makes a list ready for look-ups.
func NewPrefixes(list []netip.Prefix) *Prefixes {
	p := &Prefixes{Set: make(map[netip.Prefix]uint32, len(list)), Sorted: slices.Clone(list)}
	slices.SortFunc(p.Sorted, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for _, one := range list {
		p.Add(one, 0)
	}
	return p
}

// Add adds a destination that need not be found inside another.
func (p *Prefixes) Add(one netip.Prefix, metric uint32) {
	p.Set[one] = metric
	lengths := &p.lengths[one.Addr().BitLen()/128]
	if at, found := slices.BinarySearchFunc(*lengths, one.Bits(), func(a, b int) int { return b - a }); !found {
		*lengths = slices.Insert(*lengths, at, one.Bits())
	}
}

// Around returns the longest destination that q is in, or that is q.
func (p *Prefixes) Around(q netip.Prefix) (netip.Prefix, bool) {
	for _, n := range p.lengths[q.Addr().BitLen()/128] {
		if n > q.Bits() {
			continue
		}
		wide := netip.PrefixFrom(q.Addr(), n).Masked()
		if _, found := p.Set[wide]; found {
			return wide, true
		}
	}
	return netip.Prefix{}, false
}

// Overlaps reports whether q is in a destination, or one in it.
func (p *Prefixes) Overlaps(q netip.Prefix) bool {
	if _, found := p.Around(q); found {
		return true
	}
	at, _ := slices.BinarySearchFunc(p.Sorted, q.Addr(), func(a netip.Prefix, b netip.Addr) int { return a.Addr().Compare(b) })
	return at < len(p.Sorted) && q.Contains(p.Sorted[at].Addr())
}

// Covers reports whether all of q is in destinations, be they several.
func (p *Prefixes) Covers(q netip.Prefix) bool {
	if _, found := p.Around(q); found {
		return true
	}
	if q.Bits() == q.Addr().BitLen() || !p.Overlaps(q) {
		return false
	}
	low, high := Halves(q)
	return p.Covers(low) && p.Covers(high)
}

// Halves cuts a prefix in two.
func Halves(p netip.Prefix) (low, high netip.Prefix) {
	raw := p.Masked().Addr().AsSlice()
	raw[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	upper, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(p.Masked().Addr(), p.Bits()+1), netip.PrefixFrom(upper, p.Bits()+1)
}
