// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/translate"
)

// ipv4Range is a checked [Range].
type ipv4Range struct {
	ipv4        netip.Prefix
	prefix      translate.Prefix
	synthesises bool
}

func newRange(r Range) (ipv4Range, error) {
	if !r.IPv4.IsValid() || !r.IPv4.Addr().Is4() || r.IPv4 != r.IPv4.Masked() {
		return ipv4Range{}, fmt.Errorf("%s is no IPv4 range; write one as 192.0.2.0/24", r.IPv4)
	}
	made := ipv4Range{ipv4: r.IPv4}
	if !r.Prefix.IsValid() {
		return made, nil
	}
	var err error
	made.prefix, err = translate.NewPrefix(r.Prefix)
	made.synthesises = true
	return made, err
}

// appendAddresses appends the IPv6 forms of an IPv4 address: one by each prefix, or the one
// by its range. The well-known prefix stands for no address that is not global (RFC
// 6052 section 3.1), and no prefix for what no packet is forwarded to.
func (p *Policy) appendAddresses(to []netip.Addr, a netip.Addr) []netip.Addr {
	if r := p.rangeOf(a); r != nil {
		if r.synthesises {
			return appendForm(to, &r.prefix, a)
		}
		return to
	}
	for i := range p.prefixes {
		to = appendForm(to, &p.prefixes[i], a)
	}
	return to
}

func appendForm(to []netip.Addr, prefix *translate.Prefix, a netip.Addr) []netip.Addr {
	if !prefix.Represents(a) {
		return to
	}
	return append(to, prefix.Embed(a))
}

// rangeOf returns the longest range that holds the address; nil if there is none.
func (p *Policy) rangeOf(a netip.Addr) *ipv4Range {
	var best *ipv4Range
	for i := range p.ranges {
		r := &p.ranges[i]
		if r.ipv4.Contains(a) && (best == nil || r.ipv4.Bits() > best.ipv4.Bits()) {
			best = r
		}
	}
	return best
}

// embedded returns the IPv4 address in an IPv6 address with one of the prefixes, of
// which the longest counts.
func (p *Policy) embedded(a netip.Addr) (v4 netip.Addr, ok bool) {
	bits := -1
	for i := range p.reverse {
		prefix := &p.reverse[i]
		if found, in := prefix.Extract(a); in && prefix.Prefix().Bits() > bits {
			v4, ok, bits = found, true, prefix.Prefix().Bits()
		}
	}
	return v4, ok
}
