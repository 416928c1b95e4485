// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"io"
	"net/netip"
	"time"
)

const (
	// hostShare is the part of its network's limit that each host is sure of.
	hostShare = 8
	// siteShare is how many limits of a network each site is sure of.
	siteShare = 2
)

// Share says from what part of a limit a source may take.
type Share uint8

// The shares, from nothing to all.
const (
	NoShare Share = iota // it may take nothing
	Spare                // only what leaves half to others
	Own                  // anything: the source is within its own share
)

// Take takes one token for a source with a share, and reports whether it could.
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
//
// A site, an IPv6 /48 or an IPv4 /16, is sure of as much as two networks. What its networks
// take beyond that is spare, so that who has many of them does not spend what all sources
// have in common.
type Fair struct {
	sites, networks, hosts PerSource
	site, network, host    scale
}

// NewFair makes a limiter of three [PerSource] with n buckets in each of their tables, and
// takes its seeds from rand.
func NewFair(l Limit, n int, rand io.Reader) (*Fair, error) {
	f := &Fair{}
	f.SetClientLength(networkScale.six)
	for _, p := range []*PerSource{&f.sites, &f.networks, &f.hosts} {
		made, err := NewPerSource(l, n, rand)
		if err != nil {
			return nil, err
		}
		*p = *made
	}
	f.SetLimit(l)
	return f, nil
}

// SetLimit changes the limit of all networks; buckets keep what they hold.
func (f *Fair) SetLimit(l Limit) {
	f.sites.limit, f.networks.limit, f.hosts.limit = l.times(siteShare), l, l.Part(hostShare)
}

// SetClientLength says that an IPv6 prefix of so many bits is one client: a network, or if
// it is longer than a /64 a host.
func (f *Fair) SetClientLength(bits int) {
	f.site, f.network, f.host = siteScale, networkScale, hostScale
	f.site.six, f.network.six = min(siteScale.six, bits), min(networkScale.six, bits)
	if bits > networkScale.six {
		f.host.six = bits
	}
}

// Allow takes one token for the host a, and reports whether there was one.
func (f *Fair) Allow(a netip.Addr, now time.Time) bool { return f.Take(a, now) != NoShare }

// Take is Allow that also tells the share by which the token was taken: where sources
// have a further limit in common, a host should take from that by the same share.
func (f *Fair) Take(a netip.Addr, now time.Time) Share {
	if f.networks.limit.Unlimited() {
		return Own
	}
	host := f.hosts.of(f.host.of(a))
	share := Spare
	if host.holds(f.hosts.limit, now) {
		share = Own
	}
	if !f.networks.of(f.network.of(a)).take(f.networks.limit, share, now) {
		return NoShare
	}
	host.take(f.hosts.limit, Own, now)
	if !f.sites.of(f.site.of(a)).take(f.sites.limit, share, now) {
		return Spare
	}
	return share
}
