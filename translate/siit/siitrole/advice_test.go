// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/translate"
)

// TestAdviseCrossedMappings reports mappings of what is the translator's own, or stands
// for an IPv4 host.
func TestAdviseCrossedMappings(t *testing.T) {
	for _, tt := range []struct {
		name               string
		eam                []string // pairs
		address4, address6 string
		want               string // of the one sentence; empty: none
	}{
		{"apart", []string{"198.51.100.1", "2001:db8:1::1"}, "198.51.100.2", "2001:db8:1::2", ""},
		{"no address4", []string{"198.51.100.1", "2001:db8:1::1"}, "", "", ""},
		{"address4", []string{"198.51.100.1", "2001:db8:1::1"}, "198.51.100.1", "", "the mapping 198.51.100.1/32 = 2001:db8:1::1/128 gives address4"},
		{"address4 in a range", []string{"198.51.100.0/28", "2001:db8:1::/124"}, "198.51.100.15", "", "gives address4"},
		{"address4 behind a range", []string{"198.51.100.0/28", "2001:db8:1::/124"}, "198.51.100.16", "", ""},
		{"in pool6", []string{"198.51.100.1", "2001:db8:64::1"}, "", "", "has IPv6 addresses in pool6"},
		{"pool6 in it", []string{"198.51.100.0/24", "2001:db8:64::/56"}, "", "", "has IPv6 addresses in pool6"},
		{"several", []string{"198.51.100.1", "2001:db8:64::1", "198.51.100.2", "2001:db8:1::2", "198.51.100.3", "2001:db8:64::3"}, "", "", "2001:db8:64::1/128 (and 1 more) has"},
		{"address6 in pool6", []string{"198.51.100.1", "2001:db8:1::1"}, "", "2001:db8:64::7", "address6 2001:db8:64::7 lies in pool6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := defaults()
			c.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
			c.Address4, _ = netip.ParseAddr(tt.address4)
			c.Address6, _ = netip.ParseAddr(tt.address6)
			for i := 0; i < len(tt.eam); i += 2 {
				m, err := translate.ParseMapping(tt.eam[i], tt.eam[i+1])
				if err != nil {
					t.Fatal(err)
				}
				c.EAM = append(c.EAM, m)
			}
			told := advise(c)
			if tt.want == "" && len(told) > 0 || tt.want != "" && (len(told) != 1 || !strings.Contains(told[0], tt.want)) {
				t.Errorf("told %q, want %q", told, tt.want)
			}
		})
	}
}
