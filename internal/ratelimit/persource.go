// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"time"
)

// DefaultBuckets is a good size for PerSource: 32 KiB, so that a thousand busy
// sources seldom share a bucket and a flood from forged sources, which touches
// all of them, stays in the cache.
const DefaultBuckets = 4096

// PerSource limits each source on its own with a fixed number of buckets. A
// source's bucket is chosen by a hash with a secret seed: two sources may share
// one, which makes both poorer and nobody richer, and an outsider cannot choose
// an address that shares the bucket of another. The zero value is no limit.
type PerSource struct {
	limit   Limit
	seed    [3]uint64
	shift   uint8 // 64 less the number of index bits
	buckets []Bucket
}

// NewPerSource makes a limiter with n buckets of 8 bytes, rounded up to a power
// of two, and takes its seed from rand.
func NewPerSource(l Limit, n int, rand io.Reader) (*PerSource, error) {
	var seed [24]byte
	if _, err := io.ReadFull(rand, seed[:]); err != nil {
		return nil, fmt.Errorf("no random seed for the rate limit: %w", err)
	}
	exponent := bits.Len(uint(max(n, 2) - 1))
	p := &PerSource{limit: l, shift: uint8(64 - exponent), buckets: make([]Bucket, 1<<exponent)}
	for i := range p.seed {
		p.seed[i] = binary.LittleEndian.Uint64(seed[8*i:])
	}
	return p, nil
}

// SetLimit changes the limit for all sources; buckets keep what they hold.
func (p *PerSource) SetLimit(l Limit) { p.limit = l }

// Allow takes one token of the bucket of the address a, IPv4 or IPv6, and tells
// whether there was one.
func (p *PerSource) Allow(a netip.Addr, now time.Time) bool {
	b := a.As16()
	return p.allow(binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:]), now)
}

// AllowNet is Allow for the /64 that holds the IPv6 address a: a host can take
// any address in its /64 and so must not count as many sources.
func (p *PerSource) AllowNet(a netip.Addr, now time.Time) bool {
	b := a.As16()
	return p.allow(binary.BigEndian.Uint64(b[:]), 0, now)
}

func (p *PerSource) allow(hi, lo uint64, now time.Time) bool {
	if p.limit.Unlimited() || len(p.buckets) == 0 {
		return true
	}
	return p.buckets[p.hash(hi, lo)>>p.shift].Allow(p.limit, now)
}

// hash mixes both halves with the seed by two folded 128-bit products. It need
// not be a cryptographic hash: nobody outside sees its values.
func (p *PerSource) hash(hi, lo uint64) uint64 {
	h, l := bits.Mul64(hi^p.seed[0], lo^p.seed[1])
	h, l = bits.Mul64(h^l^p.seed[2], 0x9e3779b97f4a7c15)
	return h ^ l
}
