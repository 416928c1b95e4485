// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// ndHopLimit is required of Neighbor Discovery messages, to show that no router
// forwarded them (RFC 4861 sections 6.1.1 and 6.1.2).
const ndHopLimit = 255

// Options of Neighbor Discovery (RFC 4861 section 4.6).
const (
	optPrefixInfo = 3
	optMTU        = 5

	prefixInfoLen = 32
	mtuOptLen     = 8
	raFixedLen    = 16
)

// AppendRouterSolicitation appends the 48-byte solicitation of the qualification
// procedure (RFC 4380 section 5.2.1), without options, from the client's
// link-local address to all routers.
func AppendRouterSolicitation(b []byte, src netip.Addr) []byte {
	var reserved [4]byte
	return packet.AppendICMPv6(b, src, AllRouters, ndHopLimit, packet.ICMPv6RouterSolicitation, 0, reserved[:])
}

// CheckRouterSolicitation returns nil when p is a valid router solicitation by
// RFC 4861 section 6.1.1. Source and destination are the caller's to check.
func CheckRouterSolicitation(p packet.IPv6) error {
	if p.NextHeader() != packet.ProtoICMPv6 || len(p.Payload()) < 8 ||
		p.Payload()[0] != packet.ICMPv6RouterSolicitation || p.Payload()[1] != 0 || p.HopLimit() != ndHopLimit {
		return FaultNotSolicitation
	}
	m, ok := p.ICMPv6()
	if !ok {
		return FaultChecksum
	}
	if !optionsWellFormed(m[8:]) {
		return FaultNotSolicitation
	}
	return nil
}

// RouterAdvertisement is what a client needs of an advertisement (RFC 4861
// section 4.2; RFC 4380 section 5.3.2).
type RouterAdvertisement struct {
	Src, Dst netip.Addr   // link-local addresses of server and client
	Prefix   netip.Prefix // service prefix and server IPv4, /64
	MTU      uint32       // 0 when the option is absent
}

// AppendTo appends the advertisement with one Prefix Information option
// (autonomous, infinite lifetimes) and, if MTU is not 0, the MTU option.
// Router lifetime 0: a Teredo server is no one's default router. Retrans timer
// 2000 ms, the repeat time of RFC 4380 section 5.2.4.
func (ra *RouterAdvertisement) AppendTo(b []byte) []byte {
	var m [raFixedLen - 4 + prefixInfoLen + mtuOptLen]byte
	binary.BigEndian.PutUint32(m[8:], 2000)
	pio := m[raFixedLen-4:]
	pio[0], pio[1], pio[2], pio[3] = optPrefixInfo, prefixInfoLen/8, byte(ra.Prefix.Bits()), 0x40
	binary.BigEndian.PutUint64(pio[4:], ^uint64(0))
	prefix := ra.Prefix.Addr().As16()
	copy(pio[16:], prefix[:])
	body := m[:raFixedLen-4+prefixInfoLen]
	if ra.MTU != 0 {
		opt := m[len(body):]
		opt[0], opt[1] = optMTU, mtuOptLen/8
		binary.BigEndian.PutUint32(opt[4:], ra.MTU)
		body = m[:]
	}
	return packet.AppendICMPv6(b, ra.Src, ra.Dst, ndHopLimit, packet.ICMPv6RouterAdvert, 0, body)
}

// ParseRouterAdvertisement reads an advertisement and applies the checks of
// RFC 4861 section 6.1.2 and those of RFC 4380 section 5.2.1 that need no state:
// exactly one Prefix Information option, of 64 bits, and a sane MTU.
func ParseRouterAdvertisement(p packet.IPv6) (ra RouterAdvertisement, err error) {
	m := p.Payload()
	if p.NextHeader() != packet.ProtoICMPv6 || len(m) < raFixedLen ||
		m[0] != packet.ICMPv6RouterAdvert || m[1] != 0 || p.HopLimit() != ndHopLimit || !p.Src().IsLinkLocalUnicast() {
		return ra, FaultNotAdvert
	}
	if _, ok := p.ICMPv6(); !ok {
		return ra, FaultChecksum
	}
	options := m[raFixedLen:]
	if !optionsWellFormed(options) {
		return ra, FaultNotAdvert
	}
	ra.Src, ra.Dst = p.Src(), p.Dst()
	prefixes := 0
	for ; len(options) > 0; options = options[8*int(options[1]):] {
		switch {
		case options[0] == optPrefixInfo:
			if options[1] != prefixInfoLen/8 || options[2] != 64 {
				return ra, FaultPrefixOptions
			}
			prefixes++
			ra.Prefix = netip.PrefixFrom(netip.AddrFrom16([16]byte(options[16:32])), 64).Masked()
		case options[0] == optMTU && options[1] == mtuOptLen/8:
			ra.MTU = binary.BigEndian.Uint32(options[4:])
			if ra.MTU < packet.MinMTU || ra.MTU > 0xffff {
				return ra, FaultMTU
			}
		}
	}
	if prefixes != 1 {
		return ra, FaultPrefixOptions
	}
	return ra, nil
}

// optionsWellFormed reports whether a list of Neighbor Discovery options fills its
// space exactly, none of length zero (RFC 4861 section 4.6).
func optionsWellFormed(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || len(b) < 8*int(b[1]) {
			return false
		}
		b = b[8*int(b[1]):]
	}
	return true
}
