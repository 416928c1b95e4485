// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/netattr"
)

// route6 is an IPv6 route of the kernel.
type route6 struct {
	dst    netip.Prefix
	table  uint32
	metric uint32
	link   uint32
	source bool // it is for packets of some sources only
}

// findRoutes looks for routes that take packets for the role's prefixes
// elsewhere: more specific ones, own addresses among them, and better ones; and
// for any route that is for some sources only.
func findRoutes(q Query) ([]Finding, error) {
	if len(q.Prefixes) == 0 || q.Host {
		return nil, nil
	}
	tunnel := uint32(0)
	if l, err := netlink.LinkByName(q.Tunnel); err == nil {
		tunnel = uint32(l.Attrs().Index)
	}
	inside, err := routesInside(q.Prefixes)
	if err != nil {
		return nil, unread("the IPv6 routes", err)
	}
	var found []Finding
	for _, r := range inside {
		if r.source {
			found = append(found, Finding{
				What:   "IPv6 routes for some sources",
				Detail: fmt.Sprintf("one of them is that to %s %s, and a next hop is kept for all sources", r.dst, r.way()),
				Remedy: fmt.Sprintf("Remove it (ip -6 route show table all %s), %s.", r.dst, choose),
			})
			break
		}
	}
	for _, prefix := range q.Prefixes {
		for _, r := range elsewhere(prefix.Masked(), tunnel, inside) {
			found = append(found, Finding{
				What:   fmt.Sprintf("another route for %s", r.dst),
				Detail: fmt.Sprintf("its packets would go to this instance, by its route for %s, and not %s", prefix, r.way()),
				Remedy: fmt.Sprintf("Remove it (ip -6 route show table all %s), %s.", r.dst, choose),
			})
		}
	}
	return found, nil
}

// way says where a route leads.
func (r *route6) way() string {
	if r.table == unix.RT_TABLE_LOCAL {
		return "to this host itself"
	}
	if l, err := netlink.LinkByIndex(int(r.link)); err == nil {
		return "through " + l.Attrs().Name
	}
	return "where that route leads"
}

// elsewhere returns the routes that win over the role's own route to a prefix.
// While it has none yet, only more specific ones do: the role itself refuses to
// start beside an equal one.
func elsewhere(prefix netip.Prefix, tunnel uint32, routes []route6) []route6 {
	own, has := uint32(0), false
	for _, r := range routes {
		if r.dst == prefix && tunnel != 0 && r.link == tunnel && (!has || r.metric < own) {
			own, has = r.metric, true
		}
	}
	var found []route6
	for _, r := range routes {
		if tunnel != 0 && r.link == tunnel || !prefix.Contains(r.dst.Addr()) || r.dst.Bits() < prefix.Bits() {
			continue
		}
		if r.dst.Bits() > prefix.Bits() || has && r.metric < own {
			found = append(found, r)
		}
	}
	return found
}

// maxRoutesInside bounds the list of foreign routes; a few are enough to say no.
const maxRoutesInside = 64

// routesInside lists the routes of the tables "main" and "local" inside any of
// the prefixes, and those of some sources. Other tables are reached by policy rules only.
func routesInside(prefixes []netip.Prefix) ([]route6, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET6}})
	var inside []route6
	err := req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(msg []byte) bool {
		if r, ok := parseRoute6(msg); ok && within(prefixes, r) {
			inside = append(inside, r)
		}
		return len(inside) < maxRoutesInside
	})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // no IPv6
	}
	// What changed meanwhile is told by an event, after which all is read again.
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil
	}
	return inside, err
}

// within reports whether a route may take packets for one of the prefixes, or
// packets of some sources.
func within(prefixes []netip.Prefix, r route6) bool {
	if r.table != unix.RT_TABLE_MAIN && r.table != unix.RT_TABLE_LOCAL {
		return false
	}
	if r.source {
		return true
	}
	for _, p := range prefixes {
		if r.dst.Bits() >= p.Bits() && p.Contains(r.dst.Addr()) {
			return true
		}
	}
	return false
}

// parseRoute6 reads the body of a route message.
func parseRoute6(msg []byte) (route6, bool) {
	if len(msg) < unix.SizeofRtMsg || msg[0] != unix.AF_INET6 || msg[1] > 128 {
		return route6{}, false
	}
	r := route6{table: uint32(msg[4]), source: msg[2] != 0}
	dst := netip.IPv6Unspecified()
	for attr, value := range netattr.All(msg[unix.SizeofRtMsg:]) {
		switch {
		case attr == unix.RTA_DST && len(value) == 16:
			dst = netip.AddrFrom16([16]byte(value))
		case attr == unix.RTA_TABLE && len(value) == 4:
			r.table = binary.NativeEndian.Uint32(value)
		case attr == unix.RTA_PRIORITY && len(value) == 4:
			r.metric = binary.NativeEndian.Uint32(value)
		case attr == unix.RTA_OIF && len(value) == 4:
			r.link = binary.NativeEndian.Uint32(value)
		}
	}
	r.dst = netip.PrefixFrom(dst, int(msg[1])).Masked()
	return r, true
}
