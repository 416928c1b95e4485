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
}

// Uplink6 looks for the link: name, or, if that is empty, the one of the default route
// that is not own. There is none, with an empty name, until the host has an address. A
// deprecated one will do where there is no other (RFC 4862 section 5.5.4).
func (h *Host) Uplink6(name, own string) (Uplink6, error) {
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
	state, err := h.LinkNamed(name)
	if err != nil || !state.Up {
		return Uplink6{}, err
	}
	addrs, err := h.IPv6()
	if err != nil {
		return Uplink6{}, err
	}
	l, err := h.link(name)
	if err != nil {
		return Uplink6{}, err
	}
	at := Uplink6{Name: name, Index: state.Index, MTU: l.Attrs().MTU, MAC: l.Attrs().HardwareAddr}
	for _, a := range addrs {
		if a.Link == name && a.Prefix.Bits() <= 64 {
			at.Subnet = netip.PrefixFrom(a.Prefix.Addr(), 64).Masked()
			return at, nil
		}
	}
	return Uplink6{}, nil
}
