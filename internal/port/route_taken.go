// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// RouteTakenError is a route of equal destination and metric through another
// link. It is not replaced, since it could not be put back after a crash.
type RouteTakenError struct {
	Dst       netip.Prefix
	Metric    int
	Link, VRF string
}

// Error implements error.
func (e *RouteTakenError) Error() string {
	family := "-4"
	if e.Dst.Addr().Is6() {
		family = "-6"
	}
	vrf := ""
	if e.VRF != "" {
		vrf = " vrf " + e.VRF
	}
	return fmt.Sprintf("a route to %s with metric %d exists already, through %s: remove it (ip %s route del%s %s dev %s metric %d)",
		e.Dst, e.Metric, e.Link, family, vrf, e.Dst, e.Link, e.Metric)
}

// RouteFree tells why [Host.AddRoute] would refuse a route, without changing
// anything. The link need not exist yet.
func (h *Host) RouteFree(r Route) error { return h.routesFree([]Route{r})[0] }

// routesFree does the same for many, with an error or nil for each.
func (h *Host) routesFree(list []Route) []error {
	type place struct {
		vrf    string
		dst    netip.Prefix
		metric int
	}
	taken, errs := make(map[place]*netlink.Route), make([]error, len(list))
	listed := make(map[string]error) // by VRF
	look := func(vrf string) error {
		routes, err := h.routesOf(netlink.FAMILY_ALL, vrf)
		for i := range routes {
			at := place{vrf, destination(&routes[i]), routes[i].Priority}
			if taken[at] == nil {
				taken[at] = &routes[i]
			}
		}
		return err
	}
	links := make(map[string]int)
	for i, r := range list {
		if _, done := listed[r.VRF]; !done {
			listed[r.VRF] = look(r.VRF)
		}
		if errs[i] = listed[r.VRF]; errs[i] != nil {
			continue
		}
		if other := taken[place{r.VRF, r.Dst.Masked(), r.metric()}]; other != nil {
			if _, known := links[r.Link]; !known {
				links[r.Link] = -1
				if l, err := h.handle.LinkByName(r.Link); err == nil {
					links[r.Link] = l.Attrs().Index
				}
			}
			_, errs[i] = h.takenBy(r, other, links[r.Link])
		}
	}
	return errs
}

// occupied looks at the route that is in the way of r through the link of that
// index. It returns true if that goes through the same link but is not ours, and
// an error if it goes elsewhere.
func (h *Host) occupied(r Route, link int) (foreign bool, err error) {
	family := netlink.FAMILY_V4
	if r.Dst.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := h.routesOf(family, r.VRF)
	for i := range routes {
		if routes[i].Priority == r.metric() && destination(&routes[i]) == r.Dst.Masked() {
			return h.takenBy(r, &routes[i], link)
		}
	}
	return false, err // it has gone meanwhile
}

// takenBy tells the same of the route that is there.
func (h *Host) takenBy(r Route, other *netlink.Route, link int) (foreign bool, err error) {
	if leavesBy(*other, func(index int) bool { return index == link }) {
		return other.Protocol != RouteProtocol, nil
	}
	return false, &RouteTakenError{Dst: r.Dst.Masked(), Metric: r.metric(), Link: h.linkOf(other), VRF: r.VRF}
}

// routesOf lists the routes of a VRF's table, or of the main one.
func (h *Host) routesOf(family int, vrf string) ([]netlink.Route, error) {
	table, err := h.tableOf(vrf)
	if err != nil {
		return nil, err
	}
	routes, err := h.handle.RouteListFiltered(family, &netlink.Route{Table: int(table)}, netlink.RT_FILTER_TABLE)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("cannot list the routes: %w", err)
	}
	return routes, nil
}

// linkOf names the link of a route, or the first of its links.
func (h *Host) linkOf(r *netlink.Route) string {
	index := r.LinkIndex
	if len(r.MultiPath) > 0 {
		index = r.MultiPath[0].LinkIndex
	}
	l, err := h.handle.LinkByIndex(index)
	if err != nil {
		return "another interface"
	}
	return l.Attrs().Name
}
