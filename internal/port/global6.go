// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// GlobalIPv6 returns one of the host's global IPv6 addresses, on a link other
// than own, in no VRF and outside the Teredo prefixes; not valid when there is none. Of
// several it returns the lowest, so that the answer stays the same, and a deprecated one
// only where there is no other (RFC 4862 section 5.5.4).
func (h *Host) GlobalIPv6(own string, teredo ...netip.Prefix) (netip.Addr, error) {
	addrs, names, err := h.addrs(unix.AF_INET6)
	if err != nil {
		return netip.Addr{}, err
	}
	apart, err := h.inVRFs()
	if err != nil {
		return netip.Addr{}, err
	}
	var best, last netip.Addr
	for _, a := range addrs {
		p, ok := prefix(a.IPNet)
		if !ok || names[a.LinkIndex] == own || apart[names[a.LinkIndex]] || !usable(a, teredo) {
			continue
		}
		to := &best
		if deprecated(a) {
			to = &last
		}
		if !to.IsValid() || p.Addr().Less(*to) {
			*to = p.Addr()
		}
	}
	if !best.IsValid() {
		return last, nil
	}
	return best, nil
}
