// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
)

// Clean removes the state that NAT64s without a fast path have left in this network namespace
// for a successor, in the usual folder and in files of their own, and the answers for
// addresses of pools that no device of a translator leads anywhere. It says in words what was
// removed, and what a living process or another namespace uses.
func Clean(own ...string) (removed, inUse []string, err error) {
	namespace, _ := fastpath.NamespaceCookie() // 0 where the kernel does not say
	removed, inUse, err = kept.Clean("sessions", config.RoleNAT64, namespace, own...)
	proxies, proxyErr := cleanProxies()
	return append(removed, proxies...), inUse, errors.Join(err, proxyErr)
}

func cleanProxies() ([]string, error) {
	host, err := port.OpenHost()
	if err != nil {
		return nil, err
	}
	defer host.Abandon()
	return host.RemoveLeftProxies()
}
