// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"context"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/role"
)

var _ role.Announced = (*SIIT)(nil)

// AnnouncedPrefixes implements [role.Announced].
func (s *SIIT) AnnouncedPrefixes() []netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cfg.Announce {
		return nil
	}
	return append([]netip.Prefix{}, s.cfg.announced()...) // with a file of mappings alone none yet, which is not nil
}

// CheckSelf implements [role.Announced].
func (s *SIIT) CheckSelf(ctx context.Context) error {
	s.mu.Lock()
	prefixes := s.cfg.Pool6
	s.mu.Unlock()
	return s.device.CheckSelf(ctx, prefixes)
}
