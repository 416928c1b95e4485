// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDNS64 reads what a DNS64 is made of.
func TestDNS64(t *testing.T) {
	const smallest = `
		[[dns64]]
		upstreams = ["2001:db8::53", "192.0.2.53", "[2001:db8::54]:5353"]
		clients = ["2001:db8:1::/48"]
		`
	at := netip.MustParseAddrPort
	prefix := netip.MustParsePrefix
	with := func(change func(*DNS64)) DNS64 {
		d := DefaultDNS64()
		d.Upstreams = []netip.AddrPort{at("[2001:db8::53]:53"), at("192.0.2.53:53"), at("[2001:db8::54]:5353")}
		d.Clients = []netip.Prefix{prefix("2001:db8:1::/48")}
		change(&d)
		return d
	}
	for _, tt := range []struct {
		name, text string
		want       DNS64
	}{
		{"smallest", smallest, with(func(*DNS64) {})},
		{"an upstream that validates", smallest + `trusted = ["192.0.2.53:53"]`,
			with(func(d *DNS64) { d.Trusted = []netip.AddrPort{at("192.0.2.53:53")} })},
		{"ranges", smallest + `ranges = ["10.0.0.0/8 2001:db8:10::/96", "172.16.0.0/12 none"]`,
			with(func(d *DNS64) {
				d.Ranges = []DNS64Range{{prefix("10.0.0.0/8"), prefix("2001:db8:10::/96")}, {IPv4: prefix("172.16.0.0/12")}}
			})},
		{"all the world, spelled out", smallest + "open = true\nno_synthesis_for = [\"::/0\"]",
			with(func(d *DNS64) { d.Open, d.NoSynthesisFor = true, []netip.Prefix{prefix("::/0")} })},
		{"prefixes of its own", smallest + `prefixes = ["2001:db8:64::/96", "2001:db8:65::/64"]`,
			with(func(d *DNS64) { d.Prefixes = []netip.Prefix{prefix("2001:db8:64::/96"), prefix("2001:db8:65::/64")} })},
		{"prefixes of the NAT64 beside it", smallest + `
			[[nat64]]
			clients = ["2001:db8:1::/48"]
			pool6 = ["2001:db8:64::/96"]
			pool4 = ["192.0.2.10"]`,
			with(func(d *DNS64) { d.Prefixes = []netip.Prefix{prefix("2001:db8:64::/96")} })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parse(t, tt.text)
			if diff := cmp.Diff([]DNS64{tt.want}, c.DNS64s, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got, ok := c.DNS64("dns64"); !ok || got.Name != "dns64" {
				t.Errorf("not found by its name: %+v", got)
			}
		})
	}
}
