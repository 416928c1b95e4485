// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/radius"
)

// radiusServers are the RADIUS servers of a configuration by what they are for, with their secrets.
type radiusServers struct {
	authentication, accounting radius.Settings
	dynamic                    []radius.DynamicClient
}

// readServers reads the secrets of the servers, and returns why they cannot be asked.
func (s *Settings) readServers() (to radiusServers, err error) {
	if to.authentication, err = s.radiusSettings(Authentication); err != nil {
		return to, err
	}
	if to.accounting, err = s.radiusSettings(Accounting); err != nil {
		return to, err
	}
	to.dynamic, err = s.dynamicClients()
	return to, err
}

// tasks are those of a running node.
type tasks struct {
	ctx   context.Context
	group *errgroup.Group
}

// setServers has servers asked, told and heard, at the start and by a reload. What it opens is in the node's
// network namespace. What speaks to radiusServers is made for the first one, and stays without any: what waits for
// an answer, or for a server, goes on. g.mu is held.
func (g *GGSN) setServers(cfg *Settings, to *radiusServers) error {
	return g.here.Do(func() error {
		if err := g.setAuthorizer(cfg, to.authentication); err != nil {
			return err
		}
		if err := g.setAccountant(cfg, to.accounting); err != nil {
			return err
		}
		return g.setDynamic(cfg, to.dynamic)
	})
}

func (g *GGSN) setAuthorizer(cfg *Settings, to radius.Settings) (err error) {
	a := g.radius.Load()
	switch {
	case a != nil:
		return a.reconfigure(to)
	case len(to.Servers) == 0:
		return nil
	}
	if a, err = openAuthorizer(cfg, to, g.log); err != nil {
		return err
	}
	if g.tasks != nil {
		a.run(g.tasks, g.grant)
	}
	g.radius.Store(a)
	return nil
}

func (g *GGSN) setAccountant(cfg *Settings, to radius.Settings) (err error) {
	a := g.accounts.Load()
	switch {
	case a != nil:
		return a.reconfigure(to)
	case len(to.Servers) == 0:
		return nil
	}
	if a, err = openAccountant(cfg, to, g.log); err != nil {
		return err
	}
	if g.tasks != nil {
		g.beginAccounting(a)
	}
	g.accounts.Store(a)
	return nil
}

// beginAccounting has servers told; g.mu is held.
func (g *GGSN) beginAccounting(a *accountant) {
	if g.adopted == 0 { // of what may have been before, nothing goes on
		a.whole(radius.AcctOn)
	}
	a.run(g.tasks)
}

// setDynamic opens and closes the sockets: there are none while no server may end or change sessions.
func (g *GGSN) setDynamic(cfg *Settings, clients []radius.DynamicClient) (err error) {
	d := g.dynamic.Load()
	switch {
	case d != nil && len(clients) == 0:
		d.close()
		g.dynamic.Store(nil)
		return nil
	case d != nil:
		return d.setClients(clients)
	case len(clients) == 0:
		return nil
	}
	if d, err = openDynamic(g, cfg, clients); err != nil {
		return err
	}
	if g.tasks != nil {
		d.run(g.tasks, g.log)
	}
	g.dynamic.Store(d)
	return nil
}

// runServers has what there is for servers work, and what setServers makes from now on.
func (g *GGSN) runServers(on *tasks) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tasks = on
	if a := g.radius.Load(); a != nil {
		a.run(on, g.grant)
	}
	if a := g.accounts.Load(); a != nil {
		g.beginAccounting(a)
	}
	if d := g.dynamic.Load(); d != nil {
		d.run(on, g.log)
	}
}

// follow takes how servers are told of terminals at the access points of a configuration.
func (g *GGSN) follow(cfg *Settings) {
	if a := g.radius.Load(); a != nil {
		a.follow(cfg)
	}
	if a := g.accounts.Load(); a != nil {
		a.follow(cfg)
	}
	if d := g.dynamic.Load(); d != nil {
		d.follow(cfg)
	}
}

// closeServers has servers neither asked nor told nor heard any more; g.mu is held.
func (g *GGSN) closeServers() {
	if a := g.radius.Load(); a != nil {
		a.close()
	}
	if a := g.accounts.Load(); a != nil {
		a.close()
	}
	if d := g.dynamic.Load(); d != nil {
		d.close()
	}
}
