// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/port"
)

// Answers lists the addresses that the gateway answers for.
func (w *World) Answers(t *testing.T) (list []string) {
	t.Helper()
	w.Gateway.Do(t, func() error {
		proxies, err := netlink.NeighProxyList(0, netlink.FAMILY_ALL)
		for _, p := range proxies {
			list = append(list, p.IP.String())
		}
		return err
	})
	slices.Sort(list)
	return list
}

// LeaveAnswer answers for an address, like a process that is killed then.
func (w *World) LeaveAnswer(t *testing.T, addr string) {
	t.Helper()
	w.Gateway.Do(t, func() error {
		host, err := port.OpenHost()
		if err != nil {
			return err
		}
		defer host.Abandon()
		return host.AddProxy("v4", netip.MustParseAddr(addr))
	})
}

// Leads lists the destinations that the gateway leads to a device.
func (w *World) Leads(t *testing.T, device string) (list []string) {
	t.Helper()
	w.Gateway.Do(t, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteList(link, family)
			if err != nil {
				return err
			}
			for _, r := range routes {
				if r.Dst != nil && !r.Dst.IP.IsLinkLocalUnicast() {
					list = append(list, r.Dst.String())
				}
			}
		}
		return nil
	})
	slices.Sort(list)
	return list
}
