// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestEachRoute finds own addresses and routes of both families, but none of other tables,
// unless these are addresses that a VRF has.
func TestEachRoute(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	link, err := h.handle.LinkByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	at := link.Attrs().Index
	for _, a := range []string{"192.0.2.1/24", "2001:db8:1::1/64"} {
		if err := h.AddAddr("d0", netip.MustParsePrefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []Route{
		{Dst: netip.MustParsePrefix("203.0.113.0/28"), Link: "d0", Metric: 7},
		{Dst: tunRoute, Link: "d0"},
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: "d0"},
	} {
		if err := h.AddRoute(r); err != nil {
			t.Fatal(err)
		}
	}
	kernel := netlink.RouteProtocol(unix.RTPROT_KERNEL)
	for _, r := range []netlink.Route{
		{Dst: ipNet(netip.MustParsePrefix("198.51.100.0/24")), Table: 100},
		{Dst: ipNet(netip.MustParsePrefix("198.51.100.0/25")), Table: 100, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST},
		{Dst: ipNet(netip.MustParsePrefix("10.1.0.1/32")), Table: 100, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Protocol: kernel},
		{Dst: ipNet(netip.MustParsePrefix("10.1.0.255/32")), Table: 100, Type: unix.RTN_BROADCAST, Scope: unix.RT_SCOPE_LINK, Protocol: kernel},
		{Dst: ipNet(netip.MustParsePrefix("10.2.0.0/16")), Table: unix.RT_TABLE_MAIN, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST},
	} {
		r.LinkIndex = at
		if err := h.handle.RouteAdd(&r); err != nil {
			t.Fatal(err)
		}
	}
	for dst, kind := range map[string]int{"10.3.0.0/16": unix.RTN_BLACKHOLE, "10.4.0.0/16": unix.RTN_UNREACHABLE, "10.5.0.0/16": unix.RTN_PROHIBIT, "10.6.0.0/16": unix.RTN_THROW} {
		if err := h.handle.RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix(dst)), Type: kind}); err != nil {
			t.Fatal(err)
		}
	}
	missing := map[RouteEntry]bool{
		{Dst: netip.MustParsePrefix("10.3.0.0/16"), Refused: true}:               true,
		{Dst: netip.MustParsePrefix("10.4.0.0/16"), Refused: true}:               true,
		{Dst: netip.MustParsePrefix("10.5.0.0/16"), Refused: true}:               true,
		{Dst: netip.MustParsePrefix("10.6.0.0/16"), Refused: true}:               true,
		{Dst: netip.MustParsePrefix("192.0.2.1/32"), Link: at, Local: true}:      true,
		{Dst: netip.MustParsePrefix("192.0.2.0/24"), Link: at}:                   true,
		{Dst: netip.MustParsePrefix("203.0.113.0/28"), Link: at, Metric: 7}:      true,
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: at}:                      true,
		{Dst: netip.MustParsePrefix("2001:db8:1::1/128"), Link: at, Local: true}: true,
		{Dst: tunRoute, Link: at, Metric: defaultMetric6}:                        true,
		{Dst: netip.MustParsePrefix("10.1.0.1/32"), Link: at, Local: true}:       true,
		{Dst: netip.MustParsePrefix("10.1.0.255/32"), Link: at, Local: true}:     true,
		{Dst: netip.MustParsePrefix("10.2.0.0/16"), Link: at, Local: true}:       true,
	}
	if err := h.EachRoute(func(w RouteEntry) {
		delete(missing, w)
		if w.Dst.Addr() == netip.MustParseAddr("198.51.100.0") {
			t.Errorf("%v is of another table", w)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if len(missing) > 0 {
		t.Errorf("not found: %v", missing)
	}
}
