// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"errors"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/gateway"
)

// clean removes the state that NAT64s without a fast path have left in this network
// namespace for a successor, in the usual folder and in files of their own.
func clean(configured []*Settings) (role.Cleaned, error) {
	var own []string
	for _, s := range configured {
		if s.StateFile != "" {
			own = append(own, s.StateFile)
		}
	}
	namespace, _ := pinned.NamespaceCookie() // 0 where the kernel does not say
	removed, inUse, err := kept.Clean("sessions", name, namespace, own...)
	proxies, proxyErr := gateway.CleanProxies()
	return role.Cleaned{Removed: append(removed, proxies.Removed...), InUse: inUse}, errors.Join(err, proxyErr)
}
