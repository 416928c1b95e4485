// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var same = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func octets(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func option(prefix string, lifetime time.Duration) Option {
	return Option{netip.MustParsePrefix(prefix), lifetime}
}

// TestOption compares options with their octets, both ways.
func TestOption(t *testing.T) {
	for _, tt := range []struct {
		name   string
		option Option
		octets string
	}{
		{"the well-known prefix for half an hour", option("64:ff9b::/96", 1800*time.Second), "26 02 0708 0064ff9b 00000000 00000000"},
		{"/96", option("2001:db8:1:2:0:3::/96", 8*time.Second), "26 02 0008 20010db8 00010002 00000003"},
		{"/64", option("2001:db8:1:2::/64", 16*time.Second), "26 02 0011 20010db8 00010002 00000000"},
		{"/56", option("2001:db8:1:200::/56", 24*time.Second), "26 02 001a 20010db8 00010200 00000000"},
		{"/48", option("2001:db8:1::/48", 32*time.Second), "26 02 0023 20010db8 00010000 00000000"},
		{"/40", option("2001:db8:100::/40", 40*time.Second), "26 02 002c 20010db8 01000000 00000000"},
		{"/32", option("2001:db8::/32", 48*time.Second), "26 02 0035 20010db8 00000000 00000000"},
		{"the longest lifetime", option("64:ff9b::/96", 65528*time.Second), "26 02 fff8 0064ff9b 00000000 00000000"},
		{"withdrawn", option("64:ff9b::/96", 0), "26 02 0000 0064ff9b 00000000 00000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := octets(t, tt.octets)
			if got, err := AppendOption(nil, tt.option); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%x, %v; want %x", got, err, want)
			}
			if got, ok := ParseOption(want); !ok || got != tt.option {
				t.Errorf("%v, %v; want %v", got, ok, tt.option)
			}
		})
	}
}

func TestOptionRefused(t *testing.T) {
	for _, tt := range []struct{ name, octets string }{
		{"another type", "19 02 0708 0064ff9b 00000000 00000000"},
		{"length 1", "26 01 0708 0064ff9b"},
		{"length 3", "26 03 0708 0064ff9b 00000000 00000000 00000000 00000000"},
		{"length 2, but more octets", "26 02 0708 0064ff9b 00000000 00000000 00000000 00000000"},
		{"length code 6", "26 02 070e 20010db8 00000000 00000000"},
		{"length code 7", "26 02 070f 20010db8 00000000 00000000"},
		{"a link-local prefix", "26 02 0708 fe800000 00000000 00000000"},
		{"a multicast prefix", "26 02 0708 ff020000 00000000 00000000"},
		{"bits 64 to 71 set", "26 02 0708 20010db8 00000000 01000000"},
		{"nothing", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := ParseOption(octets(t, tt.octets)); ok {
				t.Errorf("taken as %v", got)
			}
		})
	}
	for _, o := range []Option{option("2001:db8::/80", 0), option("64:ff9b::/96", -1), {}} {
		if b, err := AppendOption(nil, o); err == nil || len(b) != 0 {
			t.Errorf("%v written as %x", o, b)
		}
	}
	got, ok := ParseOption(octets(t, "26 02 0023 20010db8 0001ffff ffffffff"))
	if want := option("2001:db8:1::/48", 32*time.Second); !ok || got != want {
		t.Errorf("bits behind the prefix matter: %v, %v", got, ok)
	}
}

// TestScaledLifetime rounds up, never to 0, never beyond the field.
func TestScaledLifetime(t *testing.T) {
	for _, tt := range []struct{ lifetime, want time.Duration }{
		{0, 0}, {time.Millisecond, 8 * time.Second}, {7 * time.Second, 8 * time.Second}, {8 * time.Second, 8 * time.Second},
		{9 * time.Second, 16 * time.Second}, {1801 * time.Second, 1808 * time.Second}, {65527 * time.Second, 65528 * time.Second},
		{65529 * time.Second, 65528 * time.Second}, {365 * 24 * time.Hour, 65528 * time.Second}, {1<<63 - 1, 65528 * time.Second},
	} {
		b, err := AppendOption(nil, option("64:ff9b::/96", tt.lifetime))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := ParseOption(b); got.Lifetime != tt.want {
			t.Errorf("%v becomes %v, want %v", tt.lifetime, got.Lifetime, tt.want)
		}
	}
	if got := DefaultLifetime(600 * time.Second); got != 1800*time.Second {
		t.Errorf("default %v", got)
	}
	if got := DefaultLifetime(10 * time.Hour); got != MaxLifetime {
		t.Errorf("default %v", got)
	}
}

func TestAdvertisement(t *testing.T) {
	options := []Option{option("2001:db8:64::/96", 1800*time.Second), option("2001:db8:65::/96", 0)}
	got, err := AppendAdvertisement(nil, options)
	want := octets(t, "86 00 0000 00 00 0000 00000000 00000000"+
		"26 02 0708 20010db8 00640000 00000000"+
		"26 02 0000 20010db8 00650000 00000000")
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%x, %v; want %x", got, err, want)
	}
	for _, tt := range []struct {
		name, octets string
		want         Advertisement
	}{
		{"our own", hex.EncodeToString(want), Advertisement{Options: options}},
		{"of a default router with other options", "86 00 0000 40 00 0708 00000000 00000000" +
			"01 01 020000000001" + "05 01 0000 000005dc" +
			"19 03 0000 00000258 20010db8 00000000 00000000 00000053" +
			"26 02 0708 0064ff9b 00000000 00000000",
			Advertisement{RouterLifetime: 1800 * time.Second, Options: []Option{option("64:ff9b::/96", 1800*time.Second)}, Resolvers: []netip.Addr{netip.MustParseAddr("2001:db8::53")}}},
		{"networks of the link, of which one goes, one is of the link alone and one has no such length", "86 00 0000 40 00 0708 00000000 00000000" +
			"03 04 40 c0 00000e10 00000708 00000000 20010db8 00010000 00000000 00000001" +
			"03 04 40 c0 00000000 00000000 00000000 20010db8 00020000 00000000 00000000" +
			"03 04 40 c0 00000e10 00000708 00000000 fe800000 00000000 00000000 00000000" +
			"03 04 81 c0 00000e10 00000708 00000000 20010db8 00030000 00000000 00000000",
			Advertisement{RouterLifetime: 1800 * time.Second, Networks: []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/64")}}},
		{"name servers that go", "86 00 0000 40 00 0708 00000000 00000000" + "19 03 0000 00000000 20010db8 00000000 00000000 00000053",
			Advertisement{RouterLifetime: 1800 * time.Second}},
		{"a PREF64 option to be ignored beside one that is not", "86 00 0000 40 00 0708 00000000 00000000" +
			"26 02 070f 0064ff9b 00000000 00000000" + "26 02 0708 0064ff9b 00000000 00000000",
			Advertisement{RouterLifetime: 1800 * time.Second, Options: []Option{option("64:ff9b::/96", 1800*time.Second)}}},
		{"no options", "86 00 0000 40 00 0000 00000000 00000000", Advertisement{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseAdvertisement(octets(t, tt.octets))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, tt := range []struct{ name, octets string }{
		{"too short", "86 00 0000 40 00 0708 00000000"},
		{"a solicitation", "85 00 0000 00000000 00000000 00000000"},
		{"a code", "86 01 0000 40 00 0708 00000000 00000000"},
		{"an option without a length", "86 00 0000 40 00 0708 00000000 00000000 2600070800000000"},
		{"an option beyond the end", "86 00 0000 40 00 0708 00000000 00000000 2602070800000000"},
		{"half an option", "86 00 0000 40 00 0708 00000000 00000000 26"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := ParseAdvertisement(octets(t, tt.octets)); err == nil {
				t.Errorf("taken as %+v", got)
			}
		})
	}
}

func TestSolicitation(t *testing.T) {
	if b := AppendSolicitation(nil); !IsSolicitation(b) || !bytes.Equal(b, octets(t, "85 00 0000 00000000")) {
		t.Errorf("%x", b)
	}
	for _, tt := range []struct {
		octets string
		want   bool
	}{
		{"85 00 0000 00000000 01 01 020000000001", true},
		{"85 00 0000 00000000 01 00 020000000001", false},
		{"85 00 0000 00000000 01 02 020000000001", false},
		{"85 00 0000 00000000 01", false},
		{"85 01 0000 00000000", false},
		{"86 00 0000 00000000", false},
		{"85 00 0000", false},
	} {
		if got := IsSolicitation(octets(t, tt.octets)); got != tt.want {
			t.Errorf("%s: %v", tt.octets, got)
		}
	}
}

func TestSearch(t *testing.T) {
	for _, tt := range []struct {
		name      string
		addresses []string
		want      []string
	}{
		{"/96", []string{"2001:db8:64::192.0.0.170"}, []string{"2001:db8:64::/96"}},
		{"/64", []string{"2001:db8:64:1:c0:0:aa00::"}, []string{"2001:db8:64:1::/64"}},
		{"/56", []string{"2001:db8:64:1c0:0:aa::"}, []string{"2001:db8:64:100::/56"}},
		{"/48", []string{"2001:db8:64:c000:0:aa00::"}, []string{"2001:db8:64::/48"}},
		{"/40", []string{"2001:db8:64c0::aa:0:0:0"}, []string{"2001:db8:6400::/40"}},
		{"/32", []string{"2001:db8:c000:aa::"}, []string{"2001:db8::/32"}},
		{"the well-known prefix", []string{"64:ff9b::192.0.0.170", "64:ff9b::192.0.0.171"}, []string{"64:ff9b::/96"}},
		{"by the other address alone", []string{"2001:db8:64::192.0.0.171"}, []string{"2001:db8:64::/96"}},
		{"several, in their order", []string{"2001:db8:66::192.0.0.170", "2001:db8:66::192.0.0.171", "64:ff9b::192.0.0.170", "2001:db8:65::192.0.0.170"},
			[]string{"2001:db8:66::/96", "64:ff9b::/96", "2001:db8:65::/96"}},
		{"a suffix", []string{"2001:db8:c000:aa::1"}, []string{"2001:db8::/32"}},
		{"twice the same: the other address decides", []string{"2001:db8:c000:aa::c000:aa", "2001:db8:c000:aa::c000:ab"}, []string{"2001:db8:c000:aa::/96"}},
		{"twice, once off the places of RFC 6052", []string{"2001:db8:0:c0:0:aa:c000:aa"}, nil},
		{"an address that says nothing", []string{"2001:db8::1", "::ffff:192.0.0.170", "192.0.0.170"}, nil},
		{"off the places of RFC 6052", []string{"2001:db8:64:1:0:c000:aa:0"}, nil},
		{"a prefix that no packet goes to", []string{"fe80::192.0.0.170", "ff02::192.0.0.170"}, nil},
		{"nothing", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var addresses []netip.Addr
			for _, a := range tt.addresses {
				addresses = append(addresses, netip.MustParseAddr(a))
			}
			var got []string
			for _, p := range Search(addresses) {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

var start = time.Unix(1_700_000_000, 0)

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
				var networks []netip.Prefix
				var options []Option
				for _, n := range s.networks {
					networks = append(networks, netip.MustParsePrefix(n))
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
		k.Announced(router, []netip.Prefix{netip.MustParsePrefix(after)}, start.Add(time.Duration(i)))
	}
	if _, ok := k.Announces(netip.MustParseAddr("fe80::3e7"), netip.MustParsePrefix(after)); len(k.networks) != maxKnown || !ok {
		t.Errorf("%d networks kept, the last %t", len(k.networks), ok)
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

// TestSchedule sends thrice early, then at random within the interval, and soon when
// asked.
func TestSchedule(t *testing.T) {
	now := start
	s := NewSchedule(DefaultInterval, rand.New(rand.NewPCG(1, 2)), now)
	if !s.Next().Equal(now) {
		t.Error("the first is due at once")
	}
	for i := range 50 {
		now = s.Next()
		s.Sent(now)
		wait := s.Next().Sub(now)
		if i < initialCount-1 && wait > initialInterval || wait > DefaultInterval || i >= initialCount && wait < DefaultInterval/3 {
			t.Errorf("wait %v behind number %d", wait, i)
		}
	}
	s.Solicited(now.Add(time.Second))
	if wait := s.Next().Sub(now); wait != delayBetween {
		t.Errorf("%v behind another", wait)
	}
	s.Solicited(now.Add(2 * time.Second))
	if wait := s.Next().Sub(now); wait != delayBetween {
		t.Errorf("two who ask: %v", wait)
	}
	later := now.Add(time.Minute)
	s.Sent(now)
	s.Solicited(later)
	if wait := s.Next().Sub(later); wait < 0 || wait >= solicitedDelay {
		t.Errorf("answered after %v", wait)
	}
	s.Soon(MinInterval, later)
	if !s.Next().Equal(later) {
		t.Error("news are not told at once")
	}
	s.Sent(later)
	s.Soon(MinInterval, later.Add(time.Second))
	if wait := s.Next().Sub(later); wait != delayBetween {
		t.Errorf("news behind news: %v", wait)
	}
	s.Sent(s.Next())
	if wait := s.Next().Sub(later); wait > delayBetween+MinInterval {
		t.Errorf("%v with a short interval", wait)
	}
}

func TestAskTimes(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want time.Duration
	}{
		{"ten seconds before the end", AskAgain(600 * time.Second), 590 * time.Second},
		{"not at once", AskAgain(5 * time.Second), time.Second},
		{"not never", AskAgain(1000 * time.Hour), longest},
		{"a negative answer that says how long", AskAfterNegative(900 * time.Second), 900 * time.Second},
		{"one that does not", AskAfterNegative(0), negativeTime},
		{"the first failure", AskAfterFailures(1), 2 * time.Second},
		{"the third", AskAfterFailures(3), 8 * time.Second},
		{"the hundredth", AskAfterFailures(100), failureMost},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}

func TestConsistency(t *testing.T) {
	a, b := netip.MustParseAddr("fe80::a"), netip.MustParseAddr("fe80::b")
	own := []Option{option("2001:db8:64::/96", time.Hour), option("2001:db8:65::/96", time.Hour)}
	turned := []Option{option("2001:db8:65::/96", time.Minute), option("2001:db8:64::/96", time.Hour)}
	other := []Option{option("2001:db8:64::/96", time.Hour)}
	withdrawn := []Option{option("2001:db8:64::/96", time.Hour), option("2001:db8:65::/96", 0)}
	var c Consistency
	c.Own(own)
	for i, tt := range []struct {
		from          netip.Addr
		options       []Option
		differs, news bool
	}{
		{a, nil, false, false},
		{a, turned, false, false},
		{a, other, true, true},
		{a, other, true, false},
		{a, withdrawn, true, true},
		{b, other, true, true},
		{a, own, false, true},
		{a, own, false, false},
	} {
		if differs, news := c.Heard(tt.from, tt.options); differs != tt.differs || news != tt.news {
			t.Errorf("step %d: differs %v, news %v", i, differs, news)
		}
	}
	for i := range 100 {
		c.Heard(netip.AddrFrom16([16]byte{0xfe, 0x80, 15: byte(i)}), other)
	}
	if len(c.others) > maxRouters {
		t.Errorf("%d remembered", len(c.others))
	}
}

// FuzzAdvertisement reads any message; what it holds is written and read again as the
// same.
func FuzzAdvertisement(f *testing.F) {
	f.Add(octets(f, "86 00 0000 40 00 0708 00000000 00000000 26 02 0708 0064ff9b 00000000 00000000"))
	f.Add(octets(f, "86 00 0000 40 00 0708 00000000 00000000 19 03 0000 00000258 20010db8 00000000 00000000 00000053"))
	f.Add(octets(f, "85 00 0000 00000000 01 01 020000000001"))
	f.Add(octets(f, "86 00 0000 40 00 0708 00000000 00000000 26 02 070f 20010db8 00000000 00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		IsSolicitation(b)
		ParseOption(b)
		a, err := ParseAdvertisement(b)
		if err != nil {
			return
		}
		if len(a.Options) > maxOptions || len(a.Resolvers) > maxResolvers || len(a.Networks) > maxNetworks {
			t.Fatalf("no bound: %+v", a)
		}
		written, err := AppendAdvertisement(nil, a.Options)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseAdvertisement(written)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a.Options, again.Options, same); diff != "" {
			t.Errorf("(-read +read again):\n%s", diff)
		}
	})
}

// FuzzSearch finds in any address a prefix that makes this address, but for a suffix.
func FuzzSearch(f *testing.F) {
	for _, text := range []string{"2001:db8:64::192.0.0.170", "2001:db8:c000:aa::c000:aa", "2001:db8:64c0::aa:0:0:0"} {
		a := netip.MustParseAddr(text).As16()
		f.Add(a[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		for _, p := range Search([]netip.Addr{a, a}) {
			if !p.Contains(a) || p != p.Masked() {
				t.Errorf("%s is not in %s", a, p)
			}
		}
	})
}
