// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/role"
)

var errNotRunning = errors.New("the node is not running, so it cannot take new settings: restart it")

// Prepare implements [role.Changer]. All is checked before anything is changed, and put back
// if a step fails.
func (g *GGSN) Prepare(next Settings) (role.Change, error) {
	if _, err := engineSettings(&next, own{}, 0); err != nil {
		return nil, err
	}
	for _, link := range next.interfaces() {
		if !slices.Contains(g.names, link) {
			return nil, fmt.Errorf("the node has no device %s, which it would make at its start alone: restart it, or let the access point share %s", link, g.names[0])
		}
	}
	return func() ([]string, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.host == nil {
			return nil, errNotRunning
		}
		return nil, g.change(&next)
	}, nil
}

// change applies a configuration: the routes that come first, then the engine, then those that
// go. Pools that are no longer named stay as long as contexts have addresses of them, which is
// known when no more are given. After an error all is as before; g.mu is held.
func (g *GGSN) change(next *Settings) error {
	undo, err := g.lead(next)
	if err != nil {
		return err
	}
	if err := g.reconfigure(next); err != nil {
		return errors.Join(err, undo())
	}
	g.leaving = g.leavingBy(next)
	g.cfg = *next
	g.events.contexts.Store(next.ContextLog)
	return g.keep()
}

// lead adds the routes that a configuration wants to those that there are; undo takes them away
// again. g.mu is held.
func (g *GGSN) lead(next *Settings) (undo func() error, err error) {
	var undos []func() error
	undo = func() (err error) {
		for _, one := range undos {
			err = errors.Join(err, one())
		}
		return err
	}
	for i, n := range g.networks {
		one, err := n.lead(routesOf(next, g.names[i], nil))
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		undos = append(undos, one)
	}
	return undo, nil
}

// keep takes the routes away that nothing needs any more; g.mu is held.
func (g *GGSN) keep() (err error) {
	for i, n := range g.networks {
		err = errors.Join(err, n.keep(routesOf(&g.cfg, g.names[i], g.leaving)))
	}
	return err
}

// reconfigure gives the engine a configuration; g.mu is held.
func (g *GGSN) reconfigure(cfg *Settings) error {
	settings, err := engineSettings(cfg, g.own, 0)
	if err != nil {
		return err
	}
	// The networks keep their numbers, whichever access points have them now.
	for i := range settings.APNs {
		settings.APNs[i].VRF = uint8(slices.Index(g.names, cfg.device(&cfg.APNs[i])))
	}
	err = errNotRunning
	g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) {
		settings.RestartCounter = e.RestartCounter()
		err = e.Reconfigure(settings, now, out)
	})
	return err
}

// leavingBy are the pools that a configuration does not name and contexts still have; g.mu is
// held.
func (g *GGSN) leavingBy(next *Settings) (list []pool) {
	named := next.allPools()
	for _, p := range append(g.cfg.allPools(), g.leaving...) {
		same := func(q pool) bool { return p.device == q.device && p.prefix == q.prefix }
		if !slices.ContainsFunc(named, same) && !slices.ContainsFunc(list, same) && g.used(p.prefix) {
			list = append(list, p)
		}
	}
	return list
}

// used reports whether a context has an address of a pool.
func (g *GGSN) used(p netip.Prefix) (found bool) {
	g.walk(ggsn.Selection{Address: p}, 0, func(ggsn.ContextInfo) bool {
		found = true
		return false
	})
	return found
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
	g.leaving = slices.DeleteFunc(g.leaving, func(p pool) bool { return !g.used(p.prefix) })
	return g.keep()
}
