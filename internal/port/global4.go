// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import "net/netip"

// GlobalIPv4 returns one of the host's IPv4 addresses that others may see, be it a private
// one, on a link other than own and in no VRF; not valid when there is none. Of several it
// returns the lowest, so that the answer stays the same.
func (h *Host) GlobalIPv4(own string) (best netip.Addr, err error) {
	list, err := h.IPv4()
	if err != nil {
		return best, err
	}
	apart, err := h.inVRFs()
	for _, one := range list {
		a := one.Prefix.Addr()
		if one.Link != own && !apart[one.Link] && a.IsGlobalUnicast() && (!best.IsValid() || a.Less(best)) {
			best = a
		}
	}
	return best, err
}
