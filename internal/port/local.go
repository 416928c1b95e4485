// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddLocal makes all addresses of an IPv6 prefix this host's own, until the link or
// the host is closed: packets for them are delivered here. Sockets may be bound to
// them with [FreeBind]. A route that an earlier process has left is taken over.
func (h *Host) AddLocal(link string, prefix netip.Prefix) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	route := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: ipNet(prefix.Masked()),
		Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Protocol: RouteProtocol,
	}
	set := func() error {
		if err := h.handle.RouteReplace(route); err != nil {
			return h.problem(fmt.Sprintf("add local route %s through", prefix), link, err)
		}
		return nil
	}
	if err := set(); err != nil {
		return err
	}
	h.done(&Thing{
		key: "local route to " + prefix.String(), link: route.LinkIndex, about: prefix.Masked(), again: set,
		back: func() error { return h.handle.RouteDel(route) },
		there: func(s *seen) bool {
			return s.places[place{kind: aLocalRoute, dst: prefix.Masked(), link: route.LinkIndex}]
		},
	})
	return nil
}

// SetHops sets the hop limit of what an IPv6 socket sends.
func SetHops(fd uintptr, hops int) error {
	if err := unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS, hops); err != nil {
		return fmt.Errorf("cannot set the hop limit of a socket: %w", err)
	}
	return nil
}

// FreeBind lets a socket be bound to addresses that no interface has, and to the
// device of that name alone.
func FreeBind(fd uintptr, device string) error {
	if err := unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1); err != nil {
		return fmt.Errorf("cannot let a socket use an address of the translator's: %w", err)
	}
	if err := unix.BindToDevice(int(fd), device); err != nil {
		return fmt.Errorf("cannot bind a socket to %s: %w", device, err)
	}
	return nil
}
