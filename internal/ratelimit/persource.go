// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"io"
	"net/netip"
	"time"
)

// DefaultBuckets is a good size for PerSource: 32 KiB for each of two tables, so that a
// thousand busy sources leave another one a bucket of its own in 19 of 20 cases, a hundred
// in all but one of 1700, and a flood from forged sources, which touches all of them, stays
// in the cache.
const DefaultBuckets = 4096

// PerSource limits each source on its own with a fixed number of buckets, in two tables.
// A source has a bucket in each, chosen by hashes with secret seeds, and the fuller one
// counts: it is poorer only where others have emptied both, and no one is richer. An
// outsider cannot choose an address that shares the bucket of another. The zero value is no
// limit.
type PerSource struct {
	limit  Limit
	hashes [2]hash
	tables [2][]Bucket
}

// NewPerSource makes a limiter with n buckets of 8 bytes in each table, rounded up to a
// power of two, and takes its seeds from rand.
func NewPerSource(l Limit, n int, rand io.Reader) (*PerSource, error) {
	p := &PerSource{limit: l}
	for i := range p.tables {
		var err error
		if p.hashes[i], n, err = newHash(n, rand); err != nil {
			return nil, err
		}
		p.tables[i] = make([]Bucket, n)
	}
	return p, nil
}

// SetLimit changes the limit for all sources; buckets keep what they hold.
func (p *PerSource) SetLimit(l Limit) { p.limit = l }

// Allow takes one token of the address a, IPv4 or IPv6, and reports whether there was one.
func (p *PerSource) Allow(a netip.Addr, now time.Time) bool { return p.Take(a, Own, now) }

// Take is Allow for a source with a share of a limit that it has with others.
func (p *PerSource) Take(a netip.Addr, s Share, now time.Time) bool {
	if p.limit.Unlimited() || p.tables[0] == nil {
		return true
	}
	return p.of(keyOf(a)).take(p.limit, s, now)
}

// of returns the buckets of a source.
func (p *PerSource) of(k key) pair {
	return pair{&p.tables[0][p.hashes[0].of(k)], &p.tables[1][p.hashes[1].of(k)]}
}

// pair are the two buckets of a source.
type pair [2]*Bucket

// take takes a token of both if one of them has it; the other then gives what it has. Or
// who has drawn them apart would be served by each in turn, at twice the rate.
func (p pair) take(l Limit, s Share, now time.Time) bool {
	first, second := p[0].Take(l, s, now), p[1].Take(l, s, now)
	switch {
	case first && !second:
		p[1].drain(l, now)
	case second && !first:
		p[0].drain(l, now)
	}
	return first || second
}

// holds reports whether one of them has a token.
func (p pair) holds(l Limit, now time.Time) bool { return p[0].holds(l, now) || p[1].holds(l, now) }
