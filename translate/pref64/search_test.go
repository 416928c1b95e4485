// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
	if _, ok := k.Announces(netip.MustParseAddr("fe80::3e7"), netip.MustParsePrefix(after)); len(k.networks) != maxKnown || !ok {
		t.Errorf("%d networks kept, the last %t", len(k.networks), ok)
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
		{"at an end that is near", AskAgain(9 * time.Second), 9 * time.Second},
		{"not at once", AskAgain(0), time.Second},
		{"in use until others can be learnt", Keep(600 * time.Second), 600*time.Second + behindEnd},
		{"in use while it is asked for again", Keep(0), time.Second + behindEnd},
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
