// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKnown lets prefixes come and go by both sources.
func TestKnown(t *testing.T) {
	a, b := netip.MustParseAddr("fe80::a"), netip.MustParseAddr("fe80::b")
	var k Known
	check := func(what string, after time.Duration, source Source, want ...string) {
		t.Helper()
		s := k.Set(start.Add(after))
		var got []string
		for _, p := range s.Prefixes {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(want, got, same); diff != "" || s.Source != source {
			t.Errorf("%s: by %s (-want +got):\n%s", what, s.Source, diff)
		}
	}
	check("nothing", 0, SourceNone)
	k.Resolved([]netip.Prefix{netip.MustParsePrefix("2001:db8:53::/96")}, start.Add(100*time.Second))
	check("by DNS", 0, SourceDNS, "2001:db8:53::/96")
	k.Advertised(a, []Option{option("2001:db8:a::/96", 80*time.Second), option("2001:db8:a1::/96", 40*time.Second)}, start)
	check("routers go before DNS", 0, SourceAdvertisement, "2001:db8:a::/96", "2001:db8:a1::/96")
	k.Advertised(b, []Option{option("2001:db8:b::/96", 80*time.Second), option("2001:db8:a1::/96", 80*time.Second)}, start)
	check("two routers, in the order of arrival, each prefix once", 0, SourceAdvertisement, "2001:db8:a::/96", "2001:db8:a1::/96", "2001:db8:b::/96")
	if got := k.Next(); !got.Equal(start.Add(40 * time.Second)) {
		t.Errorf("next %v", got.Sub(start))
	}
	check("one router's word ends, the other's holds", 40*time.Second, SourceAdvertisement, "2001:db8:a::/96", "2001:db8:b::/96", "2001:db8:a1::/96")
	k.Advertised(b, []Option{option("2001:db8:b::/96", 0), option("2001:db8:c::/96", 0)}, start.Add(41*time.Second))
	check("withdrawn", 41*time.Second, SourceAdvertisement, "2001:db8:a::/96", "2001:db8:a1::/96")
	k.Advertised(a, nil, start.Add(42*time.Second))
	check("an advertisement that does not name it ends nothing", 42*time.Second, SourceAdvertisement, "2001:db8:a::/96", "2001:db8:a1::/96")
	check("all are over: back to DNS", 80*time.Second, SourceDNS, "2001:db8:53::/96")
	check("that too", 100*time.Second, SourceNone)
	if !k.Next().IsZero() {
		t.Errorf("next %v", k.Next())
	}
	for i := range 1000 {
		router := netip.AddrFrom16([16]byte{0xfe, 0x80, 14: byte(i >> 8), 15: byte(i)})
		k.Advertised(router, []Option{option("2001:db8:a::/96", time.Hour)}, start)
	}
	if len(k.advertised) > maxKnown {
		t.Errorf("%d kept", len(k.advertised))
	}
}

// TestMoved has a host that is in another network by the same interface.
func TestMoved(t *testing.T) {
	type said struct {
		after    time.Duration
		router   string
		networks []string
		prefixes []string
	}
	const before, after = "2001:db8:1::/64", "2001:db8:2::/64"
	for _, tt := range []struct {
		name string
		said []said
		want []string
	}{
		{"renumbered by one advertisement", []said{
			{0, "fe80::a", []string{before}, []string{"2001:db8:a::/96"}},
			{5 * time.Second, "fe80::a", []string{before, after}, []string{"2001:db8:a::/96", "2001:db8:b::/96"}},
		}, []string{"2001:db8:a::/96", "2001:db8:b::/96"}},
		{"renumbered, and the NAT64 too", []said{
			{0, "fe80::a", []string{before}, []string{"2001:db8:a::/96"}},
			{5 * time.Second, "fe80::a", []string{before, after}, []string{"2001:db8:b::/96"}},
		}, []string{"2001:db8:b::/96"}},
		{"said again since, without the network", []said{
			{0, "fe80::a", []string{after}, nil},
			{5 * time.Second, "fe80::a", nil, []string{"2001:db8:a::/96"}},
			{6 * time.Second, "fe80::a", []string{after}, nil},
		}, []string{"2001:db8:a::/96"}},
		{"a shorter prefix around it", []said{{0, "fe80::a", []string{"2001:db8::/32"}, []string{"2001:db8:a::/96"}}}, []string{"2001:db8:a::/96"}},
		{"a longer prefix in it", []said{{0, "fe80::a", []string{"2001:db8:2::/80"}, []string{"2001:db8:a::/96"}}}, nil},
		{"the router of the network before", []said{
			{0, "fe80::a", []string{before}, []string{"2001:db8:a::/96"}},
			{5 * time.Second, "fe80::b", []string{after}, nil},
		}, nil},
		{"another router with the same address", []said{
			{0, "fe80::1", []string{before}, []string{"2001:db8:a::/96"}},
			{5 * time.Second, "fe80::1", []string{after}, nil},
		}, nil},
		{"nobody announces the network", []said{{0, "fe80::a", nil, []string{"2001:db8:a::/96"}}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var k Known
			k.Resolved([]netip.Prefix{netip.MustParsePrefix("2001:db8:53::/96")}, start.Add(time.Hour))
			for _, s := range tt.said {
				var networks []Network
				var options []Option
				for _, n := range s.networks {
					networks = append(networks, network(n, time.Hour))
				}
				for _, p := range s.prefixes {
					options = append(options, option(p, time.Hour))
				}
				k.Announced(netip.MustParseAddr(s.router), networks, start.Add(s.after))
				k.Advertised(netip.MustParseAddr(s.router), options, start.Add(s.after))
			}
			k.Moved(netip.MustParsePrefix(after))
			var got []string
			for _, p := range k.Set(start.Add(10 * time.Second)).Prefixes {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	var k Known
	for i := range 1000 {
		router := netip.AddrFrom16([16]byte{0xfe, 0x80, 14: byte(i >> 8), 15: byte(i)})
		k.Announced(router, []Network{network(after, time.Hour)}, start.Add(time.Duration(i)))
	}
	if _, ok := k.announces(netip.MustParseAddr("fe80::3e7"), netip.MustParsePrefix(after)); len(k.networks) != maxKnown || !ok {
		t.Errorf("%d networks kept, the last %t", len(k.networks), ok)
	}
}

// TestNamed lets name servers of routers come and go (RFC 8106 section 5.1).
func TestNamed(t *testing.T) {
	a, b := netip.MustParseAddr("fe80::a"), netip.MustParseAddr("fe80::b")
	var k Known
	name := func(router netip.Addr, after, lifetime time.Duration, servers ...string) {
		var list []Resolver
		for _, s := range servers {
			list = append(list, Resolver{netip.MustParseAddr(s), lifetime})
		}
		k.Named(router, list, start.Add(after))
	}
	check := func(what string, after time.Duration, want ...string) {
		t.Helper()
		var got []string
		for _, r := range k.Resolvers(start.Add(after)) {
			got = append(got, r.String())
		}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("nothing", 0)
	name(a, 0, time.Minute, "2001:db8::1", "2001:db8::2")
	name(b, 0, time.Hour, "2001:db8::3", "2001:db8::2")
	check("two routers, in the order of arrival, each server once", 0, "2001:db8::1", "2001:db8::2", "2001:db8::3")
	name(a, 0, 0)
	check("an advertisement that names none ends nothing", 0, "2001:db8::1", "2001:db8::2", "2001:db8::3")
	if next := k.Next(); !next.Equal(start.Add(time.Minute)) {
		t.Errorf("next %v", next.Sub(start))
	}
	check("those of one router have ended", time.Minute, "2001:db8::3", "2001:db8::2")
	name(b, 2*time.Minute, 0, "2001:db8::3")
	check("one is named no longer", 2*time.Minute, "2001:db8::2")
	k.Announced(a, []Network{network("2001:db8:1::/64", time.Hour)}, start.Add(3*time.Minute))
	name(a, 3*time.Minute, time.Hour, "2001:db8::4")
	k.Moved(netip.MustParsePrefix("2001:db8:1::/64"))
	check("in another network", 3*time.Minute, "2001:db8::4")
	for i := range 1000 {
		name(netip.AddrFrom16([16]byte{0xfe, 0x80, 14: byte(i >> 8), 15: byte(i)}), 4*time.Minute, time.Hour,
			netip.AddrFrom16([16]byte{0x20, 1, 14: byte(i >> 8), 15: byte(i)}).String())
	}
	if got := k.Resolvers(start.Add(4 * time.Minute)); len(k.named) > maxKnown || len(got) > MaxResolvers {
		t.Errorf("%d kept, %d asked", len(k.named), len(got))
	}
}

// TestMovedBack has one router lead the host from a network into another, and back: what it said
// of the other's NAT64 is of no use then (RFC 8781 section 5.1).
func TestMovedBack(t *testing.T) {
	const first, second = "2001:db8:1::/64", "2001:db8:2::/64"
	router := netip.MustParseAddr("fe80::a")
	for _, tt := range []struct {
		name    string
		between []Network // announced in the other network
		back    []Network
		want    []string
	}{
		{"deprecated and back", []Network{network(first, 0), network(second, time.Hour)},
			[]Network{network(first, time.Hour), network(second, 0)}, []string{"2001:db8:a::/96"}},
		{"said no more until its end, and back", []Network{network(second, time.Hour)},
			[]Network{network(first, time.Hour)}, []string{"2001:db8:a::/96"}},
		{"back into one that is deprecated still", []Network{network(first, 0), network(second, time.Hour)},
			[]Network{network(first, 0), network(second, 0)}, []string{"2001:db8:b::/96", "2001:db8:a::/96"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var k Known
			now := start
			say := func(networks []Network, prefix string) {
				k.Announced(router, networks, now)
				k.Advertised(router, []Option{option(prefix, 10*time.Hour)}, now)
			}
			say([]Network{network(first, time.Hour)}, "2001:db8:a::/96")
			now = now.Add(2 * time.Hour)
			say(tt.between, "2001:db8:b::/96")
			k.Moved(netip.MustParsePrefix(second))
			now = now.Add(time.Minute)
			say(tt.back, "2001:db8:a::/96")
			k.Moved(netip.MustParsePrefix(first))
			var got []string
			for _, p := range k.Set(now).Prefixes {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestKnownShares has false routers say all that is kept: a true one is heard all the same.
func TestKnownShares(t *testing.T) {
	routers := func(n int) (list []netip.Addr) {
		for i := range n {
			list = append(list, netip.AddrFrom16([16]byte{0xfe, 0x80, 14: byte(i >> 8), 15: byte(i)}))
		}
		return list
	}
	junk := func(n int) (list []Option) {
		for i := range n {
			list = append(list, option(netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 0x0b, 0xad, 7: byte(i)}), 96).String(), time.Hour))
		}
		return list
	}
	truth := netip.MustParsePrefix("2001:db8:a::/96")
	router := netip.MustParseAddr("fe80::a:a")
	for _, tt := range []struct {
		name    string
		routers []netip.Addr
		each    int
	}{
		{"one, with all that is kept", routers(1), maxKnown},
		{"one, with its share", routers(1), maxOfRouter},
		{"as many as have all by their shares", routers(maxKnown / maxOfRouter), maxKnown},
		{"one for each place", routers(maxKnown), 1},
		{"many", routers(1000), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var k Known
			now := start
			lie := func() {
				for _, r := range tt.routers {
					now = now.Add(time.Millisecond)
					k.Advertised(r, junk(tt.each), now)
				}
			}
			lie()
			for round := range 3 {
				k.Advertised(router, []Option{option(truth.String(), time.Hour)}, now)
				if !slices.Contains(k.Set(now).Prefixes, truth) {
					t.Fatalf("round %d: the true router is kept out", round)
				}
				lie()
				if len(k.advertised) > maxKnown {
					t.Fatalf("%d kept", len(k.advertised))
				}
				if len(tt.routers) < maxKnown && !slices.Contains(k.Set(now).Prefixes, truth) {
					t.Errorf("round %d: the true router is driven out", round)
				}
			}
		})
	}
}

// TestKnownOwnShare: a router with its share replaces what it has not said for longest, and
// of one advertisement the first options count.
func TestKnownOwnShare(t *testing.T) {
	var k Known
	router := netip.MustParseAddr("fe80::a")
	said := func(from, to int) (list []Option) {
		for i := from; i < to; i++ {
			list = append(list, option(netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 7: byte(i)}), 96).String(), time.Hour))
		}
		return list
	}
	k.Advertised(router, said(0, 20), start)
	if got := k.Set(start).Prefixes; len(got) != maxOfRouter || got[0] != said(0, 1)[0].Prefix {
		t.Errorf("of twenty: %v", got)
	}
	k.Advertised(router, said(1, maxOfRouter), start.Add(time.Second))
	k.Advertised(router, said(30, 31), start.Add(2*time.Second))
	got := k.Set(start.Add(2 * time.Second)).Prefixes
	if len(got) != maxOfRouter || slices.Contains(got, said(0, 1)[0].Prefix) || !slices.Contains(got, said(30, 31)[0].Prefix) {
		t.Errorf("another one: %v", got)
	}
}
