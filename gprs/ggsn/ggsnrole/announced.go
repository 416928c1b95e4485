// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/host"
)

// AnnouncedPrefixes implements [role.Announced].
func (g *GGSN) AnnouncedPrefixes() []netip.Prefix {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.cfg.Announce {
		return nil
	}
	return announced(append(g.cfg.allPools(), g.leaving...))
}

// CheckSelf implements [role.Announced]. A packet for a pool goes from this host's own stack
// through the device of its network and a loop, and back. Without routes of its own the node
// does not know what leads to its devices; then their state is all that can be told.
func (g *GGSN) CheckSelf(ctx context.Context) error {
	g.mu.Lock()
	running, routed, pools := g.host != nil, g.cfg.Route, g.cfg.allPools()
	var problem error
	if missing := g.addresses.Missing(); len(missing) > 0 {
		problem = fmt.Errorf("this host has lost the address %s", missing[0])
	}
	for i, n := range g.networks {
		if g.vrfs[i] != "" {
			continue // nothing of it is announced
		}
		kept := n.device.State()
		problem = errors.Join(problem, kept.Problem(n.device.Name()))
	}
	g.mu.Unlock()
	if !running {
		return errors.New("the node is not running")
	}
	if problem != nil || !routed {
		return problem
	}
	checked := map[string]bool{}
	for _, p := range pools {
		if checked[p.device] || p.vrf != "" {
			continue
		}
		checked[p.device] = true
		if err := g.round(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// round sends a packet to an address of a pool, and waits until it is back.
func (g *GGSN) round(ctx context.Context, p pool) error {
	to := netip.AddrPortFrom(p.prefix.Addr().Next(), host.DiscardPort)
	if p.prefix.IsSingleIP() {
		to = netip.AddrPortFrom(p.prefix.Addr(), host.DiscardPort)
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return fmt.Errorf("the node cannot check itself, for there is no way to its device %s: %w", p.device, err)
	}
	defer conn.Close()
	if !g.self.Run(ctx, struct{}{}, conn, func(nonce []byte) { _, _ = conn.Write(nonce) }) {
		return fmt.Errorf("a packet that the node sent itself through its device %s did not come back", p.device)
	}
	return nil
}
