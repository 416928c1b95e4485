// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
)

// findNoNodes lists the addresses that no node but this host has: its own, and those of its links
// that are no single host's, of broadcast and of all routers there (RFC 4291 section 2.6.1). Those
// of VRFs are no matter of SGSNs, which are outside.
func findNoNodes(h *port.Host) (list []netip.Addr, err error) {
	four, err := h.IPv4()
	six, err6 := h.IPv6()
	for _, one := range four {
		if h.Local(one.Prefix.Addr()) {
			list = append(list, one.Prefix.Addr())
			if one.Broadcast.IsValid() {
				list = append(list, one.Broadcast, one.Prefix.Masked().Addr())
			}
		}
	}
	for _, one := range six {
		if h.Local(one.Prefix.Addr()) {
			list = append(list, one.Prefix.Addr())
			if one.Prefix.Bits() < 127 {
				list = append(list, one.Prefix.Masked().Addr())
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list), errors.Join(err, err6)
}
