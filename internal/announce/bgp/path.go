// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// path is the announcement of one prefix; s.mu is held.
func (s *Speaker) path(p netip.Prefix) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(p)
	if err != nil {
		return nil, err
	}
	family, hop := bgp.RF_IPv6_UC, s.cfg.NextHop6
	if p.Addr().Is4() {
		family, hop = bgp.RF_IPv4_UC, s.cfg.NextHop4
	}
	if !hop.IsValid() {
		hop = unspecified(p.Addr()) // the library puts in the session's address
	}
	attrs := []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP),
		bgp.NewPathAttributeMultiExitDisc(uint32(s.cfg.MED)),
		bgp.NewPathAttributeLocalPref(uint32(s.cfg.LocalPref)),
	}
	if len(s.cfg.Communities) > 0 {
		marks := make([]uint32, len(s.cfg.Communities))
		for i, c := range s.cfg.Communities {
			marks[i] = uint32(c)
		}
		attrs = append(attrs, bgp.NewPathAttributeCommunities(marks))
	}
	if family == bgp.RF_IPv4_UC && hop.Is4() {
		attr, err := bgp.NewPathAttributeNextHop(hop)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, attr)
	} else {
		attr, err := bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, hop)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, attr)
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attrs}, nil
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
