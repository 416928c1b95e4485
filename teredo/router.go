// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Lengths of options of Neighbor Discovery (RFC 4861 section 4.6), and of an advertisement
// without any.
const (
	prefixInfoLen = 32
	mtuOptLen     = 8
	raFixedLen    = 16
)

// AppendRouterSolicitation appends the 48-byte solicitation of the qualification
// procedure (RFC 4380 section 5.2.1), without options, from the client's
// link-local address to all routers.
func AppendRouterSolicitation(b []byte, src netip.Addr) []byte {
	var reserved [4]byte
	return packet.AppendICMPv6(b, src, AllRouters, packet.NDHopLimit, packet.ICMPv6RouterSolicitation, 0, reserved[:])
}

// CheckRouterSolicitation returns nil when p is a valid router solicitation by
// RFC 4861 section 6.1.1. Source and destination are the caller's to check.
func CheckRouterSolicitation(p packet.IPv6) error {
	if p.NextHeader() != packet.ProtoICMPv6 || len(p.Payload()) < 8 ||
		p.Payload()[0] != packet.ICMPv6RouterSolicitation || p.Payload()[1] != 0 || p.HopLimit() != packet.NDHopLimit {
		return FaultNotSolicitation
	}
	m, ok := p.ICMPv6()
	if !ok {
		return FaultChecksum
	}
	if !packet.NDOptionsWellFormed(m[8:]) {
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
	m := [raFixedLen - 4 + prefixInfoLen + mtuOptLen]byte{}
	binary.BigEndian.PutUint32(m[8:], 2000)
	body := packet.AppendPrefixInformation(m[:raFixedLen-4], ra.Prefix, packet.PrefixAutonomous, packet.Infinite, packet.Infinite)
	if ra.MTU != 0 {
		body = packet.AppendMTU(body, ra.MTU)
	}
	return packet.AppendICMPv6(b, ra.Src, ra.Dst, packet.NDHopLimit, packet.ICMPv6RouterAdvert, 0, body)
}

// ParseRouterAdvertisement reads an advertisement and applies the checks of
// RFC 4861 section 6.1.2 and those of RFC 4380 section 5.2.1 that need no state:
// exactly one Prefix Information option, of 64 bits, and a sane MTU.
func ParseRouterAdvertisement(p packet.IPv6) (ra RouterAdvertisement, err error) {
	m := p.Payload()
	if p.NextHeader() != packet.ProtoICMPv6 || len(m) < raFixedLen ||
		m[0] != packet.ICMPv6RouterAdvert || m[1] != 0 || p.HopLimit() != packet.NDHopLimit || !p.Src().IsLinkLocalUnicast() {
		return ra, FaultNotAdvert
	}
	if _, ok := p.ICMPv6(); !ok {
		return ra, FaultChecksum
	}
	options := m[raFixedLen:]
	if !packet.NDOptionsWellFormed(options) {
		return ra, FaultNotAdvert
	}
	ra.Src, ra.Dst = p.Src(), p.Dst()
	prefixes := 0
	for ; len(options) > 0; options = options[8*int(options[1]):] {
		switch {
		case options[0] == packet.NDPrefixInformation:
			if options[1] != prefixInfoLen/8 || options[2] != 64 {
				return ra, FaultPrefixOptions
			}
			prefixes++
			ra.Prefix = netip.PrefixFrom(netip.AddrFrom16([16]byte(options[16:32])), 64).Masked()
		case options[0] == packet.NDMTU && options[1] == mtuOptLen/8:
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
