// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
)

// fault is something that happens to an Isthmus.
type fault struct {
	name string
	// stays says that the process goes on, keeps that it leaves its state to another.
	stays, keeps bool
	do           func(ctx context.Context, c *campaign) error
}

// processFaults meet every process.
var processFaults = []fault{
	{name: "kill -9", do: func(ctx context.Context, c *campaign) error { return c.replace(ctx, unix.SIGKILL) }},
	{name: nameRestart, keeps: true, do: restart},
	{name: "USR2 and start", keeps: true, do: func(ctx context.Context, c *campaign) error { return c.replace(ctx, unix.SIGUSR2) }},
	{name: "TERM, and kill -9 during the start", do: func(ctx context.Context, c *campaign) error { return c.cut(ctx, unix.SIGTERM) }},
	{name: "USR2, and kill -9 during the start", do: func(ctx context.Context, c *campaign) error { return c.cut(ctx, unix.SIGUSR2) }},
	{name: "HUP, nothing changed", stays: true, do: func(_ context.Context, c *campaign) error { return c.subject.process.Signal(unix.SIGHUP) }},
	{name: "reload, nothing changed", stays: true, do: func(ctx context.Context, c *campaign) error { return c.subject.reload(ctx) }},
}

// toggled is a fault by reload: a part of the configuration is taken out, or put in again.
func toggled(part string) fault {
	return fault{name: "reload, " + part, stays: true, do: func(ctx context.Context, c *campaign) error {
		c.off[part] = !c.off[part]
		return c.subject.reload(ctx)
	}}
}

// flapped is a fault of a link: a port of the switch there goes down and up.
func flapped(name string, node *lab.Node, port string) fault {
	return fault{name: "flap, " + name, stays: true, do: func(ctx context.Context, c *campaign) error {
		node.Down(port)
		err := c.wait(ctx, shortestFlap, longestFlap)
		node.Up(port)
		return errors.Join(err, node.Lab().Err())
	}}
}

// unrouted is a fault of the host: someone deletes the routes to a prefix.
func unrouted(name string, node *lab.Node, to netip.Prefix) fault {
	return fault{name: "route deleted, " + name, stays: true, do: func(context.Context, *campaign) error {
		dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
		family := unix.AF_INET6
		if to.Addr().Is4() {
			family = unix.AF_INET
		}
		routes, err := node.Kernel().RouteListFiltered(family, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
		for i := range routes {
			err = errors.Join(err, node.Kernel().RouteDel(&routes[i]))
		}
		return err
	}}
}

// fastPathFaults are those of an Isthmus with a fast path: it is taken away and given back,
// by reload, and with the process.
func fastPathFaults(w way) []fault {
	if w == wayUser {
		return nil
	}
	return []fault{
		{name: "reload, fast path off and on", stays: true, do: func(ctx context.Context, c *campaign) error {
			return c.without(ctx, func() error { return c.wait(ctx, shortestFlap, longestFlap) })
		}},
		{name: "kill -9 while the fast path is off", do: func(ctx context.Context, c *campaign) error {
			return errors.Join(c.without(ctx, func() error { return c.replace(ctx, unix.SIGKILL) }), restart(ctx, c))
		}},
	}
}

// partFastPath is the fast path as a part of the configuration.
const partFastPath = "fast path"

// fastPath is the setting of the moment.
func (w *faultsWorld) fastPath(of way) string {
	if w.off[partFastPath] {
		return wayUser.fast
	}
	return of.fast
}
