// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Flags of a Neighbor Advertisement (RFC 4861 section 4.4).
const (
	flagRouter    = 0x80
	flagSolicited = 0x40
)

// neighborSolicited answers a solicitation for the router's address (RFC 4861 sections
// 7.1.1 and 7.2.4), without the option that a terminal would look for on an Ethernet:
// there is no link-layer address (RFC 6459 section 5.4). Nobody else has the addresses
// of a terminal, which may look for duplicates in vain.
func neighborSolicited(b []byte, p packet.IPv6, m []byte) ([]byte, Verdict) {
	const withoutOptions = 24
	to, flags := p.Src(), byte(flagRouter|flagSolicited)
	if v := checkND(p, m, withoutOptions, to.IsUnspecified()); v != none {
		return b, v
	}
	target := netip.AddrFrom16([16]byte(m[8:withoutOptions]))
	if target.IsMulticast() {
		return b, Malformed
	}
	if to.IsUnspecified() {
		if p.Dst() != packet.SolicitedNode(target) {
			return b, Malformed
		}
		to, flags = packet.AllNodes, flagRouter // the address is defended (RFC 4862 section 5.4.3)
	}
	if target != RouterAddress {
		return b, OtherNeighbor
	}
	body := [20]byte{0: flags}
	raw := target.As16()
	copy(body[4:], raw[:])
	return packet.AppendICMPv6(b, RouterAddress, to, packet.NDHopLimit, packet.ICMPv6NeighborAdvert, 0, body[:]), NeighborAdvertised
}
