// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net/netip"
)

// AppendExcluded appends the option of what is left out of a prefix, of 64 bits at most: the bits by which it
// is longer, from the left. Where nothing is left out, it appends nothing.
func AppendExcluded(b []byte, prefix, excluded netip.Prefix) []byte {
	if !excluded.IsValid() {
		return b
	}
	raw := excluded.Addr().As16()
	rest := binary.BigEndian.Uint64(raw[:]) << prefix.Bits()
	n := (excluded.Bits()-prefix.Bits()-1)/8 + 1
	b = append(appendOption(b, OptionExclude, 1+n), byte(excluded.Bits()))
	return append(b, binary.BigEndian.AppendUint64(nil, rest)[:n]...)
}

// ParseExcluded reads the value of that option of a prefix. ok is false if it cannot be one: what is left out
// is longer than the prefix and of 64 bits at most, and has as many octets as that needs.
func ParseExcluded(prefix netip.Prefix, value []byte) (excluded netip.Prefix, ok bool) {
	if len(value) < 2 || int(value[0]) <= prefix.Bits() || value[0] > 64 || len(value) != 1+(int(value[0])-prefix.Bits()-1)/8+1 {
		return excluded, false
	}
	var rest [8]byte
	copy(rest[:], value[1:])
	raw := prefix.Masked().Addr().As16()
	binary.BigEndian.PutUint64(raw[:], binary.BigEndian.Uint64(raw[:])|binary.BigEndian.Uint64(rest[:])>>prefix.Bits())
	return netip.PrefixFrom(netip.AddrFrom16(raw), int(value[0])).Masked(), true
}
