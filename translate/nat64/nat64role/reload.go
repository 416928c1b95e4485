// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"errors"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// Prepare implements [role.Changer]. All is checked before anything is changed, and put back
// if a step fails.
func (n *NAT64) Prepare(next Settings) (role.Change, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var needsRestart []string
	if next.FastPath != n.cfg.FastPath && !n.fast.Loaded() {
		next.FastPath = n.cfg.FastPath // the sessions lie where no program can read them
		needsRestart = []string{"fast_path"}
	}
	_, err := engineSettings(&next, n.own, n.hosts)
	if err := errors.Join(err, n.device.Apart(next.Pool6), n.steerable(&next), n.portsApart(ownRanges(next.Pool4, n.hosts))); err != nil {
		return nil, err
	}
	return func() ([]string, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if err := n.change(&next); err != nil {
			return nil, err
		}
		n.cfg = next
		return needsRestart, nil
	}, nil
}

// change applies a configuration: routes first, then the engine with the static bindings;
// n.mu is held.
func (n *NAT64) change(live *Settings) error {
	settings, err := engineSettings(live, n.own, n.hosts)
	if err != nil {
		return err
	}
	if err := errors.Join(settings.Check(), n.device.Apart(live.Pool6), n.steerable(live), n.portsApart(ownRanges(live.Pool4, n.hosts))); err != nil {
		return err
	}
	before, err := engineSettings(&n.cfg, n.own, n.hosts)
	if err != nil {
		return err
	}
	commitFTP, undoFTP, err := n.ftp.prepare(live)
	if err != nil {
		return err
	}
	leaving, taken := n.leave(live)
	commit, err := n.device.Lead(n.routes(live, leaving.routes))
	if err != nil {
		undoFTP()
		return err
	}
	n.fast.leave(leaving)
	// While the engine knows the former detour, the control connections that take it can be
	// told of their end.
	detour := settings.DetourPrefix
	settings.DetourPrefix = before.DetourPrefix
	if settings.Check() != nil { // pool6 takes the former detour
		settings.DetourPrefix = detour
	}
	if err := n.changeEngine(settings, live); err != nil {
		undoFTP()
		n.fast.leave(n.leaving)
		err = errors.Join(err, n.reconfigure(before, &n.cfg))
		back, e := n.device.Lead(n.routes(&n.cfg, n.leaving.routes))
		if e == nil {
			e = back()
		}
		return errors.Join(err, e)
	}
	n.leaving = leaving
	n.end(taken.has)
	commitFTP()
	if settings.DetourPrefix != detour {
		settings.DetourPrefix = detour
		err = n.reconfigure(settings, live)
	}
	return errors.Join(err, n.ftp.limit(live), commit(), n.advertisers.apply(live))
}

// changeEngine gives the engine settings with their static bindings; n.mu is held.
func (n *NAT64) changeEngine(settings nat64.Settings, live *Settings) error {
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
