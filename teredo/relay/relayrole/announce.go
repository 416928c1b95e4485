// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"context"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
)

var _ role.Announced = (*Relay)(nil)

// AnnouncedPrefixes implements [role.Announced].
func (r *Relay) AnnouncedPrefixes() []netip.Prefix {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.cfg.Announce {
		return nil
	}
	return slices.Clone(r.cfg.Prefixes)
}

// CheckSelf implements [role.Announced]. A packet for the Teredo prefix goes from
// this host's own stack through the device and the engine's loops, out of the UDP
// socket, into it again, and back by the device. Without routes of its own the
// relay does not know what leads to its device; then a datagram goes round alone.
func (r *Relay) CheckSelf(ctx context.Context) error {
	r.mu.Lock()
	path := tunnel.SelfPath{Name: "relay"}
	if len(r.conns) > 0 {
		path.Service = r.conns[0].LocalAddr()
	}
	if r.cfg.Route {
		path.Probe = tunnel.ProbeAddress(r.cfg.Prefixes[0])
	}
	kept := r.device.State()
	name := r.cfg.Interface
	r.mu.Unlock()
	if err := kept.Problem(name); err != nil {
		return err
	}
	return r.self.Check(ctx, path)
}
