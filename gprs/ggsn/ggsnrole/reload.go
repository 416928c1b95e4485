// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/role"
)

var errNotRunning = errors.New("the node is not running, so it cannot take new settings: restart it")

// Prepare implements [role.Changer]. All is checked before anything is changed, and put back
// if a step fails.
func (g *GGSN) Prepare(next Settings) (role.Change, error) {
	who, err := readSubscribers(next.SubscribersFile)
	if err != nil {
		return nil, err
	}
	if err := fits(&next, who); err != nil {
		return nil, err
	}
	to, err := next.readServers()
	if err != nil {
		return nil, err
	}
	links := next.interfaces()
	for i, vrf := range next.vrfs(links) {
		switch at := slices.Index(g.names, links[i]); {
		case at < 0:
			return nil, fmt.Errorf("the node has no device %s, which it would make at its start alone: restart it, or let the access point share %s", links[i], g.names[0])
		case g.vrfs[at] != vrf:
			return nil, fmt.Errorf("the device %s changes its VRF at a start alone: restart the node", links[i])
		}
	}
	return func() (restart []string, err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.host == nil || g.tasks != nil && g.tasks.ctx.Err() != nil {
			return nil, errNotRunning
		}
		if next.FastPath != g.cfg.FastPath && !g.fast.Loaded() {
			next.FastPath, restart = g.cfg.FastPath, []string{"fast_path"} // there are no programs to attach
		}
		return restart, g.change(&next, who, &to)
	}, nil
}

// change applies a configuration: the routes and servers that come first, then the engine, then the routes that
// go. Pools that are no longer named stay as long as contexts have addresses of them, which is
// known when no more are given. After an error all is as before; g.mu is held.
func (g *GGSN) change(next *Settings, who *ggsn.Subscribers, to *radiusServers) error {
	undo, err := g.lead(next)
	if err != nil {
		return err
	}
	if err = g.setServers(next, to); err == nil {
		g.follow(next) // before the first session that is to be told of
		err = g.reconfigure(next, who)
	}
	if err != nil {
		g.follow(&g.cfg)
		return errors.Join(err, g.setServers(&g.cfg, &g.servers), undo())
	}
	g.leaving = g.findLeaving()
	g.cfg, g.who, g.servers = *next, who, *to
	g.fast.Configure(driverConfig(next))
	g.warnOf(who)
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
		g.tellInside()
		return err
	}
	for i, n := range g.networks {
		one, err := n.lead(routesOf(next, g.names[i], nil))
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		undos = append(undos, one)
	}
	g.tellInside()
	return undo, nil
}

// keep takes the routes away that nothing needs any more; g.mu is held.
func (g *GGSN) keep() (err error) {
	for i, n := range g.networks {
		err = errors.Join(err, n.keep(routesOf(&g.cfg, g.names[i], g.leaving)))
	}
	g.tellInside()
	return err
}

// reconfigure gives the engine a configuration; g.mu is held.
func (g *GGSN) reconfigure(cfg *Settings, who *ggsn.Subscribers) error {
	settings, err := engineSettings(cfg, who, g.own, 0)
	if err != nil {
		return err
	}
	settings.NoNodes = g.noNodes
	// The networks keep their numbers, whichever access points have them now, and programs know the device
	// that they knew.
	for i := range settings.APNs {
		device := cfg.device(&cfg.APNs[i])
		settings.APNs[i].VRF, settings.APNs[i].EngineOnly = uint8(slices.Index(g.names, device)), device != g.fast.device
	}
	err = errNotRunning
	g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) {
		settings.RestartCounter = e.RestartCounter()
		err = e.Reconfigure(settings, now, out)
	})
	return err
}
