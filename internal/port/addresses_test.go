// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
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
