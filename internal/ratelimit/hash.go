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
// cryptographic hash: nobody outside sees its values.
func (h *hash) of(hi, lo uint64) uint64 {
	x, y := bits.Mul64(hi^h.seed[0], lo^h.seed[1])
	x, y = bits.Mul64(x^y^h.seed[2], 0x9e3779b97f4a7c15)
	return (x ^ y) >> h.shift
}

// words returns an address, IPv4 or IPv6, as two words.
func words(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
}

// networkOf returns the network of an address as two words: its /64, or the /24 of one of
// IPv4. Whoever is in a network can often take any address of it.
func networkOf(a netip.Addr) (hi, lo uint64) {
	if hi, lo = words(a); a.Is4() {
		return hi, lo &^ 0xff
	}
	return hi, 0
}
