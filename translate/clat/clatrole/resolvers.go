// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/translate/pref64/discovery"
)

// hostResolvers are the name servers of the host that a link leads to.
func hostResolvers() []netip.AddrPort {
	list, err := discovery.SystemResolvers()
	if err != nil {
		return nil // routers may name some
	}
	return beyond(list)
}

// beyond leaves those out that cannot be asked by way of a link with IPv6 alone, as one on the
// host itself.
func beyond(list []netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.AddrPort) bool { return !a.Addr().Is6() || a.Addr().IsLoopback() })
}
