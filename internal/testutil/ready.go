// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Patience is how long a test waits for what is sure to come. A busy machine
// stands still for seconds, and an emulated one takes twenty times as long.
const Patience = time.Minute

// AddressesAtOnce has devices that are made in the namespace from now on use their
// IPv6 addresses without asking for duplicates. That takes up to two seconds, in
// which the kernel looks for no neighbour of packets that it forwards.
func (n *Netns) AddressesAtOnce(t testing.TB) {
	t.Helper()
	n.Do(t, func() error {
		for _, name := range []string{"accept_dad", "dad_transmits"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/"+name, []byte("0"), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// AwaitLinks waits until devices of the namespace carry packets, which the kernel
// arranges in the background: until the other end is up, their queues are there and
// their IPv6 addresses, with that of the link, are local. Both ends must be waited
// for, and both must be set up before.
func (n *Netns) AwaitLinks(t testing.TB, names ...string) {
	t.Helper()
	n.Do(t, func() error {
		for _, name := range names {
			for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
				err := ready(name)
				if err == nil {
					break
				}
				if time.Now().After(end) {
					return fmt.Errorf("the device %s is not ready: %w", name, err)
				}
			}
		}
		return nil
	})
}

// ready reports what is missing for a device to carry packets. The kernel gives a
// device its link-local address once it has a carrier and queues.
func ready(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		return err
	}
	linkLocal := false
	for _, a := range addrs {
		if a.Flags&unix.IFA_F_TENTATIVE != 0 {
			return fmt.Errorf("%s is tentative", a.IP)
		}
		if a.IP.IsLinkLocalUnicast() {
			linkLocal = true
			continue
		}
		if err := local(a.IP); err != nil {
			return err
		}
	}
	if !linkLocal {
		return errors.New("it has no link-local address")
	}
	return nil
}

// local returns why an address is not one of the host's yet. Its route comes a moment
// later than the address.
func local(addr net.IP) error {
	routes, err := netlink.RouteGet(addr)
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
		return fmt.Errorf("%s is not local: %v, %w", addr, routes, err)
	}
	return nil
}

// AwaitLocal waits until an IPv6 address that a device was given, in the network
// namespace of the calling thread, is one that packets are received for.
func AwaitLocal(t testing.TB, addr netip.Addr) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		err := local(addr.AsSlice())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
