// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/host"
)

// blocked is the function of that name in the network namespace of the node, while it runs;
// g.mu is held.
func (g *GGSN) blocked() (list []string) {
	if g.host == nil {
		return nil
	}
	if err := g.here.Do(func() error { list = blocked(&g.cfg); return nil }); err != nil {
		g.log.Warn("cannot determine whether packets pass through this host", "error", err)
	}
	return list
}

// tellAgain is how often it is looked whether packets pass, and contexts get addresses: nothing
// tells of these.
const tellAgain = 3 * time.Second

// tellByAndBy has the log follow what keeps terminals from being served, until ctx is done.
func (g *GGSN) tellByAndBy(ctx context.Context) {
	host.Repeat(ctx, tellAgain, func() error {
		sizes := g.sizes()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.tellBlocked()
		g.tellFull(sizes.Pools)
		g.tellAlarms(sizes.Pools)
		return nil
	}, nil)
}

// tellBlocked tells of what keeps packets from passing, each once, and when it is over; g.mu is
// held.
func (g *GGSN) tellBlocked() {
	now := g.blocked()
	for _, sentence := range now {
		if !slices.Contains(g.told, sentence) {
			g.log.Warn("terminals reach nothing: " + sentence)
		}
	}
	for _, sentence := range g.told {
		if !slices.Contains(now, sentence) {
			g.log.Info("packets of terminals pass again", "was", sentence)
		}
	}
	g.told = now
}

// tellFull tells of pools that have no address left, each once, and when they have some again:
// more than one of sixteen, lest the log follows each context. g.mu is held.
func (g *GGSN) tellFull(pools []ggsn.PoolSize) {
	const some = 16
	full := map[string]bool{}
	for _, p := range pools {
		key := p.APN + " " + family(p.IPv6)
		was := g.full[key]
		if p.Free > 0 && (!was || p.Free > (p.Used+p.Held)/some) || p.Used+p.Held == 0 {
			if was && p.Free > 0 {
				g.log.Info("contexts get addresses again", "apn", p.APN, "family", family(p.IPv6), "free", p.Free)
			}
			continue
		}
		if full[key] = true; !was {
			g.log.Warn("new contexts are refused, for all addresses are taken or rest: name more in pool4 or pool6, or let them rest for less (hold)",
				"apn", p.APN, "family", family(p.IPv6), "used", p.Used, "held", p.Held)
		}
	}
	g.full = full
}

// tellAlarms tells of pools that are fuller than their alarm, each once, and when they are so no
// more, by one of sixteen. g.mu is held.
func (g *GGSN) tellAlarms(pools []ggsn.PoolSize) {
	const some = 16
	alarms := map[string]bool{}
	for _, p := range pools {
		key := p.APN + " " + family(p.IPv6)
		was, fuller := g.alarms[key], p
		fuller.Used, fuller.Free = p.Used+min(p.Free, p.Used/some), p.Free-min(p.Free, p.Used/some)
		switch now := g.cfg.alarmed(&p); {
		case now && !was:
			g.log.Warn("a pool is nearly full: name more prefixes, or let addresses rest for less (hold)", "apn", p.APN, "family", family(p.IPv6), "used", p.Used, "held", p.Held, "free", p.Free)
			alarms[key] = true
		case now || was && g.cfg.alarmed(&fuller):
			alarms[key] = true
		case was:
			g.log.Info("a pool has room again", "apn", p.APN, "family", family(p.IPv6), "free", p.Free)
		}
	}
	g.alarms = alarms
}
