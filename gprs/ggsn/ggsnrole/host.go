// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"log/slog"
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
		pools := slices.Concat(sizes.Pools, sizes.Parts)
		g.tellFull(pools)
		g.tellAlarms(pools)
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
		key, log := label(&p), g.logOf(&p)
		was := g.full[key]
		if p.Free > 0 && (!was || p.Free > (p.Used+p.Held)/some) || p.Used+p.Held == 0 {
			if was && p.Free > 0 {
				log.Info("contexts get addresses again", "free", p.Free)
			}
			continue
		}
		if full[key] = true; !was {
			log.Warn("new contexts are refused, for all addresses are taken or rest: name more in pool4, pool6 or named_pools, or let them rest for less (hold)", "used", p.Used, "held", p.Held)
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
		key, log := label(&p), g.logOf(&p)
		was, fuller := g.alarms[key], p
		fuller.Used, fuller.Free = p.Used+min(p.Free, p.Used/some), p.Free-min(p.Free, p.Used/some)
		switch now := g.cfg.alarmed(&p); {
		case now && !was:
			log.Warn("a pool is nearly full: name more prefixes, or let addresses rest for less (hold)", "used", p.Used, "held", p.Held, "free", p.Free)
			alarms[key] = true
		case now || was && g.cfg.alarmed(&fuller):
			alarms[key] = true
		case was:
			log.Info("a pool has room again", "free", p.Free)
		}
	}
	g.alarms = alarms
}

// logOf is the log for what concerns a pool, or a part of it.
func (g *GGSN) logOf(p *ggsn.PoolSize) *slog.Logger {
	log := g.log.With("apn", p.APN, "family", family(p.IPv6))
	if p.Part != "" {
		log = log.With("part", p.Part)
	}
	return log
}
