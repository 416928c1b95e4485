// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// Range are the addresses from First to Last, which are of one family.
type Range struct{ First, Last netip.Addr }

// PrefixRange returns the addresses of a prefix that hosts may have: of an IPv4 one, not
// those of the network and of broadcast (RFC 1122 section 3.2.1.3), unless it is a /31 or
// a /32 (RFC 3021).
func PrefixRange(p netip.Prefix) Range {
	first := p.Masked().Addr()
	if first.Is4() {
		raw := first.As4()
		last := binary.BigEndian.Uint32(raw[:]) | uint32(1<<(32-p.Bits())-1)
		binary.BigEndian.PutUint32(raw[:], last)
		r := Range{first, netip.AddrFrom4(raw)}
		if p.Bits() < 31 {
			r = Range{r.First.Next(), r.Last.Prev()}
		}
		return r
	}
	raw := first.As16()
	for i := p.Bits(); i < 128; i++ {
		raw[i/8] |= 0x80 >> (i % 8)
	}
	return Range{first, netip.AddrFrom16(raw)}
}

// ParseRange reads a prefix, or the first and the last address with a hyphen between.
func ParseRange(s string) (Range, error) {
	first, last, both := strings.Cut(s, "-")
	if !both {
		p, err := netip.ParsePrefix(s)
		if err != nil || p != p.Masked() {
			return Range{}, fmt.Errorf("%q is no prefix, such as 10.45.0.0/20, and no range, such as 10.45.0.10-10.45.0.99", s)
		}
		return PrefixRange(p), nil
	}
	r := Range{}
	var errs [2]error
	r.First, errs[0] = netip.ParseAddr(strings.TrimSpace(first))
	r.Last, errs[1] = netip.ParseAddr(strings.TrimSpace(last))
	if errs[0] != nil || errs[1] != nil || !r.ordered() {
		return Range{}, fmt.Errorf("%q is no range: write two addresses of one family, the first not above the last", s)
	}
	return r, nil
}

func (r Range) ordered() bool {
	return r.First.IsValid() && r.First.BitLen() == r.Last.BitLen() && r.First.Zone() == "" && r.Last.Zone() == "" && !r.Last.Less(r.First)
}

// String writes what [ParseRange] reads.
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }
