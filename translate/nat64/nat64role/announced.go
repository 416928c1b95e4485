// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"context"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/role"
)

var _ role.Announced = (*NAT64)(nil)

// AnnouncedPrefixes implements [role.Announced].
func (n *NAT64) AnnouncedPrefixes() []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.cfg.Announce {
		return nil
	}
	return append(n.cfg.routes(), n.leaving.routes...)
}

// CheckSelf implements [role.Announced].
func (n *NAT64) CheckSelf(ctx context.Context) error {
	n.mu.Lock()
	prefixes := n.cfg.Pool6
	n.mu.Unlock()
	return n.device.CheckSelf(ctx, prefixes)
}
