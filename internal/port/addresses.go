// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IPv4 is one of the host's own IPv4 addresses.
type IPv4 struct {
	// Prefix is the address with its prefix length.
	Prefix netip.Prefix
	// Broadcast is the directed broadcast of its network; not valid for
	// prefixes of 31 and 32 bits without one.
	Broadcast netip.Addr
	Link      string
}

// IPv4 lists the host's IPv4 addresses, loopback included.
func (h *Host) IPv4() ([]IPv4, error) {
	addrs, names, err := h.addrs(netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	var list []IPv4
	for _, a := range addrs {
		p, ok := prefix(a.IPNet)
		if !ok {
			continue
		}
		own := IPv4{Prefix: p, Link: names[a.LinkIndex]}
		if b, ok := netip.AddrFromSlice(a.Broadcast.To4()); ok {
			own.Broadcast = b
		} else if p.Bits() <= 30 {
			own.Broadcast = lastAddr(p)
		}
		list = append(list, own)
	}
	return list, nil
}

// IPv6 is one of the host's own IPv6 addresses.
type IPv6 struct {
	Prefix netip.Prefix
	Link   string
	// Deprecated marks an address that works, and that nothing new should use while there
	// is another (RFC 4862 section 5.5.4).
	Deprecated bool
}

// IPv6 lists the host's IPv6 addresses that are ready for use, without those of links
// and the loopback's; deprecated ones come last.
func (h *Host) IPv6() ([]IPv6, error) {
	addrs, names, err := h.addrs(netlink.FAMILY_V6)
	if err != nil {
		return nil, err
	}
	var list []IPv6
	for _, a := range addrs {
		p, ok := prefix(a.IPNet)
		if !ok || !p.Addr().IsGlobalUnicast() || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
			continue
		}
		list = append(list, IPv6{p, names[a.LinkIndex], deprecated(a)})
	}
	slices.SortStableFunc(list, func(a, b IPv6) int {
		switch {
		case a.Deprecated == b.Deprecated:
			return 0
		case b.Deprecated:
			return -1
		}
		return 1
	})
	return list, nil
}

// Address is one of the host's own addresses, of either family.
type Address struct {
	Prefix     netip.Prefix
	Link       LinkState
	Deprecated bool
}

// Addresses lists the host's addresses that are ready for use with the states of their links, by two
// questions to the kernel alone. The list is whole, or there is an error: what is missing would count as gone.
func (h *Host) Addresses() ([]Address, error) {
	var addrs []netlink.Addr
	var links []netlink.Link
	err := h.whole(func() (err error) {
		addrs, err = h.handle.AddrList(nil, netlink.FAMILY_ALL)
		return err
	})
	if err == nil {
		err = h.whole(func() (err error) {
			links, err = h.handle.LinkList()
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the host's addresses: %w", err)
	}
	states := make(map[int]LinkState, len(links))
	for _, l := range links {
		states[l.Attrs().Index], _ = linkState(l, nil)
	}
	var list []Address
	for _, a := range addrs {
		if p, ok := prefix(a.IPNet); ok && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
			list = append(list, Address{p, states[a.LinkIndex], deprecated(a)})
		}
	}
	return list, nil
}

// addrs lists addresses of one family and the names of the links.
func (h *Host) addrs(family int) ([]netlink.Addr, map[int]string, error) {
	addrs, err := h.handle.AddrList(nil, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, nil, fmt.Errorf("cannot list the host's addresses: %w", err)
	}
	names, err := h.linkNames()
	return addrs, names, err
}

// linkList lists the links.
func (h *Host) linkList() ([]netlink.Link, error) {
	links, err := h.handle.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("cannot list the network interfaces: %w", err)
	}
	return links, nil
}

// linkNames maps interface indexes to names.
func (h *Host) linkNames() (map[int]string, error) {
	links, err := h.linkList()
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names, nil
}

// globalUnicast is what IANA has given out of the IPv6 space (RFC 3587).
var globalUnicast = netip.MustParsePrefix("2000::/3")

// NativeIPv6 reports whether the host reaches the IPv6 Internet without us: it
// has a default route (or one for 2000::/3) and a usable global address, both
// on links other than own. Addresses in the Teredo prefixes do not count.
func (h *Host) NativeIPv6(own []string, teredo ...netip.Prefix) (bool, error) {
	addrs, err := h.handle.AddrList(nil, netlink.FAMILY_V6)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, fmt.Errorf("cannot list the host's addresses: %w", err)
	}
	if addrs = slices.DeleteFunc(addrs, func(a netlink.Addr) bool { return !usable(a, teredo) }); len(addrs) == 0 {
		return false, nil // of most hosts, each time that something changes
	}
	names, err := h.linkNames()
	if err != nil {
		return false, err
	}
	foreign := func(index int) bool { return names[index] != "" && !slices.Contains(own, names[index]) }
	if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return foreign(a.LinkIndex) }) {
		return false, nil
	}
	routes, err := h.handle.RouteList(nil, netlink.FAMILY_V6)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, fmt.Errorf("cannot list the IPv6 routes: %w", err)
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Type == unix.RTN_UNICAST && coversInternet(r.Dst) && leavesBy(r, foreign)
	}), nil
}

// deprecated reports whether an address works, and should not be the choice for anything new.
func deprecated(a netlink.Addr) bool { return a.Flags&unix.IFA_F_DEPRECATED != 0 }

// usable reports a global address, ready for use, that is not Teredo's.
func usable(a netlink.Addr, teredo []netip.Prefix) bool {
	p, ok := prefix(a.IPNet)
	if !ok || !globalUnicast.Contains(p.Addr()) {
		return false
	}
	if a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
		return false
	}
	return !slices.ContainsFunc(teredo, func(t netip.Prefix) bool { return t.Contains(p.Addr()) })
}

// coversInternet reports a default route or one at least as wide as 2000::/3.
func coversInternet(dst *net.IPNet) bool {
	if dst == nil {
		return true
	}
	p, ok := prefix(dst)
	return ok && p.Bits() <= globalUnicast.Bits() && p.Contains(globalUnicast.Addr())
}

// leavesBy reports whether any next hop of a route is on a fitting link.
func leavesBy(r netlink.Route, fits func(index int) bool) bool {
	if len(r.MultiPath) == 0 {
		return fits(r.LinkIndex)
	}
	return slices.ContainsFunc(r.MultiPath, func(n *netlink.NexthopInfo) bool { return fits(n.LinkIndex) })
}

// prefix turns net's form into a prefix, host bits kept.
func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if !ok || size == 0 {
		return netip.Prefix{}, false
	}
	if size == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits), true
}

// lastAddr is the highest address of an IPv4 prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(a)
}
