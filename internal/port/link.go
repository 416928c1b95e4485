// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkState is the state of an interface.
type LinkState struct {
	Name  string
	Index int
	// Up reports that it is switched on and has a carrier.
	Up bool
	// Carrier is what the driver says this moment. The kernel tells of a carrier that was
	// lost up to a second later, and has Up follow then.
	Carrier bool
}

// LinkNamed returns the state of an interface; there is none, with index 0, of an
// interface that does not exist.
func (h *Host) LinkNamed(name string) (LinkState, error) {
	l, err := h.handle.LinkByName(name)
	return linkState(l, err)
}

// LinkAt is LinkNamed by index.
func (h *Host) LinkAt(index int) (LinkState, error) {
	l, err := h.handle.LinkByIndex(index)
	return linkState(l, err)
}

func linkState(l netlink.Link, err error) (LinkState, error) {
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return LinkState{}, nil
	}
	if err != nil {
		return LinkState{}, fmt.Errorf("cannot look at the network interfaces: %w", err)
	}
	const on = unix.IFF_UP | unix.IFF_RUNNING
	a := l.Attrs()
	return LinkState{Name: a.Name, Index: a.Index, Up: a.RawFlags&on == on, Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0}, nil
}

// EgressBy is Egress for a socket that is bound to an interface.
func (h *Host) EgressBy(dst netip.Addr, link string) (Egress, error) {
	if link == "" {
		return h.Egress(dst)
	}
	routes, err := h.handle.RouteGetWithOptions(net.IP(dst.AsSlice()), &netlink.RouteGetOptions{Oif: link})
	return egress(dst, routes, err)
}

// EgressFrom is Egress for a socket that is bound to an interface and to an address of it, where the
// kernel has a route for packets from there, which may be for these alone. The source is that
// address.
func (h *Host) EgressFrom(dst netip.Addr, link string, source netip.Addr) (Egress, error) {
	l, err := h.link(link)
	if err != nil {
		return Egress{}, err
	}
	// With a source the kernel takes the interface for a wish.
	routes, err := h.handle.RouteGetWithOptions(net.IP(dst.AsSlice()), &netlink.RouteGetOptions{OifIndex: l.Attrs().Index, SrcAddr: source.AsSlice()})
	if err != nil {
		return Egress{}, fmt.Errorf("this host has no route from %s to %s: %w", source, dst, err)
	}
	for _, r := range routes {
		if r.LinkIndex == l.Attrs().Index {
			gateway, _ := netip.AddrFromSlice(r.Gw)
			return Egress{Source: source, Link: r.LinkIndex, Gateway: gateway.Unmap()}, nil
		}
	}
	return Egress{}, fmt.Errorf("this host has no route from %s to %s through %s", source, dst, link)
}

// Takes reports whether this host takes packets for an address: one of its own, or one
// that a route makes local.
func (h *Host) Takes(ip netip.Addr) bool {
	routes, err := h.handle.RouteGet(ip.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// Prefer makes an IPv6 address that the link has the one for new connections, or
// deprecates it: it keeps working for those that use it (RFC 4862 section 5.5.4).
func (h *Host) Prefer(link string, addr netip.Prefix, preferred bool) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: ipNet(addr), Flags: unix.IFA_F_NODAD, ValidLft: math.MaxUint32}
	if preferred {
		a.PreferedLft = math.MaxUint32
	}
	set := func() error {
		if err := h.handle.AddrReplace(l, a); err != nil {
			return h.problem(fmt.Sprintf("change the lifetime of %s on", addr), link, err)
		}
		return nil
	}
	if err := set(); err != nil {
		return err
	}
	h.doneAddr(link, l, addr, true, set)
	return nil
}

// Wire is what a fast path wants to know of an interface.
type Wire struct {
	// Kind is as rtnetlink says, such as "veth"; "device" is hardware. That of a VLAN
	// is the one of the interface below.
	Kind string
	MTU  int
}

// maxStack is how many VLANs lie on top of each other at most.
const maxStack = 4

// WireAt looks at an interface by index.
func (h *Host) WireAt(index int) (Wire, error) {
	l, err := h.handle.LinkByIndex(index)
	if err != nil {
		return Wire{}, fmt.Errorf("cannot look at interface %d: %w", index, err)
	}
	mtu := l.Attrs().MTU
	for range maxStack {
		// An interface below that is in another namespace cannot be looked at.
		if l.Type() != "vlan" || l.Attrs().ParentIndex == 0 || l.Attrs().NetNsID >= 0 {
			break
		}
		if l, err = h.handle.LinkByIndex(l.Attrs().ParentIndex); err != nil {
			return Wire{}, fmt.Errorf("cannot look at the interface below interface %d: %w", index, err)
		}
	}
	return Wire{Kind: l.Type(), MTU: mtu}, nil
}
