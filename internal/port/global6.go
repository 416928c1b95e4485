// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// GlobalIPv6 returns one of the host's global IPv6 addresses, on a link other
// than own and outside the Teredo prefixes; not valid when there is none. Of
// several it returns the lowest, so that the answer stays the same.
func (h *Host) GlobalIPv6(own string, teredo ...netip.Prefix) (netip.Addr, error) {
	addrs, names, err := h.addrs(unix.AF_INET6)
	if err != nil {
		return netip.Addr{}, err
	}
	var best netip.Addr
	for _, a := range addrs {
		p, ok := prefix(a.IPNet)
		if !ok || names[a.LinkIndex] == own || !usable(a, teredo) {
			continue
		}
		if !best.IsValid() || p.Addr().Less(best) {
			best = p.Addr()
		}
	}
	return best, nil
}
