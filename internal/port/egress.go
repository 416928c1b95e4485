// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Egress is how packets to one destination leave the host.
type Egress struct {
	// Source is the address that the kernel chooses for unbound sockets.
	Source netip.Addr
	// Link is the index of the interface.
	Link int
	// Gateway is the next hop; not valid where the destination is on the link.
	Gateway netip.Addr
}

// Egress asks the kernel how packets to dst leave the host.
func (h *Host) Egress(dst netip.Addr) (Egress, error) {
	routes, err := h.handle.RouteGet(net.IP(dst.AsSlice()))
	return egress(dst, routes, err)
}

// egress reads the kernel's answer.
func egress(dst netip.Addr, routes []netlink.Route, err error) (Egress, error) {
	if err != nil {
		return Egress{}, fmt.Errorf("this host has no route to %s: %w", dst, err)
	}
	for _, r := range routes {
		source, ok := netip.AddrFromSlice(r.Src)
		if !ok {
			continue
		}
		gateway, _ := netip.AddrFromSlice(r.Gw)
		return Egress{Source: source.Unmap(), Link: r.LinkIndex, Gateway: gateway.Unmap()}, nil
	}
	return Egress{}, fmt.Errorf("this host has no address to send from to %s", dst)
}

// Local reports whether packets to addr end on this host: whether the address is
// its own, or in a range that a local route gives it.
func (h *Host) Local(addr netip.Addr) bool { return h.localTo(addr, 0) }

// localTo is Local for packets to a VRF, 0 for those to none.
func (h *Host) localTo(addr netip.Addr, vrf int) bool {
	routes, err := h.handle.RouteGetWithOptions(net.IP(addr.AsSlice()), &netlink.RouteGetOptions{OifIndex: vrf})
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}
