// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import "net/netip"

// Ends are the first and the last address of a prefix.
func Ends(p netip.Prefix) [2]netip.Addr {
	raw := p.Addr().AsSlice()
	for i := p.Bits(); i < len(raw)*8; i++ {
		raw[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return [2]netip.Addr{p.Masked().Addr(), last}
}
