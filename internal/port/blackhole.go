// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddBlackhole has the host drop, in silence, what comes for an IPv6 address that it
// must not forward, and removes such routes of an earlier process that was killed. A
// host has one such address at a time: that of its [Guest6]. Without the route a host
// that forwards would look for the address on its link, and answer that no one is there.
func (h *Host) AddBlackhole(addr netip.Addr) error {
	ours := &netlink.Route{Protocol: RouteProtocol, Type: unix.RTN_BLACKHOLE}
	left, err := h.handle.RouteListFiltered(netlink.FAMILY_V6, ours, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("cannot list the IPv6 routes: %w", err)
	}
	for _, r := range left {
		if p, ok := prefix(r.Dst); ok && p.IsSingleIP() && p.Addr() != addr {
			_ = h.handle.RouteDel(&r) // one that stays hinders no one
		}
	}
	route := blackhole(addr)
	set := func() error {
		if err := h.handle.RouteReplace(route); err != nil {
			return fmt.Errorf("cannot add the route that drops what comes for %s: %w", addr, err)
		}
		return nil
	}
	if err := set(); err != nil {
		return err
	}
	dst := netip.PrefixFrom(addr, addr.BitLen())
	h.done(&Thing{
		key: blackholeKey(addr), link: loopback, about: dst, again: set,
		back:  func() error { return h.handle.RouteDel(route) },
		there: func(s *seen) bool { return s.hasRoute(dst, loopback, defaultMetric6, unix.RT_TABLE_MAIN) },
	})
	return nil
}

// loopback is the index of the loopback interface, on which the kernel shows such routes.
const loopback = 1

// RemoveBlackhole undoes AddBlackhole; a route that is gone is no error.
func (h *Host) RemoveBlackhole(addr netip.Addr) error {
	h.forget(blackholeKey(addr))
	if err := h.handle.RouteDel(blackhole(addr)); err != nil && !gone(err) {
		return fmt.Errorf("cannot remove the route that drops what comes for %s: %w", addr, err)
	}
	return nil
}

func blackhole(addr netip.Addr) *netlink.Route {
	return &netlink.Route{Dst: ipNet(netip.PrefixFrom(addr, addr.BitLen())), Type: unix.RTN_BLACKHOLE, Protocol: RouteProtocol}
}

func blackholeKey(addr netip.Addr) string { return "blackhole route to " + addr.String() }
