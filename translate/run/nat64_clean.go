// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/role"
)

// cleanNAT64 removes the state that NAT64s without a fast path have left in this network
// namespace for a successor, in the usual folder and in files of their own.
func cleanNAT64(configured []*NAT64Settings) (role.Cleaned, error) {
	var own []string
	for _, s := range configured {
		if s.StateFile != "" {
			own = append(own, s.StateFile)
		}
	}
	namespace, _ := fastpath.NamespaceCookie() // 0 where the kernel does not say
	removed, inUse, err := kept.Clean("sessions", RoleNAT64, namespace, own...)
	proxies, proxyErr := cleanProxies()
	return role.Cleaned{Removed: append(removed, proxies.Removed...), InUse: inUse}, errors.Join(err, proxyErr)
}
