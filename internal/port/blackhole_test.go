// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestBlackhole finds one route at a time, also after a process that left its own.
func TestBlackhole(t *testing.T) {
	h := inNamespace(t)
	dropped := func() (list []string) {
		ours := &netlink.Route{Type: unix.RTN_BLACKHOLE}
		routes, err := testutil.Whole(func() ([]netlink.Route, error) {
			return h.handle.RouteListFiltered(netlink.FAMILY_V6, ours, netlink.RT_FILTER_TYPE)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			list = append(list, r.Dst.String())
		}
		return list
	}
	// Someone else's stays whatever happens.
	foreign := blackhole(netip.MustParseAddr("2001:db8::f"))
	foreign.Protocol = unix.RTPROT_STATIC
	if err := h.handle.RouteAdd(foreign); err != nil {
		t.Fatal(err)
	}
	first, second := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	for _, a := range []netip.Addr{first, first, second} {
		if err := h.AddBlackhole(a); err != nil {
			t.Fatal(err)
		}
	}
	if got := dropped(); len(got) != 2 || got[0] != "2001:db8::2/128" {
		t.Errorf("dropped are %v", got)
	}
	for range 2 { // the second time it is gone
		if err := h.RemoveBlackhole(second); err != nil {
			t.Error(err)
		}
	}
	if got := dropped(); len(got) != 1 || got[0] != "2001:db8::f/128" {
		t.Errorf("left are %v", got)
	}
}
