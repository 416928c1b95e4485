// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// TestParseRoute reads routes by the examples of RFC 2865 section 5.22 and RFC 3162 section 2.5, and
// nothing that is not one.
func TestParseRoute(t *testing.T) {
	for _, row := range []struct {
		text string
		six  bool
		want string
	}{
		{"192.168.1.0/24 192.168.1.1 1 2 -1 3 400", false, "192.168.1.0/24"},
		{"192.168.1.0 192.168.1.1 1", false, "192.168.1.0/24"},
		{"10.0.0.0", false, "10.0.0.0/8"},
		{"172.16.0.0", false, "172.16.0.0/16"},
		{"172.20.1.7/32 0.0.0.0", false, "172.20.1.7/32"},
		{"2000:0:0:106::/64 2000::106:a00:20ff:fe99:a998 1", true, "2000:0:0:106::/64"},
		{"2001:db8::/48", true, "2001:db8::/48"},
		{"", false, ""}, {"   ", false, ""}, {"default", false, ""}, {"192.168.1.1/24", false, ""}, {"192.168.1.0/33", false, ""},
		{"224.0.0.0", false, ""}, {"192.168.1.0/24 gateway", false, ""}, {"192.168.1.0/24 192.168.1.1 one", false, ""},
		{"192.168.1.0/24 2001:db8::1 1", false, ""}, {"2001:db8::/48", false, ""}, {"192.168.1.0/24", true, ""},
		{"2001:db8::", true, ""}, {"::ffff:192.0.2.0/120", false, ""}, {"192.168.1.0/24\x00", false, ""},
	} {
		family := netip.Addr.Is4
		if row.six {
			family = netip.Addr.Is6
		}
		if p, ok := parseRoute(row.text, family); ok != (row.want != "") || ok && p.String() != row.want {
			t.Errorf("%q: %v, %v; want %q", row.text, p, ok, row.want)
		}
	}
}

// FuzzParseRoute takes any text, and returns prefixes of the family alone.
func FuzzParseRoute(f *testing.F) {
	for _, s := range []string{"192.168.1.0/24 192.168.1.1 1 2 -1 3 400", "2000:0:0:106::/64 :: 1", "10.0.0.0", "fe80::%a/64"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for six, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
			if p, ok := parseRoute(s, family); ok && (!p.IsValid() || p != p.Masked() || p.Addr().Is6() != (six == 1) || p.Addr().Zone() != "") {
				t.Errorf("%q is %v", s, p)
			}
		}
	})
}

// TestRoutesOfServer has the engine give what an answer names, of the prefixes of the key, and servers
// told of it; what cannot be read is counted.
func TestRoutesOfServer(t *testing.T) {
	configtest.InEffect(t, "ggsn.apn", "routed")
	cfg := written(t, "", "pool6 = [\"2001:db8:6000::/44\"]\nrouted = [\"172.20.0.0/16\", \"2001:db8:9000::/40\"]")
	e, err := engineSettings(&cfg, nil, nil, 0)
	if err != nil || !slices.Equal(e.APNs[0].Routed, cfg.APNs[0].Routed) || len(e.APNs[0].Routed) != 2 {
		t.Fatalf("%v, %v", e.APNs[0].Routed, err)
	}
	if all := cfg.allPools(); all[len(all)-1].key != "apn[0].routed[1]" {
		t.Errorf("the host leads %+v", all)
	}
	var said radius.Attributes
	said.Text(radius.FramedRoute, "172.20.1.0/24 0.0.0.0 1")
	said.Text(radius.FramedRoute, "somewhere")
	said.Text(radius.FramedIPv6Route, "2001:db8:9000:100::/56 :: 1")
	said.Prefix(radius.DelegatedIPv6Prefix, netip.MustParsePrefix("2001:db8:9000:4200::/56"))
	said.Octets(radius.DelegatedIPv6Prefix, []byte{0, 129})
	g := grantOf(&radius.Answer{Code: radius.AccessAccept, Attributes: said})
	want := []ggsn.Route{
		{Prefix: netip.MustParsePrefix("2001:db8:9000:4200::/56"), Delegated: true},
		{Prefix: netip.MustParsePrefix("172.20.1.0/24")}, {Prefix: netip.MustParsePrefix("2001:db8:9000:100::/56")},
	}
	if !slices.Equal(g.Routes, want) || g.MalformedRoutes != 2 {
		t.Errorf("%+v, %d cannot be read", g.Routes, g.MalformedRoutes)
	}
	var told radius.Attributes
	addresses(&told, &ggsn.ContextInfo{Routes: []netip.Prefix{want[1].Prefix, want[2].Prefix}})
	for _, of := range []radius.Type{radius.FramedRoute, radius.FramedIPv6Route} {
		was, _ := said.Find(of)
		if is, _ := told.Find(of); string(is) != string(was) {
			t.Errorf("servers are told %q, want %q", is, was)
		}
	}
}

// TestPrefixesOfServer grants each /64 that a server names to the link, and what is shorter as a route; records of
// every kind name all prefixes of the link, in their order.
func TestPrefixesOfServer(t *testing.T) {
	var said radius.Attributes
	for _, p := range []string{"2001:db8:9000:100::/56", "2001:db8:6000:1::/64", "2001:db8:6000:9::/64", "2001:db8:6000:5::/64"} {
		said.Prefix(radius.FramedIPv6Prefix, netip.MustParsePrefix(p))
	}
	said.Octets(radius.FramedIPv6Prefix, []byte{0, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 1})
	g := grantOf(&radius.Answer{Code: radius.AccessAccept, Attributes: said})
	further := []netip.Prefix{netip.MustParsePrefix("2001:db8:6000:9::/64"), netip.MustParsePrefix("2001:db8:6000:5::/64")}
	if g.Prefix6 != netip.MustParsePrefix("2001:db8:6000:1::/64") || !slices.Equal(g.Further6, further) || g.MalformedRoutes != 1 ||
		!slices.Equal(g.Routes, []ggsn.Route{{Prefix: netip.MustParsePrefix("2001:db8:9000:100::/56")}}) {
		t.Errorf("%+v", g)
	}
	a := newAccountant(t)
	for _, kind := range []ggsn.EventKind{ggsn.ContextCreated, ggsn.ContextUpdated, ggsn.ContextCounted, ggsn.ContextDeleted} {
		e := told(kind, ggsn.EndPeer)
		e.Context.Prefix6, e.Context.Further6 = g.Prefix6, g.Further6
		to := a.attributes(&e)
		var got []netip.Prefix
		for _, value := range to.All(radius.FramedIPv6Prefix) {
			p, _ := radius.ParsePrefix(value)
			got = append(got, p)
		}
		if !slices.Equal(got, append([]netip.Prefix{g.Prefix6}, further...)) {
			t.Errorf("%v: %v", kind, got)
		}
	}
}

// TestPoolsOfServer has the engine give addresses of the parts that an answer names.
func TestPoolsOfServer(t *testing.T) {
	configtest.InEffect(t, "ggsn.apn", "named_pools")
	cfg := written(t, "", "pool6 = [\"2001:db8:6000::/44\"]\nnamed_pools = [\"gold 10.45.8.0/21\", \"gold 2001:db8:6008::/46\"]")
	e, err := engineSettings(&cfg, nil, nil, 0)
	if err != nil || len(e.APNs[0].Named) != 2 || e.APNs[0].Named[1].Prefix != netip.MustParsePrefix("2001:db8:6008::/46") {
		t.Fatalf("%v, %v", e.APNs[0].Named, err)
	}
	var said radius.Attributes
	said.Text(radius.FramedPool, "gold")
	said.Text(radius.FramedIPv6Pool, "gold6")
	said.Text(radius.DelegatedIPv6Pool, "gold56")
	if g := grantOf(&radius.Answer{Code: radius.AccessAccept, Attributes: said}); g.Pool4 != "gold" || g.Pool6 != "gold6" || g.PoolDelegated != "gold56" {
		t.Errorf("%+v", g)
	}
	// Accounts may name those of IPv6, and not that of IPv4 (RFC 2869 section 5.19, RFC 3162 section 3, RFC 6911 section 3.6).
	event := told(ggsn.ContextCounted, 0)
	event.Context.Account.Pool6, event.Context.Account.PoolDelegated = "gold6", "gold56"
	to := newAccountant(t).attributes(&event)
	if to.FindText(radius.FramedIPv6Pool) != "gold6" || to.FindText(radius.DelegatedIPv6Pool) != "gold56" || to.FindText(radius.FramedPool) != "" {
		t.Errorf("told %q, %q, %q", to.FindText(radius.FramedIPv6Pool), to.FindText(radius.DelegatedIPv6Pool), to.FindText(radius.FramedPool))
	}
}
