// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/port"
)

// openFast has the engine describe its contexts for the programs, if they are loaded; g.mu is held.
func (g *GGSN) openFast() {
	if !g.fast.Loaded() {
		return
	}
	user := g.sockets[ggsn.SocketUser]
	g.fast.merge = func(on bool) {
		for _, conn := range user {
			conn.Merge(on)
		}
	}
	g.fast.takes = g.host.Takes
	n := g.networks[slices.Index(g.names, g.fast.device)]
	if err := g.fast.Use(n.host, n.device.Queues[0]); err != nil {
		g.fast.Abandon(err)
		g.fast.table = nil
		return
	}
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) { e.Share(g.fast.table.Shared(e.Epoch())) })
}

// tellInside tells the programs where terminals are, which is where the routes of networks outside of VRFs lead; g.mu is
// held. It comes before the first address of a pool is given, and behind the last one. Programs that cannot know it
// carry nothing any more.
func (g *GGSN) tellInside() {
	if g.fast.table == nil {
		return
	}
	var list []netip.Prefix
	for i, n := range g.networks {
		if g.vrfs[i] == "" {
			list = append(list, n.routes...)
		}
	}
	if err := g.fast.table.SetInside(list); err != nil {
		g.fast.Fail(err)
		g.fast.table.Sleep()
	}
}

// unshare has the engine take over what programs have counted, and use their memory no more. They are detached, and
// none is still at work.
func (g *GGSN) unshare() {
	if g.fast.table == nil {
		return
	}
	g.fast.table.Sleep()
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) { e.Share(nil) })
}

// hostChanged has the fast path look at a host whose links or addresses have changed.
func (f *fast) hostChanged(c port.Change) {
	switch c.Kind {
	case port.LinkChanged, port.Overrun:
		f.LinksChanged()
	case port.AddressChanged:
		f.Wake()
	}
}

// traffic is what the engine has carried.
func (g *GGSN) traffic() (up, down ggsn.Traffic) {
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) {
		s := e.Stats()
		up, down = s.Up, s.Down
	})
	return up, down
}
