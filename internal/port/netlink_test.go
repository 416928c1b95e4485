// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// addLink makes a link that is up, one end of a veth pair.
func addLink(t *testing.T, h *Host, name string) {
	t.Helper()
	if err := h.handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "far"}); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{name, "far"} {
		if err := h.SetUp(end); err != nil {
			t.Fatal(err)
		}
	}
}

// ours lists the destinations of our routes.
func ours(t *testing.T, h *Host) []string {
	t.Helper()
	routes, err := testutil.Whole(func() ([]netlink.Route, error) {
		return h.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: RouteProtocol}, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, r := range routes {
		list = append(list, r.Dst.String())
	}
	slices.Sort(list)
	return list
}

func TestHostUndoesWhatItDid(t *testing.T) {
	keeper := inNamespace(t)
	addLink(t, keeper, "d0")
	h, err := OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParsePrefix("192.0.2.1/24")
	kept := Route{Dst: netip.MustParsePrefix("2001:db8:1::/48"), Link: "d0", Metric: 5}
	removed := Route{Dst: netip.MustParsePrefix("198.51.100.0/24"), Link: "d0", Source: addr.Addr()}
	for _, err := range []error{h.AddAddr("d0", addr), h.AddRoute(kept), h.AddRoute(kept), h.AddRoute(removed)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"198.51.100.0/24", "2001:db8:1::/48"}, ours(t, keeper)); diff != "" {
		t.Errorf("routes after adding (-want +got):\n%s", diff)
	}
	for range 2 { // removing what is not there is no error
		if err := h.RemoveRoute(removed); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"2001:db8:1::/48"}, ours(t, keeper)); diff != "" {
		t.Errorf("routes after removing (-want +got):\n%s", diff)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string(nil), ours(t, keeper)); diff != "" {
		t.Errorf("routes after closing (-want +got):\n%s", diff)
	}
	left, err := keeper.IPv4()
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Link != "lo" {
		t.Errorf("addresses after closing: %v", left)
	}
}

// Routes of others outlive ours: what AddRoute would replace, no one puts back.
func TestAddRouteLeavesOthersAlone(t *testing.T) {
	tests := []struct {
		name string
		dst  string
		via  string // link of the route that is there before
		want string // link in the error; none if there is no error
	}{
		{"IPv6 through another link", "2001:db8:1::/48", "far", "far"},
		{"IPv6 default route through another link", "::/0", "far", "far"},
		{"IPv4 through another link", "198.51.100.0/24", "far", "far"},
		{"through the same link", "2001:db8:1::/48", "d0", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := inNamespace(t)
			addLink(t, h, "d0")
			dst := netip.MustParsePrefix(tt.dst)
			before, err := h.route(Route{Dst: dst, Link: tt.via})
			if err != nil {
				t.Fatal(err)
			}
			before.Protocol = unix.RTPROT_STATIC
			if err := h.handle.RouteAdd(before); err != nil {
				t.Fatal(err)
			}
			other, err := OpenHost()
			if err != nil {
				t.Fatal(err)
			}
			err = other.AddRoute(Route{Dst: dst, Link: "d0"})
			var taken *RouteTakenError
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && !errors.As(err, &taken):
				t.Errorf("got error %v, want a RouteTakenError", err)
			case tt.want != "" && (taken.Link != tt.want || taken.Dst != dst):
				t.Errorf("got %+v, want link %s and destination %s", taken, tt.want, dst)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			if got := ours(t, h); len(got) != 0 {
				t.Errorf("our routes after closing: %v", got)
			}
			if err := h.handle.RouteDel(before); err != nil {
				t.Errorf("the route that was there has gone: %v", err)
			}
		})
	}
}

func TestHostCloseAfterTheLinkHasGone(t *testing.T) {
	h := inNamespace(t)
	tun := openTUN(t, h, TUNConfig{Name: "t0"})
	if err := h.AddRoute(Route{Dst: tunRoute, Link: "t0"}); err != nil {
		t.Fatal(err)
	}
	tun.Close() // inNamespace fails the test when h.Close reports an error
}

func TestHostIPv4(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	for _, p := range []string{"192.0.2.9/29", "198.51.100.1/32"} {
		if err := h.AddAddr("d0", netip.MustParsePrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := h.IPv4()
	if err != nil {
		t.Fatal(err)
	}
	want := []IPv4{
		{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParseAddr("127.255.255.255"), "lo"},
		{netip.MustParsePrefix("192.0.2.9/29"), netip.MustParseAddr("192.0.2.15"), "d0"},
		{netip.MustParsePrefix("198.51.100.1/32"), netip.Addr{}, "d0"},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestNativeIPv6(t *testing.T) {
	teredo := netip.MustParsePrefix("2001::/32")
	tests := []struct {
		name, addr, route string
		own               []string
		want              bool
	}{
		{"address and default route", "2001:db8::1/64", "::/0", nil, true},
		{"address and route to global unicast", "2001:db8::1/64", "2000::/3", nil, true},
		{"no route", "2001:db8::1/64", "", nil, false},
		{"a narrow route only", "2001:db8::1/64", "2001:db8:1::/48", nil, false},
		{"no address", "", "::/0", nil, false},
		{"private address", "fd00::1/64", "::/0", nil, false},
		{"Teredo address", "2001:0:c000:201::1/64", "::/0", nil, false},
		{"all on our own link", "2001:db8::1/64", "::/0", []string{"d0"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := inNamespace(t)
			addLink(t, h, "d0")
			if tt.addr != "" {
				if err := h.AddAddr("d0", netip.MustParsePrefix(tt.addr)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.route != "" {
				if err := h.AddRoute(Route{Dst: netip.MustParsePrefix(tt.route), Link: "d0"}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := h.NativeIPv6(tt.own, teredo)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	h := inNamespace(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changes, err := Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	addLink(t, h, "d0")
	link, err := h.handle.LinkByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	own := netip.MustParsePrefix("192.0.2.1/24")
	pair := &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("198.51.100.1/32")), Peer: ipNet(netip.MustParsePrefix("198.51.100.2/32"))}
	err = errors.Join(h.AddAddr("d0", own), h.AddRoute(Route{Dst: tunRoute, Link: "d0"}), h.handle.AddrDel(link, &netlink.Addr{IPNet: ipNet(own)}), h.handle.AddrAdd(link, pair))
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rule := netlink.NewRule()
		rule.Family, rule.Table = family, 7
		err = errors.Join(err, h.handle.RuleAdd(rule))
	}
	if err != nil {
		t.Fatal(err)
	}
	of4 := Change{Kind: AddressChanged, Family: 4, Link: link.Attrs().Index, Address: own.Addr()}
	gone, toPeer := of4, of4
	gone.Gone, toPeer.Address = true, netip.MustParseAddr("198.51.100.1")
	missing := map[Change]bool{
		{Kind: LinkChanged, Link: link.Attrs().Index}: true,
		of4: true, gone: true, toPeer: true,
		{Kind: RouteChanged, Family: 6, Dst: tunRoute}: true,
		// of the rules
		{Kind: RouteChanged, Family: 4, Dst: netip.MustParsePrefix("0.0.0.0/0")}: true,
		{Kind: RouteChanged, Family: 6, Dst: netip.MustParsePrefix("::/0")}:      true,
	}
	for len(missing) > 0 { // a change that never comes ends in the test's time limit
		delete(missing, <-changes)
	}
	cancel()
	for range changes {
	}
}

// TestWatchOverrun leaves the channel unread while more changes than it holds
// come, and expects to be told.
func TestWatchOverrun(t *testing.T) {
	h := inNamespace(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changes, err := Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lo, err := h.handle.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	// Each step makes two changes. That is more than channel and socket hold together,
	// so that some are lost also where the watch gets no time.
	a := &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("192.0.2.1/32")), Scope: unix.RT_SCOPE_HOST}
	for range 2000 {
		if err := errors.Join(h.handle.AddrAdd(lo, a), h.handle.AddrDel(lo, a)); err != nil {
			t.Fatal(err)
		}
	}
	for c := range changes {
		if c.Kind == Overrun {
			return
		}
	}
}
