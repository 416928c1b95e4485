// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/host"
)

// leavingAgain is how often what is no longer named is asked after.
const leavingAgain = 10 * time.Second

// findLeaving are the pools that the configuration does not name and contexts still have
// addresses of; g.mu is held.
func (g *GGSN) findLeaving() (list []pool) {
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) {
		for _, p := range e.Leaving() {
			list = append(list, pool{device: g.names[p.VRF], vrf: g.vrfs[p.VRF], prefix: p.Prefix})
		}
	})
	return list
}

// leadLeaving adds the routes to pools of contexts that an earlier process has left and the
// configuration does not name. What somebody else has taken meanwhile is no reason not to
// serve: it is returned, for its contexts are to end. g.mu is held.
func (g *GGSN) leadLeaving() (taken []pool) {
	for _, p := range g.findLeaving() {
		n := g.networks[slices.Index(g.names, p.device)]
		if _, err := n.lead(append(slices.Clip(n.routes), p.prefix)); err != nil {
			g.log.Warn("contexts of a pool that is no longer named end, for its packets cannot be led here", "pool", p.prefix, "error", err)
			taken = append(taken, p)
		} else {
			g.leaving = append(g.leaving, p)
		}
	}
	g.tellInside()
	return taken
}

// endContextsOf ends the contexts of pools in good order.
func (g *GGSN) endContextsOf(list []pool) {
	for _, p := range list {
		number := uint8(slices.Index(g.names, p.device))
		g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) {
			e.Delete(ggsn.Selection{VRF: &number, Address: p.prefix}, now, out)
		})
	}
}

// letGoByAndBy gives up pools that were leaving, until ctx is done.
func (g *GGSN) letGoByAndBy(ctx context.Context) {
	host.Repeat(ctx, leavingAgain, g.letGo, func(err error) {
		g.log.Warn("what is no longer named still leads to the node", "error", err)
	})
}

// letGo gives up what was leaving and no context has any more.
func (g *GGSN) letGo() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.host == nil || len(g.leaving) == 0 {
		return nil
	}
	g.leaving = g.findLeaving()
	return g.keep()
}
