// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/keys"
)

func TestWays(t *testing.T) {
	p := netip.MustParsePrefix
	cfg := Settings{
		Translation: keys.Translation{Pool6: []netip.Prefix{p("2001:db8:64::/96"), p("2001:db8:65::/48")}},
		Pool4:       []netip.Prefix{p("192.0.2.0/29"), p("192.0.2.8/29")},
	}
	mappings := []translate.Mapping{
		{IPv4: p("198.51.100.0/24"), IPv6: p("2001:db8:7::/120")},
		{IPv4: p("203.0.113.7/32"), IPv6: p("2001:db8:64::cb00:7109/128")}, // that of 203.0.113.9
	}
	led := gateway.NewPrefixes(destinations(&cfg, mappings))
	for _, tt := range []struct {
		name string
		way  port.RouteEntry
		want string // in the answer; empty: nothing is in the way
	}{
		{"a default route", port.RouteEntry{Dst: p("0.0.0.0/0")}, ""},
		{"the network that mapped addresses lie in", port.RouteEntry{Dst: p("198.51.100.0/23")}, ""},
		{"the same destination, later", port.RouteEntry{Dst: p("198.51.100.0/24"), Metric: 5}, ""},
		{"a part of a mapping", port.RouteEntry{Dst: p("198.51.100.128/25")}, "leads packets past the translator"},
		{"an own address in a mapping", port.RouteEntry{Dst: p("198.51.100.1/32"), Local: true}, "198.51.100.1/32 end on this host"},
		{"all of a network is this host's", port.RouteEntry{Dst: p("198.51.0.0/16"), Local: true}, "end on this host"},
		{"a part of pool6", port.RouteEntry{Dst: p("2001:db8:64::c633:6464/128")}, ""}, // 198.51.100.100 is mapped
		{"hosts of pool4", port.RouteEntry{Dst: p("2001:db8:64::c000:200/124")}, ""},
		{"hosts of pool4 and more", port.RouteEntry{Dst: p("2001:db8:64::c000:200/123")}, "leads packets past the translator"},
		{"an own address among hosts of pool4", port.RouteEntry{Dst: p("2001:db8:64::c000:201/128"), Local: true}, ""},
		{"hosts of pool4 in a short prefix", port.RouteEntry{Dst: p("2001:db8:65:c000:2:0:0:0/84")}, ""},
		{"more of them in a short prefix", port.RouteEntry{Dst: p("2001:db8:65:c000:2:0:0:0/83")}, "leads packets past the translator"},
		{"a mapped address in pool6", port.RouteEntry{Dst: p("2001:db8:64::cb00:7109/128")}, ""},
		{"its neighbour", port.RouteEntry{Dst: p("2001:db8:64::cb00:710a/128")}, "leads packets past the translator"},
		{"other sources", port.RouteEntry{Dst: p("2001:db8:99::/48"), Source: true}, "some sources"},
	} {
		if why := newRouting(&cfg, mappings).lost(led, []port.RouteEntry{tt.way}); (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, why, tt.want)
		}
	}
}
