// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import "net/netip"

// Neighbor Discovery messages about addresses (RFC 4861 sections 4.3 and 4.4).
const (
	ICMPv6NeighborSolicitation = 135
	ICMPv6NeighborAdvert       = 136
)

// AllNodes is the group of all nodes of a link (RFC 4291 section 2.7.1).
var AllNodes = netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 1})

// SolicitedNode is the group in which a node is asked for an address (RFC 4291 section
// 2.7.1).
func SolicitedNode(addr netip.Addr) netip.Addr {
	raw := addr.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: raw[13], 14: raw[14], 15: raw[15]}
	return netip.AddrFrom16(group)
}
