// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// Reload implements [role.Reloader]. Live are the keys that concern neither the device
// nor the shape of the state. All is checked before anything is changed, and put back
// if a step fails.
func (n *NAT64) Reload(next *config.Config) (needsRestart []string, err error) {
	want, ok := next.NAT64(n.name)
	if !ok {
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	live := n.live(want)
	if err := n.change(&live, next.Beside(n.name)); err != nil {
		return nil, err
	}
	n.cfg = live
	return config.Diff(live, want), nil
}

// Verify implements [role.Verifier].
func (n *NAT64) Verify(next *config.Config) error {
	want, ok := next.NAT64(n.name)
	if !ok {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	live := n.live(want)
	_, err := nat64Settings(&live, n.own, n.hosts)
	return errors.Join(err, n.device.apart(live.Pool6), n.steerable(&live), n.portsApart(ownRanges(live.Pool4, n.hosts)))
}

// live is a configuration with what cannot change as it is; n.mu is held.
func (n *NAT64) live(want config.NAT64) config.NAT64 {
	live := want
	live.Interface, live.MTU, live.Route = n.cfg.Interface, n.cfg.MTU, n.cfg.Route
	live.Workers, live.Announce = n.cfg.Workers, n.cfg.Announce
	live.MaxSessions, live.MaxClients, live.MaxAddresses = n.cfg.MaxSessions, n.cfg.MaxClients, n.cfg.MaxAddresses
	live.ClientLength, live.BlockSize = n.cfg.ClientLength, n.cfg.BlockSize
	live.KeepState, live.StateFile = n.cfg.KeepState, n.cfg.StateFile
	if !n.fast.Loaded() {
		live.FastPath = n.cfg.FastPath // the sessions lie where no program can read them
	}
	return live
}

// change applies a configuration, of which other instances have what they claim: routes
// first, then the engine with the static bindings; n.mu is held.
func (n *NAT64) change(live *config.NAT64, claims config.Claims) error {
	settings, err := nat64Settings(live, n.own, n.hosts)
	if err != nil {
		return err
	}
	if err := errors.Join(settings.Check(), n.device.apart(live.Pool6), n.steerable(live), n.portsApart(ownRanges(live.Pool4, n.hosts))); err != nil {
		return err
	}
	before, err := nat64Settings(&n.cfg, n.own, n.hosts)
	if err != nil {
		return err
	}
	commitFTP, undoFTP, err := n.ftp.prepare(live)
	if err != nil {
		return err
	}
	leaving, taken := n.leave(live, &claims)
	commit, err := n.device.lead(n.routes(live, leaving.routes))
	if err != nil {
		undoFTP()
		return err
	}
	n.fast.leave(leaving.own)
	// While the engine knows the former detour, the control connections that take it can be
	// told of their end.
	detour := settings.DetourPrefix
	settings.DetourPrefix = before.DetourPrefix
	if settings.Check() != nil { // pool6 takes the former detour
		settings.DetourPrefix = detour
	}
	if err := n.changeEngine(settings, live); err != nil {
		undoFTP()
		n.fast.leave(n.leaving.own)
		err = errors.Join(err, n.reconfigure(before, &n.cfg))
		back, e := n.device.lead(n.routes(&n.cfg, n.leaving.routes))
		if e == nil {
			e = back()
		}
		return errors.Join(err, e)
	}
	n.leaving, n.claims = leaving, claims
	n.end(taken.has)
	commitFTP()
	if settings.DetourPrefix != detour {
		settings.DetourPrefix = detour
		err = n.reconfigure(settings, live)
	}
	return errors.Join(err, n.ftp.limit(live), commit(), n.advertisers.apply(live))
}

// changeEngine gives the engine settings with their static bindings; n.mu is held.
func (n *NAT64) changeEngine(settings nat64.Settings, live *config.NAT64) error {
	if err := n.reconfigure(settings, live); err != nil {
		return err
	}
	old, next := staticsOf(&n.cfg), staticsOf(live)
	var err error
	n.do(func(e *nat64.Engine, now time.Time, out *nat64.Out) {
		// What was added or removed at run time stays so.
		want := slices.DeleteFunc(staticsIn(e), func(s nat64.Static) bool { return slices.Contains(old, s) && !slices.Contains(next, s) })
		for _, s := range next {
			if !slices.Contains(old, s) && !slices.Contains(want, s) {
				want = append(want, s)
			}
		}
		err = setStatics(e, want, now, out)
	})
	return err
}
