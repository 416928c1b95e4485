// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/translate/dns64"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// TestRole holds the declaration to what every section has, and its errors to
// testdata.
func TestRole(t *testing.T) { configtest.Section(t, Role.Section) }

// TestSettings reads what a DNS64 is made of.
func TestSettings(t *testing.T) {
	const smallest = `
		[[dns64]]
		upstreams = ["2001:db8::53", "192.0.2.53", "[2001:db8::54]:5353"]
		clients = ["2001:db8:1::/48"]
		`
	at := netip.MustParseAddrPort
	prefix := netip.MustParsePrefix
	with := func(change func(*Settings)) *Settings {
		s := defaults()
		s.Upstreams = []netip.AddrPort{at("[2001:db8::53]:53"), at("192.0.2.53:53"), at("[2001:db8::54]:5353")}
		s.Clients = []netip.Prefix{prefix("2001:db8:1::/48")}
		change(&s)
		return &s
	}
	for _, tt := range []struct {
		name, text string
		want       *Settings
	}{
		{"smallest", smallest, with(func(*Settings) {})},
		{"an upstream that validates", smallest + `trusted = ["192.0.2.53:53"]`,
			with(func(s *Settings) { s.Trusted = []netip.AddrPort{at("192.0.2.53:53")} })},
		{"ranges", smallest + `ranges = ["10.0.0.0/8 2001:db8:10::/96", "172.16.0.0/12 none"]`,
			with(func(s *Settings) {
				s.Ranges = []dns64.Range{{IPv4: prefix("10.0.0.0/8"), Prefix: prefix("2001:db8:10::/96")}, {IPv4: prefix("172.16.0.0/12")}}
			})},
		{"all the world, spelled out", smallest + "open = true\nno_synthesis_for = [\"::/0\"]",
			with(func(s *Settings) { s.Open, s.NoSynthesisFor = true, []netip.Prefix{prefix("::/0")} })},
		{"prefixes of its own", smallest + `prefixes = ["2001:db8:64::/96", "2001:db8:65::/64"]`,
			with(func(s *Settings) {
				s.Prefixes = []netip.Prefix{prefix("2001:db8:64::/96"), prefix("2001:db8:65::/64")}
			})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := configtest.One(t, Role.Section, tt.text).(*Settings)
			if diff := cmp.Diff(tt.want, got, configtest.Same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTake gives a DNS64 the prefixes of the NAT64s beside it, unless it has its own.
func TestTake(t *testing.T) {
	first, second := netip.MustParsePrefix("2001:db8:64::/96"), netip.MustParsePrefix("64:ff9b::/96")
	offers := []any{pref64.Local{first}, "another role's", pref64.Local{second, first}}
	s := defaults()
	s.take(offers)
	if diff := cmp.Diff([]netip.Prefix{first, second}, s.Prefixes, configtest.Same); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.Prefixes = []netip.Prefix{second}
	s.take(offers)
	if diff := cmp.Diff([]netip.Prefix{second}, s.Prefixes, configtest.Same); diff != "" {
		t.Errorf("with prefixes of its own (-want +got):\n%s", diff)
	}
}

// TestItself has upstreams that are the DNS64, by an address where it listens or where the host
// has all.
func TestItself(t *testing.T) {
	host := netip.MustParseAddr("2001:db8:1::53")
	for _, tt := range []struct {
		name           string
		listen         []string
		upstream       string
		written, found bool // refused as it is written, or by the host's addresses
	}{
		{"where it listens", []string{"[2001:db8:1::53]:53"}, "[2001:db8:1::53]:53", true, true},
		{"another port", []string{"[2001:db8:1::53]:53"}, "[2001:db8:1::53]:5353", false, false},
		{"loopback", []string{"[::]:53"}, "[::1]:53", true, true},
		{"loopback of IPv4 by a socket of both", []string{"[::]:53"}, "127.0.0.1:53", true, true},
		{"loopback of IPv4", []string{"0.0.0.0:53"}, "127.0.0.53:53", true, true},
		{"loopback of the other family", []string{"0.0.0.0:53"}, "[::1]:53", false, false},
		{"loopback, another port", []string{"[::]:53"}, "[::1]:5353", false, false},
		{"loopback, where it does not listen", []string{"[2001:db8:1::53]:53"}, "[::1]:53", false, false},
		{"an address of the host", []string{"192.0.2.1:53", "[::]:53"}, "[2001:db8:1::53]:53", false, true},
		{"another host's", []string{"[::]:53"}, "[2001:db8::53]:53", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s Settings
			for _, at := range tt.listen {
				s.Listen = append(s.Listen, netip.MustParseAddrPort(at))
			}
			to := netip.MustParseAddrPort(tt.upstream)
			own := func(a netip.Addr) bool { return a == host || a.IsLoopback() }
			if written, found := s.reaches(to, netip.Addr.IsLoopback), s.reaches(to, own); written != tt.written || found != tt.found {
				t.Errorf("as written %t, on the host %t", written, found)
			}
		})
	}
}
