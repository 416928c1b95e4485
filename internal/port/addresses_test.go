// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestAddresses lists both families with the state of their link.
func TestAddresses(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	four, six, old := netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8:1::1/64"), netip.MustParsePrefix("2001:db8:2::1/64")
	for _, p := range []netip.Prefix{four, six, old} {
		if err := h.AddAddr("d0", p); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Prefer("d0", old, false); err != nil {
		t.Fatal(err)
	}
	want := func(up bool, addresses ...netip.Prefix) {
		t.Helper()
		list, err := h.Addresses()
		if err != nil {
			t.Fatal(err)
		}
		found := map[netip.Prefix]Address{}
		for _, a := range list {
			found[a.Prefix] = a
		}
		for _, p := range addresses {
			if a, ok := found[p]; !ok || a.Link.Name != "d0" || a.Link.Up != up || a.Deprecated != (p == old) {
				t.Errorf("%v is %+v", p, a)
			}
		}
	}
	want(true, four, six, old)
	link, err := h.handle.LinkByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.handle.LinkSetDown(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: link.Attrs().Index}}); err != nil {
		t.Fatal(err)
	}
	want(false, four)
}

// TestAddressesAreWhole: addresses that stay are listed whatever comes and goes meanwhile.
func TestAddressesAreWhole(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	link, err := h.handle.LinkByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	const stay = 500
	address := func(n int) *netlink.Addr {
		return &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32))}
	}
	for n := range stay + 1 {
		if err := h.handle.AddrAdd(link, address(n)); err != nil {
			t.Fatal(err)
		}
	}
	other, err := OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Abandon)
	testutil.Beside(t, func() { // those before others move these
		_ = other.handle.AddrDel(link, address(0))
		_ = other.handle.AddrAdd(link, address(0))
	})
	for range 50 {
		list, err := h.Addresses()
		if err != nil {
			continue // it is never whole
		}
		found := 0
		for _, a := range list {
			if a.Prefix.Addr().Is4() && a.Prefix.Addr().As4()[0] == 10 && a.Prefix.Addr() != netip.AddrFrom4([4]byte{10, 0, 0, 0}) {
				found++
			}
		}
		if found != stay {
			t.Fatalf("%d addresses of %d", found, stay)
		}
	}
}
