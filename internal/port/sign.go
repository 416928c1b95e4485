// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Signs are routes by which no packet goes: they stand in a table of their own,
// in which the host does not look, for a routing daemon to see and to export.
type Signs struct {
	// Host knows which of them are set.
	Host            *Host
	handle          *netlink.Handle
	table, protocol int
}

// OpenSigns opens the table, with the protocol number that marks our routes in
// it, in the calling thread's network namespace. It changes nothing yet.
func OpenSigns(table, protocol int) (*Signs, error) {
	h, err := OpenHost()
	if err != nil {
		return nil, err
	}
	return &Signs{Host: h, handle: h.handle, table: table, protocol: protocol}, nil
}

// Set sets the routes to prefixes; those that are there stay.
func (s *Signs) Set(prefixes ...netip.Prefix) error {
	for _, p := range prefixes {
		if err := s.set(p); err != nil {
			return err
		}
		s.Host.done(&Thing{
			key: s.key(p), about: p.Masked(),
			again: func() error { return s.set(p) },
			back:  func() error { return s.handle.RouteDel(s.route(p)) },
			there: func(*seen) bool { return s.there(p) },
		})
	}
	return nil
}

func (s *Signs) set(p netip.Prefix) error {
	if err := s.handle.RouteReplace(s.route(p)); err != nil {
		return s.problem("set", p, err)
	}
	return nil
}

// there reports whether a route is in the table, or cannot be looked for.
func (s *Signs) there(p netip.Prefix) bool {
	family := netlink.FAMILY_V4
	if p.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := s.handle.RouteListFiltered(family, s.route(p), netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST|netlink.RT_FILTER_TYPE)
	return err != nil || len(routes) > 0
}

func (s *Signs) key(p netip.Prefix) string {
	return fmt.Sprintf("route to %s in table %d", p.Masked(), s.table)
}

// Remove removes the routes to prefixes; one that is not there is no error.
func (s *Signs) Remove(prefixes ...netip.Prefix) error {
	for _, p := range prefixes {
		s.Host.forget(s.key(p))
		if err := s.handle.RouteDel(s.route(p)); err != nil && !gone(err) {
			return s.problem("remove", p, err)
		}
	}
	return nil
}

// Keep removes all routes of the table with our protocol number but those to
// these prefixes: what an earlier process has left.
func (s *Signs) Keep(prefixes ...netip.Prefix) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		filter := &netlink.Route{Table: s.table, Protocol: netlink.RouteProtocol(s.protocol), Type: unix.RTN_UNREACHABLE}
		routes, err := s.handle.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("cannot list the routes of table %d: %w", s.table, err)
		}
		for i := range routes {
			if p, ok := prefix(routes[i].Dst); ok && !slices.Contains(prefixes, p) {
				if err := s.Remove(p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Close lets go of the table and leaves the routes.
func (s *Signs) Close() { s.Host.Abandon() }

// route is unreachable, so that a packet which some rule sends to the table after
// all is refused and does not go round in circles.
func (s *Signs) route(p netip.Prefix) *netlink.Route {
	return &netlink.Route{
		Dst: ipNet(p.Masked()), Table: s.table, Protocol: netlink.RouteProtocol(s.protocol), Type: unix.RTN_UNREACHABLE,
	}
}

func (s *Signs) problem(what string, p netip.Prefix, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("no permission to %s the route to %s in table %d: run as root or with CAP_NET_ADMIN: %w", what, p, s.table, err)
	}
	return fmt.Errorf("cannot %s the route to %s in table %d: %w", what, p, s.table, err)
}
