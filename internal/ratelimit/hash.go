// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
)

// hash chooses the place of a source in a table with a secret seed.
type hash struct {
	seed  [3]uint64
	shift uint8 // 64 less the number of index bits
}

// newHash makes the hash of a table with n places, which it rounds up to a power of two.
func newHash(n int, rand io.Reader) (h hash, places int, err error) {
	var seed [24]byte
	if _, err := io.ReadFull(rand, seed[:]); err != nil {
		return h, 0, fmt.Errorf("no random seed for the rate limit: %w", err)
	}
	exponent := bits.Len(uint(max(n, 2) - 1))
	h.shift = uint8(64 - exponent)
	for i := range h.seed {
		h.seed[i] = binary.LittleEndian.Uint64(seed[8*i:])
	}
	return h, 1 << exponent, nil
}

// of mixes both halves with the seed by two folded 128-bit products. It need not be a
// cryptographic hash: no one outside sees its values.
func (h *hash) of(k key) uint64 {
	x, y := bits.Mul64(k[0]^h.seed[0], k[1]^h.seed[1])
	x, y = bits.Mul64(x^y^h.seed[2], 0x9e3779b97f4a7c15)
	return (x ^ y) >> h.shift
}

// key is what distinguishes sources: an address, IPv4 or IPv6, or the first bits of one.
type key [2]uint64

func keyOf(a netip.Addr) key {
	b := a.As16()
	return key{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}
}

// scale is how many bits of its address make a source.
type scale struct{ six, four int }

// Whoever is in a network can often take any address of it, and who has a site all
// networks of that.
var (
	hostScale    = scale{128, 32}
	networkScale = scale{64, 24}
	siteScale    = scale{48, 16}
)

func (s scale) of(a netip.Addr) key {
	k := keyOf(a)
	switch {
	case a.Is4():
		k[1] &^= 1<<(32-s.four) - 1
	case s.six > 64:
		k[1] &^= 1<<(128-s.six) - 1
	default:
		k[0], k[1] = k[0]&^(1<<(64-s.six)-1), 0
	}
	return k
}
