// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// HoldAddr gives a link an IPv6 address, or changes one that it has, with no route to its network.
// One that is not preferred is deprecated from the first: while the host has another, it is for
// those alone who bind to it (RFC 6724 section 5, rule 3).
func (h *Host) HoldAddr(link string, addr netip.Prefix, preferred bool) error {
	a := &netlink.Addr{IPNet: ipNet(addr), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE, ValidLft: math.MaxUint32}
	if preferred {
		a.PreferedLft = math.MaxUint32
	}
	return h.setAddr(link, addr, a, false)
}

// SourceRoute is an IPv6 route through a link for the packets of one source alone. Among routes to
// one destination the kernel takes it before those for all sources; a route to a narrower
// destination comes first. It goes with its link, as every route does.
type SourceRoute struct {
	Dst    netip.Prefix
	Source netip.Addr
	Link   string
	Metric int
}

func (r *SourceRoute) key() string {
	return fmt.Sprintf("route from %s to %s through %s", r.Source, r.Dst, r.Link)
}

// AddSourceRoute adds such a route; one that is there already stays.
func (h *Host) AddSourceRoute(r SourceRoute) error {
	l, err := h.link(r.Link)
	if err != nil {
		return err
	}
	index := l.Attrs().Index
	set := func() error {
		err := h.changeSourceRoute(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, r, index)
		switch {
		case err == nil, errors.Is(err, unix.EEXIST):
			return nil
		case errors.Is(err, unix.EINVAL):
			return fmt.Errorf("this kernel has no routes for single sources (CONFIG_IPV6_SUBTREES): %w", err)
		}
		return h.problem(fmt.Sprintf("add the route from %s to %s through", r.Source, r.Dst), r.Link, err)
	}
	err = set()
	if err != nil && !errors.Is(err, unix.ENETDOWN) {
		return err
	}
	at := place{kind: aRoute, dst: r.Dst.Masked(), link: index, metric: uint32(r.Metric), table: unix.RT_TABLE_MAIN, from: alone(r.Source)}
	h.done(&Thing{
		key: r.key(), link: index, about: r.Dst.Masked(), again: set,
		back:  func() error { return h.changeSourceRoute(unix.RTM_DELROUTE, 0, r, index) },
		there: func(s *seen) bool { return s.places[at] },
	})
	return err
}

// RemoveSourceRoute removes such a route; one that is not there is no error.
func (h *Host) RemoveSourceRoute(r SourceRoute) error {
	h.forget(r.key())
	l, err := h.link(r.Link)
	if err != nil {
		return unlessGone(err)
	}
	if err := h.changeSourceRoute(unix.RTM_DELROUTE, 0, r, l.Attrs().Index); err != nil && !gone(err) {
		return h.problem(fmt.Sprintf("remove the route from %s to %s through", r.Source, r.Dst), r.Link, err)
	}
	return nil
}

// changeSourceRoute makes the message, for which the netlink library has no form.
func (h *Host) changeSourceRoute(kind, flags int, r SourceRoute, link int) error {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.Sockets = h.raw
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{
		Family: unix.AF_INET6, Dst_len: uint8(r.Dst.Bits()), Src_len: 128, Table: unix.RT_TABLE_MAIN,
		Protocol: RouteProtocol, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST,
	}})
	number := func(n int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	req.AddData(nl.NewRtAttr(unix.RTA_DST, r.Dst.Masked().Addr().AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_SRC, r.Source.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_OIF, number(link)))
	req.AddData(nl.NewRtAttr(unix.RTA_PRIORITY, number(r.Metric)))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func alone(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
