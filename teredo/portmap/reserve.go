// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// gateway is one that speaks a method.
type gateway interface {
	method() Method
	// add reserves the target's port, or reserves it again.
	add(ctx context.Context) (Mapping, error)
	// remove gives back a port that was reserved for the target's address.
	remove(ctx context.Context, port uint16) error
}

// open finds the gateway by one method.
func open(ctx context.Context, m Method, t Target) (gateway, error) {
	switch m {
	case NATPMP:
		return natpmpGateway{t}, nil
	case UPnP:
		g, err := discover(ctx, t)
		if err != nil {
			return nil, err
		}
		return g, nil
	}
	return nil, fmt.Errorf("there is no method %q: use %s or %s", m, UPnP, NATPMP)
}

// reserve reserves the port by the first method that works. It gives back the
// port that an earlier run reserved at the same gateway, before it asks for the
// new one (RFC 6081 section 5.3.3).
func reserve(ctx context.Context, methods []Method, t Target, old record) (gateway, Mapping, error) {
	if slices.Contains(methods, UPnP) && slices.Contains(methods, NATPMP) {
		return either(ctx, t, old)
	}
	err := errors.New("no method is allowed")
	for _, m := range methods {
		g, e := open(ctx, m, t)
		if e != nil {
			return nil, Mapping{}, e
		}
		got, e := renew(ctx, g, old)
		if e == nil {
			return g, got, nil
		}
		err = e
	}
	return nil, Mapping{}, err
}

// renew gives the old port back and reserves the new one.
func renew(ctx context.Context, g gateway, old record) (Mapping, error) {
	if old.Method == g.method() && old.Port != 0 {
		// A gateway that has forgotten it says so; there is nothing to mend.
		_ = g.remove(ctx, old.Port)
	}
	return g.add(ctx)
}

// either searches by UPnP and, unless that is found soon, tries NAT-PMP while the
// search goes on.
func either(ctx context.Context, t Target, old record) (gateway, Mapping, error) {
	type found struct {
		gateway gateway
		err     error
	}
	search := make(chan found, 1)
	go func() {
		g, err := open(ctx, UPnP, t)
		search <- found{g, err}
	}()
	var upnp *found
	timer := time.NewTimer(t.limits().preference)
	defer timer.Stop()
	select {
	case f := <-search:
		upnp = &f
	case <-timer.C:
	}
	var errs []error
	try := func(g gateway) (Mapping, bool) {
		m, err := renew(ctx, g, old)
		errs = append(errs, err)
		return m, err == nil
	}
	if upnp != nil && upnp.err == nil {
		if m, ok := try(upnp.gateway); ok {
			return upnp.gateway, m, nil
		}
	}
	pmp := natpmpGateway{t}
	if m, ok := try(pmp); ok {
		return pmp, m, nil
	}
	if upnp == nil {
		f := <-search
		if f.err == nil {
			if m, ok := try(f.gateway); ok {
				return f.gateway, m, nil
			}
		}
		upnp = &f
	}
	return nil, Mapping{}, errors.Join(append(errs, upnp.err)...)
}
