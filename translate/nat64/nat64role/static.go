// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64"
)

func staticsOf(cfg *Settings) []nat64.Static {
	list := make([]nat64.Static, len(cfg.Static))
	for i, b := range cfg.Static {
		list[i] = staticOf(b)
	}
	return list
}

// setStatics makes the static bindings those of a list. On an error all is as it was.
func setStatics(e *nat64.Engine, want []nat64.Static, now time.Time, out *nat64.Out) error {
	have := staticsIn(e)
	change := func(from, to []nat64.Static) error {
		for _, s := range from {
			if !slices.Contains(to, s) {
				if err := e.RemoveStatic(s, now, out); err != nil {
					return err
				}
			}
		}
		for _, s := range to {
			if !slices.Contains(from, s) {
				if err := e.AddStatic(s); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := change(have, want); err != nil {
		return errors.Join(err, change(staticsIn(e), have))
	}
	return nil
}

// staticsIn lists the static bindings that are in force.
func staticsIn(e *nat64.Engine) (list []nat64.Static) {
	for at := uint32(0); ; {
		at = e.Bindings(nat64.Selection{}, at, listStep, func(b nat64.BindingInfo) bool {
			if b.Static {
				list = append(list, nat64.Static{Transport: b.Transport, Inside: b.Inside, Outside: b.Outside})
			}
			return true
		})
		if at == 0 {
			return list
		}
	}
}

// addStatic binds a port of the pool.
func (n *NAT64) addStatic(a staticArguments) (bound, error) {
	b, err := a.binding()
	if err == nil && !n.isClient(b.Inside.Addr()) {
		err = fmt.Errorf("%s is in no network of clients: add its network there, or bind a host that is in one", b.Inside.Addr())
	}
	if err == nil {
		err = n.changeStatic(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) error { return e.AddStatic(staticOf(b)) })
	}
	return bound{Binding{a.Transport, true, b.Inside, b.Outside}}, err
}

// removeStatic ends a static binding with its sessions.
func (n *NAT64) removeStatic(a staticArguments) (ended, error) {
	b, err := a.binding()
	if err == nil {
		err = n.changeStatic(func(e *nat64.Engine, now time.Time, out *nat64.Out) error {
			return e.RemoveStatic(staticOf(b), now, out)
		})
	}
	return ended{Binding{a.Transport, true, b.Inside, b.Outside}}, err
}

func (n *NAT64) changeStatic(f func(*nat64.Engine, time.Time, *nat64.Out) error) (err error) {
	if !n.do(func(e *nat64.Engine, now time.Time, out *nat64.Out) { err = f(e, now, out) }) {
		return fmt.Errorf("the translator is not running yet: try again")
	}
	return err
}

// isClient reports whether a host may use the translator.
func (n *NAT64) isClient(a netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.cfg.Clients, func(p netip.Prefix) bool { return p.Contains(a) })
}
