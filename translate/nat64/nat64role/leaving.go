// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// leavingAgain is how often what is no longer named is asked after.
const leavingAgain = 10 * time.Second

// maxOwnLeaving bounds the ranges of ports that leave: the programs know no more, and the
// note has no room for any number.
const maxOwnLeaving = 16

// leaving is what the configuration no longer names and sessions still have.
type leaving struct {
	routes []netip.Prefix // prefixes of pool6 and pool4 that lead to the device
	own    []nat64.Range  // ports of this host's own addresses
}

// empty reports whether nothing is leaving.
func (l *leaving) empty() bool { return len(l.routes)+len(l.own) == 0 }

// routes are the destinations that lead to the device under a configuration, with those
// that are leaving; n.mu is held.
func (n *NAT64) routes(cfg *Settings, leaving []netip.Prefix) []netip.Prefix {
	list := destinations(cfg, n.hosts)
	for _, p := range leaving {
		if !n.isHost(p) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// isHost reports whether a prefix is one address of this host; n.mu is held.
func (n *NAT64) isHost(p netip.Prefix) bool {
	return p.Bits() == 32 && slices.Contains(n.hosts, p.Addr())
}

// ownRanges are the ports of a pool at addresses of this host.
func ownRanges(pool []PoolRange, hosts []netip.Addr) []nat64.Range {
	return slices.DeleteFunc(poolRanges(pool, hosts), func(r nat64.Range) bool { return !r.Own })
}

// leave finds what the next configuration no longer names and sessions still have: it
// leads to the translator until they end. The sessions of what others have then are to end.
// n.mu is held.
func (n *NAT64) leave(next *Settings) (leaving, taken) {
	return n.still(next, leaving{
		slices.Concat(n.cfg.routes(), n.leaving.routes),
		slices.Concat(ownRanges(n.cfg.Pool4, n.hosts), n.leaving.own),
	})
}

// still is what goes on leaving under a configuration, and what does not since others have
// it; n.mu is held.
func (n *NAT64) still(cfg *Settings, l leaving) (leaving, taken) {
	if !n.fast.Loaded() {
		l.own = nil // nothing can lead packets for them here
	}
	l = l.apart(cfg, n.hosts)
	t := takenBy(cfg, n.hosts, n.device.Apart, n.portsApart, &l)
	return n.inUse(l, &t), t
}

// apart leaves out what a configuration names, and ports of addresses that are not the
// host's any more.
func (l leaving) apart(cfg *Settings, hosts []netip.Addr) leaving {
	named, own := gateway.NewPrefixes(cfg.routes()), ownRanges(cfg.Pool4, hosts)
	l.routes = slices.DeleteFunc(slices.Clone(l.routes), func(p netip.Prefix) bool { // whoever asks goes on with his own
		_, found := named.Around(p)
		return found
	})
	slices.SortFunc(l.routes, netip.Prefix.Compare)
	l.routes = slices.Compact(l.routes)
	var ranges []nat64.Range
	for _, r := range l.own {
		if slices.Contains(hosts, r.Prefix.Addr()) && !slices.ContainsFunc(slices.Concat(own, ranges), func(o nat64.Range) bool { return o.Covers(r) }) {
			ranges = append(ranges, r)
		}
	}
	l.own = ranges[:min(len(ranges), maxOwnLeaving)]
	return l
}

// inUse is what of it sessions have that are not to end; of ports, those beside the ranges
// that are named.
func (n *NAT64) inUse(l leaving, t *taken) (used leaving) {
	n.walk(func(e *nat64.Engine, at uint32, now time.Time) uint32 {
		if l.empty() {
			return 0
		}
		return e.Sessions(nat64.Selection{}, at, listStep, now, func(s nat64.SessionInfo) bool {
			if !t.has(&s) {
				used.routes = append(used.routes, split(&l.routes, func(p netip.Prefix) bool {
					return p.Contains(s.Peer6) || p.Contains(s.Outside.Addr())
				})...)
				if !hasPort(t.named, &s) {
					used.own = append(used.own, split(&l.own, func(r nat64.Range) bool { return r.Has(s.Transport, s.Outside) })...)
				}
			}
			return true
		})
	})
	slices.SortFunc(used.routes, netip.Prefix.Compare)
	return used
}

// split takes what f chooses out of a list.
func split[T any](list *[]T, f func(T) bool) (taken []T) {
	*list = slices.DeleteFunc(*list, func(one T) bool {
		found := f(one)
		if found {
			taken = append(taken, one)
		}
		return found
	})
	return taken
}

// hasPort reports whether the outer end of a session is in ranges.
func hasPort(ranges []nat64.Range, s *nat64.SessionInfo) bool {
	return slices.ContainsFunc(ranges, func(r nat64.Range) bool { return r.Has(s.Transport, s.Outside) })
}

// taken is what others have now, so that sessions which need it end.
type taken struct {
	routes, others *gateway.Prefixes // named by the configuration, and of other instances
	hosts          []netip.Addr      // of this host
	named, own     []nat64.Range     // ports at these that the configuration names, and that leave
	pool6          []netip.Prefix
}

// takenBy finds what others have by a configuration and on this host. Ports that the kernel
// gives to the host's own connections, and those of other instances' sockets, are no longer
// among what is leaving.
func takenBy(cfg *Settings, hosts []netip.Addr, apart func([]netip.Prefix) error, portsApart func([]nat64.Range) error, l *leaving) taken {
	l.own = slices.DeleteFunc(l.own, func(r nat64.Range) bool {
		bound := slices.ContainsFunc(cfg.Beside.Sockets, func(at netip.AddrPort) bool {
			if at.Addr().IsUnspecified() {
				at = netip.AddrPortFrom(r.Prefix.Addr(), at.Port())
			}
			return r.Has(state.UDP, at) || r.Has(state.TCP, at)
		})
		return bound || portsApart([]nat64.Range{r}) != nil
	})
	t := taken{
		routes: gateway.NewPrefixes(cfg.routes()), others: gateway.NewPrefixes(cfg.Beside.Routes), hosts: hosts,
		named: ownRanges(cfg.Pool4, hosts), own: slices.Clone(l.own),
	}
	for _, p := range l.routes {
		if p.Addr().Is6() && apart([]netip.Prefix{p}) != nil {
			t.pool6 = append(t.pool6, p)
		}
	}
	return t
}

// has reports whether others have what a session needs.
func (t *taken) has(s *nat64.SessionInfo) bool {
	to := s.Outside.Addr()
	return slices.Contains(t.hosts, to) && !hasPort(t.named, s) && !hasPort(t.own, s) || t.elsewhere(to) || t.elsewhere(s.Peer6) ||
		slices.ContainsFunc(t.pool6, func(p netip.Prefix) bool { return p.Contains(s.Peer6) })
}

// elsewhere reports whether an address leads to another instance.
func (t *taken) elsewhere(a netip.Addr) bool {
	one := netip.PrefixFrom(a, a.BitLen())
	if _, named := t.routes.Around(one); named {
		return false
	}
	_, found := t.others.Around(one)
	return found
}

// end ends sessions whose addresses others have, and says so.
func (n *NAT64) end(has func(*nat64.SessionInfo) bool) {
	ended, addresses := 0, map[netip.Addr]bool{}
	for at := uint32(0); ; {
		running := n.do(func(e *nat64.Engine, now time.Time, out *nat64.Out) {
			var some int
			some, at = e.End(at, listStep, now, out, func(s nat64.SessionInfo) bool {
				if !has(&s) {
					return false
				}
				addresses[s.Outside.Addr()] = true
				return true
			})
			ended += some
		})
		if !running || at == 0 {
			break
		}
	}
	if ended > 0 {
		n.log.Warn("sessions end: the configuration no longer names their addresses or prefixes, and others have these now", "sessions", ended, "addresses", sorted(addresses))
	}
}

// maxNamed is how many addresses a line of the log names.
const maxNamed = 16

// sorted are the first of some addresses.
func sorted(set map[netip.Addr]bool) []netip.Addr {
	list := make([]netip.Addr, 0, len(set))
	for a := range set {
		list = append(list, a)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list[:min(len(list), maxNamed)]
}

// takeUp has what sessions of an earlier process have leave as it did there, unless others
// have it: then they end. noted are the ports of this host's addresses that the process has
// noted. n.mu is held.
func (n *NAT64) takeUp(noted []nat64.Range) {
	l := leaving{own: noted}
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) { l.routes = e.Leaving() })
	if l.empty() {
		return
	}
	var t taken
	n.leaving, t = n.still(&n.cfg, l)
	n.end(t.has)
	n.fast.leave(n.leaving)
	if list := n.leaving.texts(); len(list) > 0 {
		n.log.Info("sessions of an earlier process go on until they end, though the configuration does not name what they have", "leaving", list)
	}
}

// lead leads what the configuration names, and what is leaving, to the device for the first
// time; n.mu is held.
func (n *NAT64) lead() error {
	if _, err := n.device.Lead(destinations(&n.cfg, n.hosts)); err != nil {
		return err
	}
	taken := gateway.NewPrefixes(n.device.LeadFree(n.routes(&n.cfg, n.leaving.routes)))
	if len(taken.Set) > 0 {
		n.end(func(s *nat64.SessionInfo) bool {
			to := s.Outside.Addr()
			return taken.Overlaps(netip.PrefixFrom(to, to.BitLen())) || taken.Overlaps(netip.PrefixFrom(s.Peer6, s.Peer6.BitLen()))
		})
		n.leaving.routes = slices.DeleteFunc(n.leaving.routes, taken.Overlaps)
		n.leaving, _ = n.still(&n.cfg, n.leaving)
		n.fast.leave(n.leaving)
		settings, err := engineSettings(&n.cfg, n.own, n.hosts)
		if err != nil {
			return err
		}
		if err := n.reconfigure(settings, &n.cfg); err != nil {
			return err
		}
	}
	commit, err := n.device.Lead(n.routes(&n.cfg, n.leaving.routes))
	if err != nil {
		return err
	}
	return commit()
}

// letGoByAndBy gives up what was leaving, bit by bit, until ctx is done.
func (n *NAT64) letGoByAndBy(ctx context.Context) {
	host.Repeat(ctx, leavingAgain, n.letGo, func(err error) {
		n.log.Warn("what is no longer named still leads to the translator", "error", err)
	})
}

// letGo gives up what was leaving and has no session any more, or is another's.
func (n *NAT64) letGo() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.review()
}

// review does so; n.mu is held.
func (n *NAT64) review() error {
	if n.leaving.empty() {
		return nil
	}
	still, t := n.still(&n.cfg, n.leaving)
	n.end(t.has)
	return n.keep(still)
}

// keep has less leave than before; n.mu is held.
func (n *NAT64) keep(still leaving) error {
	if len(still.routes) == len(n.leaving.routes) && len(still.own) == len(n.leaving.own) {
		return nil
	}
	settings, err := engineSettings(&n.cfg, n.own, n.hosts)
	if err != nil {
		return err
	}
	commit, err := n.device.Lead(n.routes(&n.cfg, still.routes))
	if err != nil {
		return err
	}
	n.leaving = still
	n.fast.leave(still)
	if err := n.reconfigure(settings, &n.cfg); err != nil {
		return err
	}
	return commit()
}

// texts are what people write for it.
func (l leaving) texts() (list []string) {
	own := map[netip.Prefix]bool{}
	for _, r := range l.own {
		own[r.Prefix] = true
		list = append(list, fmt.Sprint(r))
	}
	for _, p := range l.routes {
		switch {
		case own[p]:
		case p.Bits() == 32:
			list = append(list, p.Addr().String())
		default:
			list = append(list, p.String())
		}
	}
	return list
}
