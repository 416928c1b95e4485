// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Times of advertisements to all nodes of a link (RFC 4861 sections 6.2.4 and 10).
const (
	initialCount    = 3
	initialInterval = 3 * time.Second
	delayBetween    = 3 * time.Second
)

// Advertise appends an advertisement to all nodes of a link, and returns when the next is
// due: three follow each other at first, since the first may come before the terminal
// listens, and then one in time before the word of the last ends. random spreads them
// over that time. Nothing is appended where one has just been sent.
func (r *Router) Advertise(b []byte, l Link, s *State, random uint64, now time.Time) (advertisement []byte, next time.Time) {
	if s.lately(now) {
		return b, time.Unix(0, s.last).Add(delayBetween)
	}
	s.last = now.UnixNano()
	s.sent = min(s.sent+1, initialCount)
	wait := initialInterval
	if s.sent == initialCount {
		least := r.interval / 4 * 3 // the longest that MinRtrAdvInterval may be
		wait = max(least+time.Duration(random%uint64(r.interval-least+1)), delayBetween)
	}
	return r.advertise(b, l, packet.AllNodes), now.Add(wait)
}

// solicited answers a Router Solicitation that is right (RFC 4861 section 6.1.1): one
// from an address at once, and to that alone.
func (r *Router) solicited(b []byte, l Link, s *State, p packet.IPv6, m []byte, now time.Time) ([]byte, Verdict) {
	to := p.Src()
	if v := checkND(p, m, 8, to.IsUnspecified()); v != none {
		return b, v
	}
	if to.IsUnspecified() {
		to = packet.AllNodes
		if s.lately(now) {
			return b, AdvertisedLately
		}
	}
	return r.advertise(b, l, to), Advertised
}

// AdvertiseFurther appends an advertisement of one of the further prefixes of a link, those that follow the first
// before the others, counted from 1, to whom the one before it went: each has one of its own, so that a terminal that takes the first prefix
// alone of any finds it (RFC 6459 section 5.2).
func (r *Router) AdvertiseFurther(b []byte, l Link, n int, to netip.Addr) []byte {
	if n > l.More {
		l.Prefix = l.Further[n-l.More-1]
	} else {
		l.Prefix += uint64(n)
	}
	return r.advertise(b, l, to)
}

// AdvertiseFormer appends an advertisement of one of some prefixes that a link had before, counted from 0, to
// whom the one before it went: it is deprecated at once, and ends when they do (RFC 4192 section 2.6.2). One that is no
// more advertised would go on to be used by who has heard of it (RFC 9096 section 3.5).
func (r *Router) AdvertiseFormer(b []byte, l Link, f Former, n int, to netip.Addr) []byte {
	start := len(b)
	valid := uint32(min(f.Valid/time.Second, time.Duration(packet.Infinite-1)))
	l.Prefix = f.Prefix + uint64(n)
	b = r.advertise(b, l, to)
	p := packet.IPv6(b[start:])
	binary.BigEndian.PutUint32(p[advertisedPrefix-12:], valid)
	binary.BigEndian.PutUint32(p[advertisedPrefix-8:], 0) // preferred
	packet.FillICMPv6Checksum(p)
	return b
}

// advertise appends an advertisement of the prefix of a link.
func (r *Router) advertise(b []byte, l Link, to netip.Addr) []byte {
	start := len(b)
	if len(l.DNS) == 0 {
		b = append(b, r.advertisement...)
	} else {
		b = AppendResolvers(append(b, r.bare...), r.own(l), uint32(lifetimes*r.interval/time.Second))
		binary.BigEndian.PutUint16(b[start+4:], uint16(len(b)-start-packet.IPv6HeaderLen))
	}
	p := packet.IPv6(b[start:])
	if l.MTU != 0 {
		binary.BigEndian.PutUint32(p[advertisedMTU:], uint32(l.MTU))
	}
	*p.DstBytes() = to.As16()
	binary.BigEndian.PutUint64(p[advertisedPrefix:], l.Prefix)
	packet.FillICMPv6Checksum(p)
	return b
}

// own are the name servers of a link that packets have room for.
func (r *Router) own(l Link) []netip.Addr { return l.DNS[:min(len(l.DNS), r.room)] }

// checkND checks what all solicitations have in common (RFC 4861 sections 6.1.1 and
// 7.1.1), of which the options begin at an offset.
func checkND(p packet.IPv6, m []byte, options int, unspecified bool) Verdict {
	switch {
	case p.HopLimit() != packet.NDHopLimit:
		return BadHopLimit
	case m[1] != 0 || len(m) < options || !packet.NDOptionsWellFormed(m[options:]):
		return Malformed
	}
	for rest := m[options:]; unspecified && len(rest) > 0; rest = rest[8*int(rest[1]):] {
		if rest[0] == packet.NDSourceLinkLayer {
			return Malformed // of nobody
		}
	}
	return none
}
