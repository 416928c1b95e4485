// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

var all4 = &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}

// TestPassage finds what keeps packets of a translator from passing.
func TestPassage(t *testing.T) {
	const device = "nat64.home"
	refusal := func(kind int) func() error {
		return func() error { return netlink.RouteReplace(&netlink.Route{Dst: all4, Type: kind}) }
	}
	for _, tt := range []struct {
		name   string
		do     func() error
		closed string
		not    string
	}{
		{"no route", func() error { return nil }, "this host has no route to the IPv4 side", ""},
		{"an unreachable default", refusal(unix.RTN_UNREACHABLE), "this host has no route to the IPv4 side", ""},
		{"a blackhole", refusal(unix.RTN_BLACKHOLE), "this host has no route to the IPv4 side", ""},
		{"a default route", func() error {
			return netlink.RouteReplace(&netlink.Route{Dst: all4, Gw: netip.MustParseAddr("192.0.2.7").AsSlice()})
		}, "", "IPv4 side"},
		{"the device does not forward", func() error {
			return os.WriteFile("/proc/sys/net/ipv4/conf/"+device+"/forwarding", []byte("0"), 0)
		}, "run sysctl -w net/ipv4/conf/nat64.home/forwarding=1", ""},
		{"the device filters", func() error {
			return os.WriteFile("/proc/sys/net/ipv4/conf/"+device+"/rp_filter", []byte("1"), 0)
		}, "run sysctl -w net/ipv4/conf/nat64.home/rp_filter=0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := testutil.NewNetns(t)
			ns.Do(t, func() error {
				return errors.Join(
					os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0),
					makeLink("d0", "192.0.2.1/24"), makeLink(device), tt.do())
			})
			ns.AwaitLinks(t, "d0")
			ns.Do(t, func() error {
				everything := func(p netip.Prefix) bool { return p.Bits() == 0 }
				p := PassageOf(device, []netip.Addr{netip.MustParseAddr("192.0.2.1")}, everything, everything)
				closed := strings.Join(p.Closed, "\n")
				if !strings.Contains(closed, tt.closed) || tt.not != "" && strings.Contains(closed, tt.not) {
					t.Errorf("closed:\n%s", closed)
				}
				return nil
			})
		})
	}
}

// TestKeyOf writes the keys of sysctl.
func TestKeyOf(t *testing.T) {
	for device, want := range map[string]string{
		"nat64":      "net.ipv4.conf.nat64.forwarding",
		"nat64.home": "net/ipv4/conf/nat64.home/forwarding",
	} {
		if got := keyOf(device, "forwarding"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
