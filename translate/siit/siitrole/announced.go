// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"context"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
)

var _ role.Announced = (*SIIT)(nil)

// maxAnnounced bounds the routes of mappings: what a file makes of a million of them no router is
// to be burdened with.
const maxAnnounced = 4096

// AnnouncedPrefixes implements [role.Announced].
func (s *SIIT) AnnouncedPrefixes() []netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cfg.Announce {
		return nil
	}
	if s.announced == nil { // once for each change, since there may be many mappings
		s.announced = s.toAnnounce()
	}
	return s.announced
}

// toAnnounce lists what leads to the translator by the mappings in effect; it is not nil. What
// router sends packets for a mapping that is gone would get them back, until their TTL ends.
// s.mu is held.
func (s *SIIT) toAnnounce() []netip.Prefix {
	list := append(append([]netip.Prefix{}, s.cfg.Pool6...), s.cfg.Pool4...)
	mapped := aggregate(s.mappings(&s.cfg, s.file))
	if len(mapped) > maxAnnounced {
		s.log.Warn("the mappings of eam_file are not announced: they would be too many routes", "routes", len(mapped), "most", maxAnnounced)
		mapped = aggregate(s.mappings(&s.cfg, nil))
	}
	for _, p := range mapped {
		if !slices.Contains(s.cfg.Pool4, p) {
			list = append(list, p)
		}
	}
	return list
}

// aggregate returns the fewest prefixes that cover the IPv4 addresses of mappings and no others.
func aggregate(mappings []translate.Mapping) (list []netip.Prefix) {
	sorted := make([]netip.Prefix, len(mappings))
	for i, m := range mappings {
		sorted[i] = m.IPv4
	}
	slices.SortFunc(sorted, netip.Prefix.Compare) // wide ones before those in them
	for _, p := range sorted {
		if n := len(list); n > 0 && list[n-1].Overlaps(p) {
			continue
		}
		list = append(list, p)
		for n := len(list); n > 1 && list[n-2].Bits() == p.Bits(); n-- {
			wide := netip.PrefixFrom(list[n-2].Addr(), p.Bits()-1).Masked()
			if !wide.Contains(p.Addr()) {
				break
			}
			p = wide
			list = append(list[:n-2], p)
		}
	}
	return list
}

// CheckSelf implements [role.Announced].
func (s *SIIT) CheckSelf(ctx context.Context) error {
	s.mu.Lock()
	prefixes := s.cfg.Pool6
	s.mu.Unlock()
	return s.device.CheckSelf(ctx, prefixes)
}
