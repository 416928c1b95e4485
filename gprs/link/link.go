// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package link is the router's end of the IPv6 link that a PDP context is (RFC 6459
// section 5.2, RFC 7066): it advertises the prefix of the context, answers solicitations,
// echo requests and stateless DHCPv6 (RFC 8415), and bounds all of it. A packet in, an
// answer out: no socket, no clock.
//
// A link has two nodes and no link-layer addresses. The router has fe80::1 on each of
// them, and no address of the prefix; the terminal has the interface identifier that it
// was given for its link-local address, and whichever it likes under the prefix.
//
//house:part
package link

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// RouterID is the interface identifier of the router on every link.
const RouterID uint64 = 1

// linkLocal is the upper half of link-local addresses (RFC 4291 section 2.5.6).
const linkLocal uint64 = 0xfe80 << 48

// RouterAddress is the link-local address of the router on every link.
var RouterAddress = address(linkLocal, RouterID)

// Link is what tells one link from another: the prefix of the context, a /64, how many more
// follow it, further ones that lie anywhere, what it had before, and the interface identifier of the terminal's link-local
// address; name servers and MTU in place of the router's, none and 0: those; and who delegates prefixes to the
// terminal, nil: nobody does.
type Link struct {
	Prefix, ID  uint64
	More        int
	Further     []uint64
	Former      []Former
	DNS         []netip.Addr
	MTU         int
	Delegations Delegations
}

// Former are prefixes that a link had before, and that the terminal is to use for nothing new:
// the first, and how many follow it. They last for Valid.
type Former struct {
	Prefix uint64
	More   int
	Valid  time.Duration
}

func (f Former) has(high uint64) bool { return high-f.Prefix <= uint64(f.More) }

// State is what is remembered of a link. The zero value is that of a new one, or of one
// on which the router has something else to say from now on.
type State struct {
	answers ratelimit.Bucket
	last    int64 // when an advertisement went to all nodes, in nanoseconds since 1970; 0: never
	sent    uint8 // how many did at first
}

// lately reports whether an advertisement went to all nodes so lately that another may
// not follow yet.
func (s *State) lately(now time.Time) bool {
	since := now.UnixNano() - s.last
	return s.last != 0 && since >= 0 && since < int64(delayBetween)
}

// answerLimit bounds the answers on one link.
var answerLimit = ratelimit.PerSecond(20, 40)

// Has reports whether the terminal may send from an address: its link-local one, or one
// of the prefixes.
func (l Link) Has(a *[16]byte) bool {
	high := binary.BigEndian.Uint64(a[:])
	return high-l.Prefix <= uint64(l.More) || slices.Contains(l.Further, high) || slices.ContainsFunc(l.Former, func(f Former) bool { return f.has(high) }) ||
		high == linkLocal && binary.BigEndian.Uint64(a[8:]) == l.ID
}

// Address returns the terminal's link-local address.
func (l Link) Address() netip.Addr { return address(linkLocal, l.ID) }

func (l Link) prefix() netip.Prefix { return netip.PrefixFrom(address(l.Prefix, 0), 64) }

func address(high, low uint64) netip.Addr {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], high)
	binary.BigEndian.PutUint64(raw[8:], low)
	return netip.AddrFrom16(raw)
}

// ValidID reports whether a terminal may have an interface identifier: neither the
// router's, nor one that groups of nodes have (RFC 5453; RFC 4291 section 2.6.1). A
// random one hardly ever is.
func ValidID(id uint64) bool {
	const (
		ethernet = 0x02005efffe000000 // the first of a block of 2^24
		anycast  = 0xfdffffffffffff80 // the first of 128
	)
	return id != 0 && id != RouterID && id&^0xffffff != ethernet && id&^0x7f != anycast
}

// Room is how many octets of memory an answer to a packet needs at most.
func Room(p packet.IPv6) int { return max(packet.MinMTU, len(p)) }

// Answer takes a packet that the terminal sent to a link-local address or to a group, and
// appends the router's answer, if there is one.
func (r *Router) Answer(b []byte, l Link, s *State, p packet.IPv6, now time.Time) ([]byte, Verdict) {
	proto, m, v := l.check(p)
	if v != none {
		return b, v
	}
	answer, v := b, NotServed
	switch {
	case proto == packet.ProtoICMPv6:
		answer, v = r.icmpv6(b, l, s, p, m, now)
	case proto == packet.ProtoUDP:
		answer, v = r.dhcp(b, l, p, m)
	}
	if !v.Answered() {
		return b, v
	}
	if !s.answers.Allow(answerLimit, now) {
		return b, Limited
	}
	if v == Advertised && p.Src().IsUnspecified() {
		s.last = now.UnixNano()
	}
	return answer, v
}

// check finds the upper layer of a packet and checks what all of them need.
func (l Link) check(p packet.IPv6) (proto byte, m []byte, v Verdict) {
	if !l.Has(p.SrcBytes()) && !p.Src().IsUnspecified() {
		return 0, nil, ForeignSource
	}
	proto, at, ok := p.UpperLayer()
	if !ok {
		return 0, nil, Malformed
	}
	m = p[at:]
	switch {
	case proto == packet.ProtoFragment || fragmented(p[:at]):
		return 0, nil, Fragment // RFC 6980 section 5
	case proto != packet.ProtoICMPv6 && proto != packet.ProtoUDP:
		return 0, nil, NotServed
	case len(m) < 8:
		return 0, nil, Malformed
	case packet.Checksum(p.SrcBytes(), p.DstBytes(), proto, m) != 0:
		return 0, nil, BadChecksum
	}
	return proto, m, none
}

// fragmented reports whether a Fragment Header is among the headers, whose chain is whole.
func fragmented(headers packet.IPv6) bool {
	next := headers.NextHeader()
	for at := packet.IPv6HeaderLen; at < len(headers); {
		if next == packet.ProtoFragment {
			return true
		}
		next, at = headers[at], at+8+8*int(headers[at+1])
	}
	return false
}

// icmpv6 answers an ICMPv6 message whose checksum is right.
func (r *Router) icmpv6(b []byte, l Link, s *State, p packet.IPv6, m []byte, now time.Time) ([]byte, Verdict) {
	switch m[0] {
	case packet.ICMPv6RouterSolicitation:
		return r.solicited(b, l, s, p, m, now)
	case packet.ICMPv6NeighborSolicitation:
		return neighborSolicited(b, p, m)
	case packet.ICMPv6EchoRequest:
		if m[1] != 0 || p.Dst() != RouterAddress || p.Src().IsUnspecified() || len(p) > r.mtu {
			return b, NotServed
		}
		return packet.AppendICMPv6(b, RouterAddress, p.Src(), 64, packet.ICMPv6EchoReply, 0, m[4:]), EchoReplied
	case packet.ICMPv6RouterAdvert, packet.ICMPv6NeighborAdvert, packet.ICMPv6Redirect:
		return b, Unasked
	case listenerReport, listenerDone, listenerReport2:
		return b, ListenerReport
	}
	return b, NotServed
}

// Messages of Multicast Listener Discovery. A router of such a link forwards no groups, so
// that it need not know who listens (RFC 7066 section 2.5).
const (
	listenerReport  = 131 // RFC 2710 section 3
	listenerDone    = 132
	listenerReport2 = 143 // RFC 3810 section 5.2
)
