// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/sip/registrar"
)

// bound are the addresses of listeners, each once, but for those that stand for all.
func bound(list []registrar.Listener) (addresses []netip.Addr) {
	for _, l := range list {
		if a := l.Address.Addr(); !a.IsUnspecified() && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	return addresses
}
