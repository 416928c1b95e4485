// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net/netip"
)

// Neighbor Discovery messages about addresses (RFC 4861 sections 4.3 and 4.4).
const (
	ICMPv6NeighborSolicitation = 135
	ICMPv6NeighborAdvert       = 136
)

// NDHopLimit is that of all messages of Neighbor Discovery: one that a router forwarded
// has less (RFC 4861 sections 6.1 and 7.1).
const NDHopLimit = 255

// Options of Neighbor Discovery (RFC 4861 section 4.6, RFC 8106 section 5).
const (
	NDSourceLinkLayer   = 1
	NDTargetLinkLayer   = 2
	NDPrefixInformation = 3
	NDMTU               = 5
	NDResolvers         = 25
	NDSearchList        = 31
)

// Flags of a Prefix Information option (RFC 4861 section 4.6.2).
const (
	PrefixOnLink     = 0x80
	PrefixAutonomous = 0x40
)

// Infinite is the lifetime of what does not end, in seconds (RFC 4861 section 4.6.2).
const Infinite = ^uint32(0)

// AllNodes and AllRouters are the groups of all nodes and of all routers of a link (RFC
// 4291 section 2.7.1).
var (
	AllNodes   = netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 1})
	AllRouters = netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 2})
)

// SolicitedNode is the group in which a node is asked for an address (RFC 4291 section
// 2.7.1).
func SolicitedNode(addr netip.Addr) netip.Addr {
	raw := addr.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: raw[13], 14: raw[14], 15: raw[15]}
	return netip.AddrFrom16(group)
}

// NDOptionsWellFormed reports whether a list of Neighbor Discovery options fills its space
// exactly, none of length zero (RFC 4861 section 4.6).
func NDOptionsWellFormed(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || len(b) < 8*int(b[1]) {
			return false
		}
		b = b[8*int(b[1]):]
	}
	return true
}

// AppendPrefixInformation appends the option that announces a prefix, with its lifetimes
// in seconds (RFC 4861 section 4.6.2).
func AppendPrefixInformation(b []byte, p netip.Prefix, flags byte, valid, preferred uint32) []byte {
	raw := p.Addr().As16()
	b = append(b, NDPrefixInformation, 4, byte(p.Bits()), flags)
	b = binary.BigEndian.AppendUint32(b, valid)
	b = binary.BigEndian.AppendUint32(b, preferred)
	return append(append(b, 0, 0, 0, 0), raw[:]...)
}

// AppendMTU appends the option that names the MTU of the link (RFC 4861 section 4.6.4).
func AppendMTU(b []byte, mtu uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, NDMTU, 1, 0, 0), mtu)
}
