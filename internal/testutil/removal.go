// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LastRestore is the longest wait of an instance under Removes before it sets up again what
// was removed once more: there is no need to wait for that, as for an operator who insists.
const LastRestore = 100 * time.Millisecond

// piece is an address of a device, a route to it, or an answer that its owner gives.
type piece struct {
	name   string
	remove func() error
}

// Removes removes, one by one and as an operator would, each address of a device, each
// route to it and each address that the namespace answers for; and waits each time until all
// is there again and works.
func (n *Netns) Removes(t *testing.T, device string, works func(t *testing.T)) {
	t.Helper()
	want := n.pieces(t, device)
	all := piece{"all at once", func() error {
		var errs []error
		for _, p := range want {
			errs = append(errs, p.remove())
		}
		// The routes of an address go with it.
		if err := errors.Join(errs...); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		return nil
	}}
	for _, p := range append(want, all) {
		n.try(t, device, p, names(want), works)
	}
}

// RemovesDevice does the same to the device itself.
func (n *Netns) RemovesDevice(t *testing.T, device string, works func(t *testing.T)) {
	t.Helper()
	want, elsewhere := names(n.pieces(t, device)), NewNetns(t)
	for name, change := range map[string]func(netlink.Link) error{
		"device set down and up": func(l netlink.Link) error { return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetUp(l)) },
		"device deleted":         netlink.LinkDel,
		"device moved away":      func(l netlink.Link) error { return netlink.LinkSetNsFd(l, elsewhere.Handle()) },
	} {
		n.try(t, device, piece{name, func() error {
			l, err := netlink.LinkByName(device)
			if err != nil {
				return err
			}
			return change(l)
		}}, want, works)
	}
}

// try removes one thing, and waits.
func (n *Netns) try(t *testing.T, device string, p piece, want []string, works func(t *testing.T)) {
	t.Run(p.name, func(t *testing.T) {
		n.Do(t, p.remove)
		n.awaitPieces(t, device, want)
		works(t)
	})
}

func names(list []piece) (names []string) {
	for _, p := range list {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

// awaitPieces waits until there is what there should be.
func (n *Netns) awaitPieces(t *testing.T, device string, want []string) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		got := names(n.pieces(t, device))
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there is %q, want %q", got, want)
		}
	}
}

// pieces lists what there is of a device that is up.
func (n *Netns) pieces(t *testing.T, device string) (list []piece) {
	t.Helper()
	n.Do(t, func() error {
		l, err := netlink.LinkByName(device)
		if err != nil || l.Attrs().RawFlags&unix.IFF_UP == 0 {
			return nil
		}
		addrs, _ := netlink.AddrList(l, netlink.FAMILY_ALL)
		for _, a := range addrs {
			list = append(list, piece{"address " + a.IPNet.String(), func() error { return netlink.AddrDel(l, &netlink.Addr{IPNet: a.IPNet}) }})
		}
		list = append(list, n.routes(l)...)
		proxies, _ := netlink.NeighProxyList(0, netlink.FAMILY_ALL)
		for _, p := range proxies {
			list = append(list, piece{"answer for " + p.IP.String(), func() error { return netlink.NeighDel(&p) }})
		}
		return nil
	})
	return list
}

// routes lists the routes to a device, and those that let nothing pass.
func (n *Netns) routes(l netlink.Link) (list []piece) {
	all, _ := netlink.RouteList(nil, netlink.FAMILY_ALL)
	for _, r := range all {
		if r.LinkIndex != l.Attrs().Index && r.Type != unix.RTN_BLACKHOLE {
			continue
		}
		if r.Dst == nil {
			r.Dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		}
		list = append(list, piece{fmt.Sprintf("route %s metric %d", r.Dst, r.Priority), func() error { return netlink.RouteDel(&r) }})
	}
	return list
}
