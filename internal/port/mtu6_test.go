// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestPathMTU6 has a link, what it lets IPv6 have, and routes that take less.
func TestPathMTU6(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	index, _, err := h.Link("d0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.AddAddr("d0", netip.MustParsePrefix("2001:db8::1/64")); err != nil {
		t.Fatal(err)
	}
	narrow := func(dst string, mtu int) {
		_, to, err := net.ParseCIDR(dst)
		if err == nil {
			err = h.handle.RouteAdd(&netlink.Route{LinkIndex: index, Dst: to, MTU: mtu})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	narrow("2001:db8:1::/48", 1400)
	narrow("2001:db8:2::/48", 1495)
	for _, step := range []struct {
		name                     string
		link                     string // what is written for IPv6
		none, wide, narrow, near int
	}{
		{"as the device", "1500", 1500, 1500, 1400, 1495},
		{"less by a router", "1492", 1492, 1492, 1400, 1492},
		{"less than the route", "1280", 1280, 1280, 1280, 1280},
	} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/d0/mtu", []byte(step.link), 0); err != nil {
			t.Fatal(err)
		}
		for dst, want := range map[string]int{"2001:db9::1": step.none, "2001:db8::2": step.wide, "2001:db8:1::1": step.narrow, "2001:db8:2::1": step.near} {
			if got, err := h.PathMTU6(netip.MustParseAddr(dst), index); err != nil || got != want {
				t.Errorf("%s: %d for %s, want %d: %v", step.name, got, dst, want, err)
			}
		}
	}
	if err := h.handle.LinkSetMTU(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}, 1000); err != nil {
		t.Fatal(err)
	}
	if got, err := h.MTU6(index); err == nil {
		t.Errorf("a link too small for IPv6 takes %d", got)
	}
}

// TestUplinkNetwork gives a link networks one after the other.
func TestUplinkNetwork(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	local, first, second := netip.MustParsePrefix("fd00:1::1/64"), netip.MustParsePrefix("2001:db8:1::1/64"), netip.MustParsePrefix("2001:db8:2::1/64")
	add := func(p netip.Prefix) error { return h.AddAddr("d0", p) }
	deprecate := func(p netip.Prefix) error { return h.Prefer("d0", p, false) }
	remove := func(p netip.Prefix) error { return h.RemoveAddr("d0", p) }
	var at Uplink6
	for _, step := range []struct {
		name string
		do   func(netip.Prefix) error
		to   netip.Prefix
		want netip.Prefix
	}{
		{"a local one alone", add, local, local},
		{"in use, it stays", add, first, local},
		{"it has gone", remove, local, first},
		{"another, which the kernel may list first", add, second, first},
		{"a local one, which the kernel may list first", add, local, first},
		{"deprecated: the other global one", deprecate, first, second},
		{"both deprecated: the local one", deprecate, second, local},
		{"all deprecated: it stays", deprecate, local, local},
	} {
		if err := step.do(step.to); err != nil {
			t.Fatal(err)
		}
		var err error
		if at, err = h.Uplink6("d0", "tun0", at.Subnet); err != nil || at.Subnet != step.want.Masked() {
			t.Errorf("%s: the uplink is %+v: %v", step.name, at, err)
		}
	}
	if err := remove(local); err != nil {
		t.Fatal(err)
	}
	for _, p := range []netip.Prefix{first, second, local} { // the kernel lists the last first
		if err := errors.Join(remove(p), add(p)); err != nil {
			t.Fatal(err)
		}
	}
	if at, err := h.Uplink6("d0", "tun0", netip.Prefix{}); err != nil || at.Subnet == local.Masked() {
		t.Errorf("beside global networks the uplink is %+v: %v", at, err)
	}
	if at, err := h.Uplink6("d1", "tun0", netip.Prefix{}); err != nil || at.Name != "" {
		t.Errorf("by a link that is not there the uplink is %+v: %v", at, err)
	}
}

// TestDeprecatedAddresses: they work, and come last (RFC 4862 section 5.5.4).
func TestDeprecatedAddresses(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	old, fresh := netip.MustParsePrefix("2001:db8:1::1/64"), netip.MustParsePrefix("2001:db8:2::1/64")
	want := func(addresses ...netip.Prefix) {
		t.Helper()
		list, err := h.IPv6()
		if err != nil || len(list) != len(addresses) {
			t.Fatalf("the addresses are %v: %v", list, err)
		}
		for i, a := range list {
			if a.Prefix != addresses[i] || a.Deprecated != (a.Prefix == old) {
				t.Errorf("the addresses are %v, want %v", list, addresses)
			}
		}
		if got, err := h.GlobalIPv6("tun0"); err != nil || got != addresses[0].Addr() {
			t.Errorf("the global address is %v, want %v: %v", got, addresses[0].Addr(), err)
		}
		if at, err := h.Uplink6("d0", "tun0", netip.Prefix{}); err != nil || at.Subnet != addresses[0].Masked() {
			t.Errorf("the uplink is %+v: %v", at, err)
		}
	}
	if err := h.AddAddr("d0", old); err != nil {
		t.Fatal(err)
	}
	if err := h.Prefer("d0", old, false); err != nil {
		t.Fatal(err)
	}
	want(old)
	if err := h.AddAddr("d0", fresh); err != nil {
		t.Fatal(err)
	}
	want(fresh, old)
	if err := h.RemoveAddr("d0", fresh); err != nil {
		t.Fatal(err)
	}
	want(old)
}
