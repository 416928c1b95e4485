// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of <linux/if_link.h> and <linux/ipv6.h>.
const (
	inet6Conf = 2 // IFLA_INET6_CONF
	confMTU6  = 2 // DEVCONF_MTU6
)

var errNoIPv6 = errors.New("the interface has no IPv6")

// MTU6 returns the size of the largest IPv6 packet that a link takes: its own MTU, or less if
// a router has advertised that (RFC 4861 section 4.6.4). It asks by netlink, which knows the
// namespace of the handle.
func (h *Host) MTU6(link int) (int, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	req.Sockets = h.raw
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(link)
	req.AddData(msg)
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return 0, fmt.Errorf("cannot look at interface %d: %w", link, err)
	}
	for _, m := range answers {
		if conf := attribute(m[min(len(m), unix.SizeofIfInfomsg):], unix.IFLA_AF_SPEC, unix.AF_INET6, inet6Conf); len(conf) >= 4*(confMTU6+1) {
			return int(binary.NativeEndian.Uint32(conf[4*confMTU6:])), nil
		}
	}
	return 0, fmt.Errorf("cannot tell the IPv6 MTU of interface %d: %w", link, errNoIPv6)
}

// attribute returns the value of a nested attribute; nil if there is none.
func attribute(b []byte, path ...uint16) []byte {
	for _, want := range path {
		attrs, err := nl.ParseRouteAttr(b)
		b = nil
		for _, a := range attrs {
			if err == nil && a.Attr.Type&^unix.NLA_F_NESTED == want {
				b = a.Value
			}
		}
	}
	return b
}

// PathMTU6 returns the size of the largest IPv6 packet that may leave by a link for a
// destination: what the link takes, or less if the route says so, or what the kernel has learnt
// of the path (RFC 8201).
func (h *Host) PathMTU6(dst netip.Addr, link int) (int, error) {
	mtu, err := h.MTU6(link)
	if err != nil {
		return 0, err
	}
	routes, err := h.handle.RouteGetWithOptions(net.IP(dst.AsSlice()), &netlink.RouteGetOptions{OifIndex: link})
	if err != nil || len(routes) == 0 || routes[0].MTU == 0 {
		return mtu, nil // without a route no packet leaves either
	}
	return min(mtu, routes[0].MTU), nil
}
