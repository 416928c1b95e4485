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

// The refusal at the end of a VRF's table, as Documentation/networking/vrf.rst of the kernel has it:
// of the last metric that routing daemons take for one. The protocol is none of [RouteProtocol], by
// which they know what to tell of.
const (
	refusalMetric   = 4278198272
	RefusalProtocol = RouteProtocol + 1
)

// Contain refuses what no route of a VRF's table leads, in both families. Without that the kernel
// looks on in the main table, and what is of the VRF comes out in another network.
func (h *Host) Contain(vrf string) error {
	for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if err := h.refuse(netip.PrefixFrom(all, 0), vrf); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return nil
}

// refuse adds the refusal of one family; one that somebody else has set will do, and stays. Where it is lost it is
// back at the first look, however often: until then the VRF is open.
func (h *Host) refuse(all netip.Prefix, vrf string) error {
	r := refusal(all, 0)
	set := func() error {
		table, err := h.tableOf(vrf)
		if err != nil {
			return err
		}
		if r.Table != 0 && r.Table != int(table) { // of a VRF that has gone
			_ = h.handle.RouteDel(r)
		}
		r.Table = int(table)
		if err := h.handle.RouteAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("cannot refuse what no route of the VRF %s leads: %w", vrf, err)
		}
		return nil
	}
	if err := set(); err != nil {
		return err
	}
	h.done(&Thing{
		key: fmt.Sprintf("refusal of %s where no route of the VRF %s leads", all, vrf), link: loopback, about: all, again: set,
		lost: func() { _ = set() }, // what is in the way is told when it is set again
		back: func() error {
			v, err := h.vrf(vrf)
			links, listErr := h.linkList()
			if err == nil && listErr == nil && hasTUN(v, links) {
				return nil // it is another node's, too, which takes it back
			}
			return h.handle.RouteDel(r)
		},
		there: func(s *seen) bool {
			table, err := h.tableOf(vrf)
			return err == nil && s.hasRoute(all, loopback, refusalMetric, table)
		},
	})
	return nil
}

// refusal is the last route of a table.
func refusal(all netip.Prefix, table int) *netlink.Route {
	return &netlink.Route{Dst: ipNet(all), Table: table, Type: unix.RTN_UNREACHABLE, Priority: refusalMetric, Protocol: RefusalProtocol}
}

// RemoveLeftRefusals removes the refusals that processes have left which are gone, in the tables of all VRFs, and says in
// words which. Where a program has a TUN device of the VRF open, they are in use: that may be a node's.
func (h *Host) RemoveLeftRefusals() (removed, inUse []string, err error) {
	links, err := h.linkList()
	if err != nil {
		return nil, nil, err
	}
	list, err := h.refusals()
	errs := []error{err}
	for i := range list {
		all, table := destination(&list[i]), list[i].Table
		what := fmt.Sprintf("refusal of %s at the end of table %d", all, table)
		if device := openIn(table, links); device != "" {
			inUse = append(inUse, what+", by who has the device "+device)
			continue
		}
		switch err := h.handle.RouteDel(refusal(all, table)); {
		case err == nil:
			removed = append(removed, what)
		case !gone(err):
			errs = append(errs, fmt.Errorf("cannot remove the %s: %w", what, err))
		}
	}
	return removed, inUse, errors.Join(errs...)
}

// refusals lists those of all tables.
func (h *Host) refusals() (list []netlink.Route, err error) {
	ours := &netlink.Route{Protocol: RefusalProtocol, Type: unix.RTN_UNREACHABLE}
	err = h.whole(func() (err error) {
		list, err = h.handle.RouteListFiltered(netlink.FAMILY_ALL, ours, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE|netlink.RT_FILTER_TABLE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the routes: %w", err)
	}
	return slices.DeleteFunc(list, func(r netlink.Route) bool { return r.Priority != refusalMetric || destination(&r).Bits() > 0 }), nil
}

// openIn returns a TUN device in a VRF of a table that a program has open; empty: there is none.
func openIn(table int, links []netlink.Link) string {
	vrfs := map[int]bool{}
	for _, l := range links {
		v, ok := l.(*netlink.Vrf)
		vrfs[l.Attrs().Index] = ok && int(v.Table) == table
	}
	for _, l := range links {
		if vrfs[l.Attrs().MasterIndex] && isTUN(l) && isOpen(l) {
			return l.Attrs().Name
		}
	}
	return ""
}

// hasTUN reports whether a TUN device is in a VRF.
func hasTUN(v *netlink.Vrf, links []netlink.Link) bool {
	return slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().MasterIndex == v.Index && isTUN(l) })
}

// LocalFirst reports whether addresses of this host are looked up before the tables of VRFs: the
// kernel begins with such rules, so that who is in a VRF finds this host at each address that it has
// outside, and nobody else there.
func (h *Host) LocalFirst() (bool, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := h.handle.RuleList(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return false, fmt.Errorf("cannot list the policy rules: %w", err)
		}
		for _, r := range rules {
			if r.Table == unix.RT_TABLE_LOCAL && r.Priority < l3mdevPriority {
				return true, nil
			}
		}
	}
	return false, nil
}

// l3mdevPriority is that of the rule which the kernel adds with the first VRF (drivers/net/vrf.c).
const l3mdevPriority = 1000
