// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// AddProxy has the host answer for an address on a link, by ARP or Neighbor Discovery,
// as long as its route leads elsewhere and the link forwards.
func (h *Host) AddProxy(link string, addr netip.Addr) error {
	n, err := h.proxy(link, addr)
	if err != nil {
		return err
	}
	set := func() error {
		if err := h.setProxy(n, addr); err != nil {
			return h.problem(fmt.Sprintf("answer for %s on", addr), link, err)
		}
		return nil
	}
	if err := set(); err != nil {
		return err
	}
	h.done(&Thing{
		key: proxyKey(link, addr), link: n.LinkIndex, again: set, quiet: true,
		back:  func() error { return h.handle.NeighDel(n) },
		there: func(s *seen) bool { return s.places[proxyPlace(n.LinkIndex, addr)] },
	})
	return nil
}

// RemoveProxy undoes [Host.AddProxy]; what is not there is no error.
func (h *Host) RemoveProxy(link string, addr netip.Addr) error {
	h.forget(proxyKey(link, addr))
	n, err := h.proxy(link, addr)
	if err != nil {
		return unlessGone(err)
	}
	if err := h.handle.NeighDel(n); err != nil && !gone(err) {
		return h.problem(fmt.Sprintf("stop answering for %s on", addr), link, err)
	}
	return nil
}

// setProxy sets a proxy with our mark, for which netlink's own type has no field.
func (h *Host) setProxy(n *netlink.Neigh, addr netip.Addr) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.Sockets = h.raw
	req.AddData(&netlink.Ndmsg{Family: uint8(n.Family), Index: uint32(n.LinkIndex), Flags: unix.NTF_PROXY})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, addr.AsSlice()))
	req.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{RouteProtocol}))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// RemoveLeftProxies removes proxies of ours that processes left which are gone, and says
// in words which: those of addresses that no route of ours leads anywhere. The routes of a
// process go with its device.
func (h *Host) RemoveLeftProxies() (removed []string, err error) {
	proxies, err := h.ourProxies()
	if err != nil || len(proxies) == 0 {
		return nil, err
	}
	// After the proxies, which are set after the routes.
	led, err := h.led()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, n := range proxies {
		addr, _ := netip.AddrFromSlice(n.IP)
		if slices.ContainsFunc(led, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			continue
		}
		link := fmt.Sprintf("interface %d", n.LinkIndex)
		if l, err := h.handle.LinkByIndex(n.LinkIndex); err == nil {
			link = l.Attrs().Name
		}
		switch err := h.handle.NeighDel(n); {
		case err == nil:
			removed = append(removed, fmt.Sprintf("answers for %s on %s", addr, link))
		case !gone(err):
			errs = append(errs, h.problem(fmt.Sprintf("stop answering for %s on", addr), link, err))
		}
	}
	return removed, errors.Join(errs...)
}

// ourProxies lists the proxies with our mark.
func (h *Host) ourProxies() ([]*netlink.Neigh, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	req.Sockets = h.raw
	req.AddData(&netlink.Ndmsg{Flags: unix.NTF_PROXY})
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, fmt.Errorf("cannot list the addresses that this host answers for: %w", err)
	}
	var list []*netlink.Neigh
	for _, m := range messages {
		n, err := netlink.NeighDeserialize(m)
		if err != nil || n.Flags&unix.NTF_PROXY == 0 {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[(&netlink.Ndmsg{}).Len():])
		if err == nil && slices.ContainsFunc(attrs, ourMark) {
			list = append(list, n)
		}
	}
	return list, nil
}

func ourMark(a syscall.NetlinkRouteAttr) bool {
	return a.Attr.Type == netlink.NDA_PROTOCOL && len(a.Value) > 0 && a.Value[0] == RouteProtocol
}

// wholeTries is how often a list is asked for that changes meanwhile. A route that is missed
// would end the answers of a living process, or let packets to this host itself through.
const wholeTries = 20

// led lists what our routes lead to a device, but for default routes, which lead packets
// for whomever.
func (h *Host) led() (list []netip.Prefix, err error) {
	all, err := h.ourRoutes(&netlink.Route{}, 0)
	return slices.DeleteFunc(all, func(p netip.Prefix) bool { return p.Bits() == 0 }), err
}

// RoutesBy lists the destinations of the routes of ours through a link, such as those that an
// earlier process has left.
func (h *Host) RoutesBy(link string) ([]netip.Prefix, error) {
	l, err := h.link(link)
	if err != nil {
		return nil, err
	}
	return h.ourRoutes(&netlink.Route{LinkIndex: l.Attrs().Index}, netlink.RT_FILTER_OIF)
}

// ourRoutes lists the destinations of the unicast routes of ours that a filter chooses.
func (h *Host) ourRoutes(filter *netlink.Route, by uint64) (list []netip.Prefix, err error) {
	filter.Protocol, filter.Type = RouteProtocol, unix.RTN_UNICAST
	var routes []netlink.Route
	for range wholeTries {
		routes, err = h.handle.RouteListFiltered(netlink.FAMILY_ALL, filter, by|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the routes: %w", err)
	}
	for i := range routes {
		list = append(list, destination(&routes[i]))
	}
	return list, nil
}

func proxyKey(link string, addr netip.Addr) string {
	return "answer for " + addr.String() + " on " + link
}

func (h *Host) proxy(link string, addr netip.Addr) (*netlink.Neigh, error) {
	l, err := h.link(link)
	if err != nil {
		return nil, err
	}
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	return &netlink.Neigh{
		LinkIndex: l.Attrs().Index, Family: family, Flags: unix.NTF_PROXY, IP: net.IP(addr.AsSlice()),
	}, nil
}
