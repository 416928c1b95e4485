// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"fmt"
	"net/netip"
	"slices"
	"unsafe"
)

// NAT64Prefix is a prefix of pool6, of a NAT64 or of a stateless translator.
type NAT64Prefix struct {
	Prefix netip.Prefix
	// Strict leaves packets with IPv4 addresses that are not global to the engine, which
	// refuses them (RFC 6052 section 3.1).
	Strict bool
	// Out keeps the number of a prefix that is no longer in use for the sessions that
	// have it: packets to it are not ours. A stateless translator has none.
	Out bool
}

// maxPool6 is the limit of the layout, pool6Strict a flag of it.
const (
	maxPool6    = 16
	pool6Strict = 1
)

// checkPool6 says what is wrong with prefixes of pool6.
func checkPool6(list []NAT64Prefix) error {
	for _, p := range list {
		if !p.Prefix.IsValid() || !p.Prefix.Addr().Is6() || !slices.Contains([]int{32, 40, 48, 56, 64, 96}, p.Prefix.Bits()) {
			return fmt.Errorf("%s cannot be a prefix of pool6: it must be IPv6 of 32, 40, 48, 56, 64 or 96 bits", p.Prefix)
		}
	}
	return nil
}

// pool6Prefix is struct pool6_prefix of bpf/translate_settings.h.
type pool6Prefix struct {
	Address, Mask [2]uint64
	Length, Flags uint32
}

// pool6Of lays prefixes over those of settings as bpf2go has them.
func pool6Of[P any](list *[maxPool6]P) *[maxPool6]pool6Prefix {
	return (*[maxPool6]pool6Prefix)(unsafe.Pointer(list))
}

// fillPool6 writes prefixes.
func fillPool6(to *[maxPool6]pool6Prefix, list []NAT64Prefix) {
	clear(to[:])
	for i, p := range list {
		to := &to[i]
		to.Address = IPv6Words(p.Prefix.Masked().Addr().As16())
		to.Mask = IPv6Mask(p.Prefix.Bits())
		if p.Out {
			to.Mask = [2]uint64{^uint64(0), ^uint64(0)} // nobody has the address of 0.0.0.0
		}
		to.Length = uint32(p.Prefix.Bits())
		if p.Strict {
			to.Flags = pool6Strict
		}
	}
}
