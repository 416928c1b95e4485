// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddProxy has the host answer for an address on a link, by ARP or Neighbor Discovery,
// as long as its route leads elsewhere and the link forwards.
func (h *Host) AddProxy(link string, addr netip.Addr) error {
	n, err := h.proxy(link, addr)
	if err != nil {
		return err
	}
	if err := h.handle.NeighSet(n); err != nil {
		return h.problem(fmt.Sprintf("answer for %s on", addr), link, err)
	}
	h.done(proxyKey(link, addr), func() error { return h.handle.NeighDel(n) })
	return nil
}

// RemoveProxy undoes [Host.AddProxy]; what is not there is no error.
func (h *Host) RemoveProxy(link string, addr netip.Addr) error {
	h.forget(proxyKey(link, addr))
	n, err := h.proxy(link, addr)
	if err != nil {
		return err
	}
	if err := h.handle.NeighDel(n); err != nil && !gone(err) {
		return h.problem(fmt.Sprintf("stop answering for %s on", addr), link, err)
	}
	return nil
}

func proxyKey(link string, addr netip.Addr) string { return "proxy " + link + " " + addr.String() }

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
