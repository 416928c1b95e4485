// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"slices"
)

// Remote returns the peer's addresses, its port, and the port of UDP that it is reached at, 0 where packets travel in
// IP.
func (a *Association) Remote() (hosts []netip.Addr, port, udp uint16) {
	for _, p := range a.paths {
		if !slices.Contains(hosts, p.Remote) {
			hosts = append(hosts, p.Remote)
		}
	}
	if a.primary != nil {
		udp = a.primary.port
	}
	return hosts, a.peerPort, udp
}
