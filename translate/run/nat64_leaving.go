// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// leavingAgain is how often prefixes and addresses that are no longer named are asked
// after.
const leavingAgain = 10 * time.Second

// routes are the destinations that lead to the device under a configuration, with those
// that are leaving; n.mu is held.
func (n *NAT64) routes(cfg *config.NAT64, leaving []netip.Prefix) []netip.Prefix {
	list := nat64Routes(cfg, n.hosts)
	for _, p := range leaving {
		if !n.isHost(p) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// isHost tells whether a prefix is one address of this host; n.mu is held.
func (n *NAT64) isHost(p netip.Prefix) bool {
	return p.Bits() == 32 && slices.Contains(n.hosts, p.Addr())
}

// ownOf are the ranges that a pool had of addresses of this host that are leaving; n.mu is
// held.
func (n *NAT64) ownOf(pool []config.PoolRange, leaving []netip.Prefix) []nat64.Range {
	return slices.DeleteFunc(poolRanges(pool, n.hosts), func(r nat64.Range) bool {
		return !r.Own || !slices.Contains(leaving, r.Prefix)
	})
}

// past are the ranges of the pools so far of which something is leaving; n.mu is held.
func (n *NAT64) past(leaving []netip.Prefix) (pool []config.PoolRange) {
	for _, r := range slices.Concat(n.gone, n.cfg.Pool4) {
		if slices.Contains(leaving, r.Prefix) && !slices.Contains(pool, r) {
			pool = append(pool, r)
		}
	}
	return pool
}

// leave finds what the next configuration no longer names and sessions still have: it
// leads to the translator until they end. n.mu is held.
func (n *NAT64) leave(next *config.NAT64) []netip.Prefix {
	named := next.Routes()
	list := slices.DeleteFunc(slices.Concat(n.cfg.Routes(), n.leaving), func(p netip.Prefix) bool {
		return slices.ContainsFunc(named, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Overlaps(p) })
	})
	slices.SortFunc(list, netip.Prefix.Compare)
	return n.inUse(slices.Compact(list))
}

// inUse are the prefixes that sessions have an address in.
func (n *NAT64) inUse(prefixes []netip.Prefix) (used []netip.Prefix) {
	for at, left := uint32(0), slices.Clone(prefixes); len(left) > 0; {
		running := n.do(func(e *nat64.Engine, now time.Time, _ *nat64.Out) {
			at = e.Sessions(nat64.Selection{}, at, listStep, now, func(s nat64.SessionInfo) bool {
				left = slices.DeleteFunc(left, func(p netip.Prefix) bool {
					found := p.Contains(s.Peer6) || p.Contains(s.Outside.Addr())
					if found {
						used = append(used, p)
					}
					return found
				})
				return true
			})
		})
		if !running || at == 0 {
			break
		}
	}
	return used
}

// letGo gives up what was leaving and has no session any more.
func (n *NAT64) letGo() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	still := n.inUse(n.leaving)
	if len(still) == len(n.leaving) {
		return nil
	}
	settings, err := nat64Settings(&n.cfg, n.own, n.hosts)
	if err != nil {
		return err
	}
	commit, err := n.device.lead(n.routes(&n.cfg, still))
	if err != nil {
		return err
	}
	n.leaving = still
	n.fast.leave(n.ownOf(n.gone, still))
	if err := n.reconfigure(settings, &n.cfg); err != nil {
		return err
	}
	return commit()
}
