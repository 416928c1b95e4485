// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"io"
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
	hash    hash
	buckets []Bucket
}

// NewPerSource makes a limiter with n buckets of 8 bytes, rounded up to a power
// of two, and takes its seed from rand.
func NewPerSource(l Limit, n int, rand io.Reader) (*PerSource, error) {
	h, n, err := newHash(n, rand)
	return &PerSource{limit: l, hash: h, buckets: make([]Bucket, n)}, err
}

// SetLimit changes the limit for all sources; buckets keep what they hold.
func (p *PerSource) SetLimit(l Limit) { p.limit = l }

// Allow takes one token of the bucket of the address a, IPv4 or IPv6, and tells
// whether there was one.
func (p *PerSource) Allow(a netip.Addr, now time.Time) bool { return p.Take(a, Own, now) }

// Take is Allow for a source with a share of a limit that it has with others.
func (p *PerSource) Take(a netip.Addr, s Share, now time.Time) bool {
	if p.limit.Unlimited() || len(p.buckets) == 0 {
		return true
	}
	return p.buckets[p.hash.of(words(a))].Take(p.limit, s, now)
}
