// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Lacks says of an address why packets for it do not end on this host, and what to do; empty:
// they do. The kernel keeps an IPv4 address of an interface that is switched off.
func (h *Host) Lacks(addr netip.Addr) (problem, remedy string) {
	routes, err := h.handle.RouteGetWithOptions(net.IP(addr.AsSlice()), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
		return "has gone from this host", "add it again (ip address add), or change the configuration and restart"
	}
	link, err := h.handle.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", "" // it is of no link
	}
	if at := link.Attrs(); at.RawFlags&(unix.IFF_UP|unix.IFF_LOOPBACK) == 0 {
		return fmt.Sprintf("is on the interface %s, which is switched off", at.Name), fmt.Sprintf("switch it on (ip link set %s up)", at.Name)
	}
	return "", ""
}
