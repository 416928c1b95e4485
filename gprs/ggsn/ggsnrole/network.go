// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
)

// network is what lies behind access points: a TUN device with the routes of their pools.
// What the host does for it is a thing of its own, so that each device is kept by itself.
type network struct {
	host   *port.Host // nil once it is closed
	device *host.Device
	own    bool // the routes are ours to set
	routes []netip.Prefix
}

// openNetwork makes the device, in the network namespace of the calling thread.
func openNetwork(cfg *Settings, name, vrf string, queues int, again time.Duration, log *slog.Logger) (*network, error) {
	n := &network{own: cfg.Route}
	var err error
	if n.host, err = port.OpenHost(); err != nil {
		return nil, err
	}
	n.device, err = host.OpenDevice(n.host, host.DeviceConfig{
		// The engine knows what fits into the tunnel, and tells; the kernel must not cut before.
		TUN:    port.TUNConfig{Name: name, MTU: maxMTU, Forwarding: true, Offload: true, Persistent: cfg.KeepState, Lasting: true},
		Queues: queues, VRF: vrf,
		Configure: n.host.GatewayIPv4, Without: "terminals get no packets", LastRestore: again,
	}, log)
	if err == nil && vrf == "" { // in which an earlier process may have left it
		err = n.host.LeaveVRF(name)
	}
	return n, err
}

// lead adds the routes of a list that are missing; undo takes them away again.
func (n *network) lead(to []netip.Prefix) (undo func() error, err error) {
	before := n.routes
	undo = func() error { return n.keep(before) }
	for _, p := range to {
		if slices.Contains(n.routes, p) {
			continue
		}
		if err := n.device.Route(port.Route{Dst: p}, n.own); err != nil {
			return nil, errors.Join(routeTaken(err), undo())
		}
		n.routes = append(slices.Clip(n.routes), p)
	}
	return undo, nil
}

// keep takes the routes away that are not in a list.
func (n *network) keep(list []netip.Prefix) (err error) {
	n.routes = slices.DeleteFunc(slices.Clone(n.routes), func(p netip.Prefix) bool {
		if slices.Contains(list, p) {
			return false
		}
		err = errors.Join(err, n.device.Unroute(port.Route{Dst: p}, n.own))
		return true
	})
	return err
}

// routeTaken adds to an error about a route in the way what else can be done about it.
func routeTaken(err error) error {
	if taken := new(port.RouteTakenError); errors.As(err, &taken) {
		return errors.Join(err, errors.New("or set route = false, and lead the pool to the device yourself"))
	}
	return err
}

// close undoes what leads to the device, and closes it; or leaves both to a successor.
func (n *network) close(leave bool) (err error) {
	if n.host == nil {
		return nil
	}
	if leave {
		n.host.Abandon()
	} else {
		err = n.host.Close()
	}
	n.host = nil
	n.device.End(leave)
	return err
}

// routesOf are the pools that lead to a device by a configuration, with those that are leaving.
func routesOf(cfg *Settings, device string, leaving []pool) (list []netip.Prefix) {
	for _, p := range append(cfg.allPools(), leaving...) {
		if p.device == device && !slices.Contains(list, p.prefix) {
			list = append(list, p.prefix)
		}
	}
	return list
}
