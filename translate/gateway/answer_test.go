// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// makeLink makes an interface that is up, with addresses.
func makeLink(name string, addresses ...string) error {
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}); err != nil {
		return err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	peer, err := netlink.LinkByName(name + "-peer")
	if err != nil {
		return err
	}
	errs := []error{netlink.LinkSetUp(l), netlink.LinkSetUp(peer)}
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		errs = append(errs, err, netlink.AddrAdd(l, a))
	}
	return errors.Join(errs...)
}

func removeLink(name string) error {
	l, err := netlink.LinkByName(name)
	return errors.Join(err, netlink.LinkDel(l))
}

// TestProxies has a network of the host, with addresses of the pool in it, go and come.
func TestProxies(t *testing.T) {
	testutil.NewNetns(t).Do(t, func() (err error) {
		d := NewDevice(slog.New(slog.DiscardHandler))
		if d.host, err = port.OpenHost(); err != nil {
			return err
		}
		defer d.host.Close()
		d.route, d.want = true, []netip.Prefix{netip.MustParsePrefix("192.0.2.16/30"), netip.MustParsePrefix("198.51.100.1/32")}
		check := func(what string, want int) {
			t.Helper()
			list, err := netlink.NeighProxyList(0, netlink.FAMILY_V4)
			if err != nil || len(list) != want || len(d.proxies) != want {
				t.Errorf("%s: answers for %v, notes %v, want %d: %v", what, list, d.proxies, want, err)
			}
		}
		answered := func(what string, want int) {
			t.Helper()
			d.AddressesChanged()
			check(what, want)
		}
		answered("no network", 0)
		if err := makeLink("d0", "192.0.2.1/24"); err != nil {
			return err
		}
		answered("a network", 4)
		if err := errors.Join(removeLink("d0"), makeLink("d0", "192.0.2.1/24")); err != nil {
			return err
		}
		answered("an interface that was made again", 4)
		if err := makeLink("d1", "198.51.100.9/24"); err != nil {
			return err
		}
		answered("another network", 5)
		if err := removeLink("d0"); err != nil {
			return err
		}
		answered("a network that has gone", 1)
		late := map[proxy]bool{{"d2", 99, netip.MustParseAddr("192.0.2.16")}: true}
		if d.setProxies(late) == nil {
			t.Error("no error for an interface that is not there")
		}
		if err := makeLink("d2"); err != nil {
			return err
		}
		err = d.setProxies(late)
		check("an interface that comes late", 1)
		return err
	})
}
