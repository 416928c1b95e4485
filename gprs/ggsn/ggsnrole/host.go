// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"slices"
	"time"

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

// blockedAgain is how often the host is asked whether packets pass: it tells of no switch.
const blockedAgain = 3 * time.Second

// tellBlockedByAndBy has the log follow what keeps packets from passing, until ctx is done.
func (g *GGSN) tellBlockedByAndBy(ctx context.Context) {
	host.Repeat(ctx, blockedAgain, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.tellBlocked()
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
