// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"io"
	"net/netip"
	"time"
)

// hostShare is the part of its network's limit that each host is sure of.
const hostShare = 8

// Share says from what part of a limit a source may take.
type Share uint8

// The shares, from nothing to all.
const (
	NoShare Share = iota // it may take nothing
	Spare                // only what leaves half to others
	Own                  // anything: the source is within its own share
)

// Take takes one token for a source with a share, and tells whether it could.
func (b *Bucket) Take(l Limit, s Share, now time.Time) bool {
	switch s {
	case Own:
		return b.Allow(l, now)
	case Spare:
		return b.AllowSpare(l, now)
	}
	return false
}

// Fair limits each network, an IPv6 /64 or an IPv4 /24, and shares its limit among the
// hosts in it. A host is sure of a small part of the limit. It may take more, as much as
// there is, but leaves half of the bucket to hosts that are within their part: so one
// host alone has the whole rate, and keeps no other from being served. What a host has
// taken counts only when its network had it to give: hosts that are forged in one network
// take nothing from those of another.
type Fair struct {
	networks, hosts PerSource
}

// NewFair makes a limiter of two [PerSource] with n buckets in each of their tables, and
// takes its seeds from rand.
func NewFair(l Limit, n int, rand io.Reader) (*Fair, error) {
	networks, err := NewPerSource(l, n, rand)
	if err != nil {
		return nil, err
	}
	hosts, err := NewPerSource(Limit{}, n, rand)
	if err != nil {
		return nil, err
	}
	f := &Fair{networks: *networks, hosts: *hosts}
	f.SetLimit(l)
	return f, nil
}

// SetLimit changes the limit of all networks; buckets keep what they hold.
func (f *Fair) SetLimit(l Limit) {
	f.networks.limit, f.hosts.limit = l, l.part(hostShare)
}

// Allow takes one token for the host a, and tells whether there was one.
func (f *Fair) Allow(a netip.Addr, now time.Time) bool { return f.Take(a, now) != NoShare }

// Take is Allow that also tells the share by which the token was taken: where sources
// have a further limit in common, a host should take from that by the same share.
func (f *Fair) Take(a netip.Addr, now time.Time) Share {
	if f.networks.limit.Unlimited() {
		return Own
	}
	host := f.hosts.of(words(a))
	share := Spare
	if host.holds(f.hosts.limit, now) {
		share = Own
	}
	if !f.networks.of(networkOf(a)).take(f.networks.limit, share, now) {
		return NoShare
	}
	host.take(f.hosts.limit, Own, now)
	return share
}
