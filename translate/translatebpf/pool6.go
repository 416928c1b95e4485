// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package translatebpf holds what the programs of translators share: headers, and prefixes of
// pool6.
package translatebpf

import (
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/isthmus-net/isthmus/fastpath"
)

// Prefix is a prefix of pool6, of a NAT64 or of a stateless translator.
type Prefix struct {
	Prefix netip.Prefix
	// Strict leaves packets with IPv4 addresses that are not global to the engine, which
	// refuses them (RFC 6052 section 3.1).
	Strict bool
	// Leaving is a prefix that is no longer named: it serves the sessions that have it, and
	// begins none. A stateless translator has none, nor of the next.
	Leaving bool
	// Out keeps the number of a prefix that no session has any more: packets to it are not
	// ours.
	Out bool
}

// Limits of the layout, and flags of a prefix of pool6.
const (
	MaxPool6 = 16
	MaxPool4 = 16
	Strict   = 1
	Leaving  = 2
)

// CheckPool6 says what is wrong with prefixes of pool6.
func CheckPool6(list []Prefix) error {
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

// FillPool6 writes prefixes into those of settings as bpf2go has them.
func FillPool6[P any](settings *[MaxPool6]P, list []Prefix) {
	to := (*[MaxPool6]pool6Prefix)(unsafe.Pointer(settings))
	clear(to[:])
	for i, p := range list {
		to := &to[i]
		to.Address = fastpath.IPv6Words(p.Prefix.Masked().Addr().As16())
		to.Mask = fastpath.IPv6Mask(p.Prefix.Bits())
		if p.Out {
			to.Mask = [2]uint64{^uint64(0), ^uint64(0)} // no one has the address of 0.0.0.0
		}
		to.Length = uint32(p.Prefix.Bits())
		if p.Strict {
			to.Flags |= Strict
		}
		if p.Leaving {
			to.Flags |= Leaving
		}
	}
}
