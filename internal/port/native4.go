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

// NativeIPv4 reports whether the host has a default route of IPv4 by a link other than
// own.
func (h *Host) NativeIPv4(own string) (bool, error) {
	names, err := h.linkNames()
	if err != nil {
		return false, err
	}
	routes, err := h.handle.RouteList(nil, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, fmt.Errorf("cannot list the IPv4 routes: %w", err)
	}
	foreign := func(index int) bool { return names[index] != own }
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		if r.Type != unix.RTN_UNICAST || !leavesBy(r, foreign) {
			return false
		}
		p, ok := prefix(r.Dst)
		return r.Dst == nil || ok && p.Bits() == 0
	}), nil
}

// Uplink6 is the link by which the host reaches the IPv6 Internet, with a network of
// its own on it.
type Uplink6 struct {
	Name  string
	Index int
	MTU   int // of the link, in bytes
	// Subnet has 64 bits, and a global address of the host is in it.
	Subnet netip.Prefix
	// MAC is the link-layer address; empty where there is none.
	MAC []byte
	// Narrow, without a Name, is a link on which the host has addresses, but none in a network
	// of 64 bits, as by DHCPv6, which gives addresses without a network (RFC 8415 section
	// 21.6): where another address would be is not known.
	Narrow string
}

// Uplink6 looks for the link: name, or, if that is empty, the one of the default route
// that is not own. There is none, with an empty name, until the host has an address. Of
// several networks it stays in that of present, and goes into a global one before one of
// unique local addresses; a deprecated address will do where there is no other (RFC 4862
// section 5.5.4).
func (h *Host) Uplink6(name, own string, present netip.Prefix) (Uplink6, error) {
	if name == "" {
		routes, err := h.handle.RouteGet(globalUnicast.Addr().AsSlice())
		if err != nil || len(routes) == 0 {
			return Uplink6{}, nil // the answer of a host without a route
		}
		l, err := h.handle.LinkByIndex(routes[0].LinkIndex)
		if err != nil || l.Attrs().Name == own {
			return Uplink6{}, nil // it has just gone
		}
		name = l.Attrs().Name
	}
	l, err := h.handle.LinkByName(name)
	state, err := linkState(l, err)
	if err != nil || !state.Up {
		return Uplink6{}, err
	}
	addrs, err := h.IPv6()
	if err != nil {
		return Uplink6{}, err
	}
	addrs = slices.DeleteFunc(addrs, func(a IPv6) bool { return a.Link != name })
	some := len(addrs) > 0
	addrs = slices.DeleteFunc(addrs, func(a IPv6) bool { return a.Prefix.Bits() > 64 })
	switch {
	case len(addrs) == 0 && some:
		return Uplink6{Narrow: name}, nil
	case len(addrs) == 0:
		return Uplink6{}, nil
	}
	rank := func(a IPv6) (n int) {
		if a.Deprecated {
			n += 4
		}
		if !present.Contains(a.Prefix.Addr()) {
			n += 2
		}
		if a.Prefix.Addr().IsPrivate() {
			n++
		}
		return n
	}
	best := slices.MinFunc(addrs, func(a, b IPv6) int { return rank(a) - rank(b) })
	return Uplink6{
		Name: name, Index: state.Index, MTU: l.Attrs().MTU, MAC: l.Attrs().HardwareAddr,
		Subnet: netip.PrefixFrom(best.Prefix.Addr(), 64).Masked(),
	}, nil
}
