// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package ratelimit holds token buckets for engines: the time is an argument,
// nothing is allocated per packet, and the memory is fixed at the start.
package ratelimit

import "time"

// Limit is a rate with a burst. The zero value is no limit.
type Limit struct {
	interval int64 // nanoseconds that one token takes to come back
	depth    int64 // nanoseconds that a whole empty bucket takes
}

// PerSecond returns the limit of rate tokens a second, of which burst may be
// taken at once. A rate of 0 or less is no limit; a burst below 1 counts as 1.
func PerSecond(rate, burst int) Limit {
	if rate <= 0 {
		return Limit{}
	}
	return Every(time.Second/time.Duration(rate), burst)
}

// Every returns the limit of a token each interval, of which burst may be taken at once. An
// interval of 0 counts as a nanosecond; a burst below 1 counts as 1.
func Every(each time.Duration, burst int) Limit {
	interval := max(int64(each), 1)
	// The depth stays within a century, so that sums with the time of day fit.
	const century = int64(100 * 365 * 24 * time.Hour)
	depth := century
	if n := int64(max(burst, 1)); n <= century/interval {
		depth = n * interval
	}
	return Limit{interval: interval, depth: depth}
}

// Part returns the limit of one n-th of the rate and of the burst, which is one token at
// least.
func (l Limit) Part(n int64) Limit {
	if l.Unlimited() {
		return l
	}
	return Every(time.Duration(l.interval*n), int(l.depth/l.interval/n))
}

// times returns the limit of n times the rate and the burst.
func (l Limit) times(n int64) Limit {
	if l.Unlimited() {
		return l
	}
	return Limit{interval: max(l.interval/n, 1), depth: l.depth}
}

// Unlimited reports whether the limit lets everything pass.
func (l Limit) Unlimited() bool { return l.interval == 0 }

// Bucket is one token bucket of 8 bytes. The zero value is full. The limit is
// given with each call, so that many buckets share one.
type Bucket struct {
	full int64 // when the bucket will be full again, in nanoseconds since 1970
}

// Allow takes one token, and reports whether there was one.
//
// A clock that is set back does not close a bucket: a time of filling that lies
// further ahead than an empty bucket needs can only come from such a change, and
// the bucket then counts as full.
func (b *Bucket) Allow(l Limit, now time.Time) bool {
	if l.Unlimited() {
		return true
	}
	t := now.UnixNano()
	full := b.full
	if full < t || full-t > l.depth {
		full = t
	}
	if full += l.interval; full-t > l.depth {
		return false
	}
	b.full = full
	return true
}

// drain takes one token, or what is left of one.
func (b *Bucket) drain(l Limit, now time.Time) {
	if !b.Allow(l, now) {
		b.full = now.UnixNano() + l.depth
	}
}

// holds reports whether Allow would find a token.
func (b *Bucket) holds(l Limit, now time.Time) bool {
	probe := *b
	return probe.Allow(l, now)
}

// AllowSpare is Allow for what can wait: it leaves the lower half of the bucket
// to others.
func (b *Bucket) AllowSpare(l Limit, now time.Time) bool {
	if taken := b.full - now.UnixNano(); taken > l.depth/2 && taken <= l.depth {
		return false
	}
	return b.Allow(l, now)
}
