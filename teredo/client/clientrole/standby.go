// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"errors"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/port"
)

// A client with native = "standby" has two routes for the packets of its address alone, as long
// as it has the address. Beside native IPv6 they are all: the address is deprecated, and nothing
// of the host leaves by the device that is not bound to it. When native IPv6 has gone, the
// address is preferred, and the other routes are there too. So programs that are bound to the
// address have their route before, during and after each change; and like all routes by the
// device they go with it, however the process ends.

// sourceRoutes are the ways of a standby: what its address sends leaves by the device, whether there
// are other default routes or not, and nothing else does. A native route may be to 2000::/3
// instead of a default one.
func sourceRoutes(cfg *Settings, link string, a netip.Addr) []port.SourceRoute {
	var list []port.SourceRoute
	for _, dst := range []netip.Prefix{netip.PrefixFrom(netip.IPv6Unspecified(), 0), globalUnicast} {
		list = append(list, port.SourceRoute{Dst: dst, Source: a, Link: link, Metric: cfg.RouteMetric})
	}
	return list
}

// globalUnicast is what is given out of the IPv6 space (RFC 3587).
var globalUnicast = netip.MustParsePrefix("2000::/3")

// networkMetric is that of the kernel's routes to networks on a link.
const networkMetric = 256

// networkRoute is the route to other clients, which the kernel makes for an address that a
// standby does not hold.
func (d *device) networkRoute() port.Route {
	return port.Route{Dst: d.network, Link: d.tun.Name(), Metric: networkMetric}
}

// networkOf is that of a Teredo address.
func networkOf(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, addressBits).Masked() }

// hold puts the address of a client on the device, or changes it.
func (d *device) hold(c *Client) error {
	return d.host.HoldAddr(d.tun.Name(), netip.PrefixFrom(d.addrs[c].addr, addressBits), c == d.active && !d.standby)
}

// addSourceRoutes has what an address sends leave by the device.
func (d *device) addSourceRoutes(a netip.Addr) (err error) {
	for _, r := range sourceRoutes(&d.cfg, d.tun.Name(), a) {
		err = errors.Join(err, d.host.AddSourceRoute(r))
	}
	return err
}

// removeSourceRoutes ends that.
func (d *device) removeSourceRoutes(a netip.Addr) (err error) {
	if d.cfg.Native != NativeStandby {
		return nil
	}
	for _, r := range sourceRoutes(&d.cfg, d.tun.Name(), a) {
		err = errors.Join(err, d.host.RemoveSourceRoute(r))
	}
	return err
}

// standBy has the addresses for those alone who bind to them, while native IPv6 is there, or ends
// that. What such programs need is there before and after.
func (d *device) standBy(on bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.standby = on
	why := event.NativeGone
	if on {
		why = event.NativeIPv6
	}
	for c := range d.addrs {
		if err := d.unlessDown(d.hold(c)); err != nil {
			return err
		}
	}
	return d.settle(why)
}
