// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nattest

import "net/netip"

// Reserve lets everybody in at a port, to the same port of a host inside, as a
// gateway does that is asked by UPnP (RFC 6081 section 3.2). The first mapping of
// that port outwards is the port itself; later ones are of the NAT's kind. It
// survives a restart.
func (n *NAT) Reserve(inside netip.AddrPort) {
	if n.reserved == nil {
		n.reserved = map[uint16]netip.AddrPort{}
	}
	n.reserved[inside.Port()] = inside
}

// keeps reports whether a mapping of a local port gets the same port outside
// because that is reserved.
func (n *NAT) keeps(local uint16) bool {
	_, ok := n.reserved[local]
	return ok && n.in[local] == nil
}
