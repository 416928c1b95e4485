// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/translate"
)

// Name is what is asked for AAAA records (RFC 7050 section 3).
const Name = "ipv4only.arpa."

// wellKnown are the addresses of Name (RFC 7050 section 8), in the order of the search.
var wellKnown = [2]netip.Addr{
	netip.AddrFrom4([4]byte{192, 0, 0, 170}),
	netip.AddrFrom4([4]byte{192, 0, 0, 171}),
}

// maxPrefixes bounds what is learnt of one answer.
const maxPrefixes = 16

// Search returns the prefixes by which AAAA records of [Name] were made, each once, in
// the order of the records. Addresses that hold no well-known address at a place of RFC
// 6052 say nothing.
func Search(addresses []netip.Addr) []netip.Prefix {
	var found []netip.Prefix
	for _, a := range addresses {
		p, ok := prefixOf(a, addresses)
		if ok && !slices.Contains(found, p) && len(found) < maxPrefixes {
			found = append(found, p)
		}
	}
	return found
}

// prefixOf finds the prefix in one address. A well-known address must stand there only
// once, on an octet boundary; else the search is for the other one (RFC 7050 section 3).
// Where each stands once, one of them is part of the prefix: not the one with which the
// same prefix has made another of the addresses.
func prefixOf(a netip.Addr, all []netip.Addr) (best netip.Prefix, ok bool) {
	if !a.Is6() || a.Is4In6() || a.Zone() != "" {
		return best, false
	}
	for i, w := range wellKnown {
		made, holds := madeWith(a, w)
		if !holds {
			continue
		}
		if slices.Contains(all, made.Embed(wellKnown[1-i])) {
			return made.Prefix(), true
		}
		if !ok {
			best, ok = made.Prefix(), true
		}
	}
	return best, ok
}

// madeWith returns the prefix in an address, whatever its suffix, if w stands in it once.
func madeWith(a, w netip.Addr) (translate.Prefix, bool) {
	if occurrences(a, w) != 1 {
		return translate.Prefix{}, false
	}
	for _, bits := range prefixBits {
		made, err := translate.NewPrefix(netip.PrefixFrom(a, bits).Masked())
		if err != nil {
			continue
		}
		if v4, _ := made.Extract(a); v4 == w {
			return made, true
		}
	}
	return translate.Prefix{}, false
}

// occurrences counts how often the four octets stand in the address: in a row, or with
// the octet of bits 64 to 71 between them (RFC 6052 section 2.2).
func occurrences(a, w netip.Addr) int {
	raw, octets := a.As16(), w.As4()
	n := 0
	for at := range len(raw) - len(octets) + 1 {
		if [4]byte(raw[at:]) == octets {
			n++
		}
	}
	for at := 5; at <= 7; at++ { // the first octet stands before the eighth, the last behind it
		var parted []byte
		parted = append(append(parted, raw[at:8]...), raw[9:]...)
		if [4]byte(parted) == octets {
			n++
		}
	}
	return n
}
