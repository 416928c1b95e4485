// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// Lead leads packets for the prefixes to the device. What is new is set first; on an
// error all is as it was. commit removes what is not wanted any more.
func (d *Device) Lead(prefixes []netip.Prefix) (commit func() error, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil, errors.New("the translator is not running, so it cannot take new settings: restart it")
	}
	var fresh []netip.Prefix
	for _, p := range prefixes {
		if d.set[p] {
			continue
		}
		if err := d.tun.Route(port.Route{Dst: p}, d.route); err != nil {
			return nil, errors.Join(routeTaken(err), d.removeRoutes(fresh))
		}
		d.set[p] = true
		fresh = append(fresh, p)
	}
	return func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.want = slices.Clone(prefixes)
		if d.host == nil {
			return nil // closed meanwhile
		}
		old := maps.Clone(d.set)
		for _, p := range d.left {
			old[p] = true
		}
		d.left = nil
		for _, p := range prefixes {
			delete(old, p)
		}
		err := d.removeRoutes(slices.Collect(maps.Keys(old)))
		err = errors.Join(err, d.answer())
		d.sweep() // when our own are gone
		return err
	}, nil
}

// LeadFree leads packets for prefixes to the device until the next commit, as far as no one
// else has a route there, and returns the others.
func (d *Device) LeadFree(prefixes []netip.Prefix) (taken []netip.Prefix) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := NewPrefixes(d.left)
	for _, p := range prefixes {
		if _, there := left.Set[p]; !d.route || d.set[p] || there {
			continue
		}
		if err := d.host.AddRoute(port.Route{Dst: p, Link: d.tun.Name()}); err != nil {
			taken = append(taken, p)
			continue
		}
		d.set[p] = true
	}
	return taken
}

// removeRoutes removes routes that are set; d.mu is held.
func (d *Device) removeRoutes(list []netip.Prefix) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, d.tun.Unroute(port.Route{Dst: p}, d.route))
		delete(d.set, p)
	}
	return errors.Join(errs...)
}

// RoutesFree reports which routes of this host are in the way of those to a device.
func RoutesFree(cfg *keys.Translation, prefixes []netip.Prefix) error {
	if !cfg.Route {
		return nil
	}
	routes := make([]port.Route, len(prefixes))
	for i, p := range prefixes {
		routes[i] = port.Route{Dst: p, Link: cfg.Interface}
	}
	return port.RoutesFree(routes, routeTaken)
}

// routeTaken adds to an error about a route in the way what else can be done about it.
func routeTaken(err error) error {
	if taken := new(port.RouteTakenError); errors.As(err, &taken) {
		return fmt.Errorf("%w, or set route = false", err)
	}
	return err
}
