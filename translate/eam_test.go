// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"strings"
	"testing"
)

// figure1 is the example table of RFC 7757 section 3.2.
var figure1 = []string{
	"192.0.2.1", "2001:db8:aaaa::",
	"192.0.2.2/32", "2001:db8:bbbb::b/128",
	"192.0.2.16/28", "2001:db8:cccc::/124",
	"192.0.2.128/26", "2001:db8:dddd::/64",
	"192.0.2.192/29", "2001:db8:eeee:8::/62",
	"192.0.2.224/31", "64:ff9b::/127",
}

// TestMappingVectors runs figure 7 of RFC 7757 both ways, the last row by RFC 6052.
func TestMappingVectors(t *testing.T) {
	tr := translator(t, func(s *Settings) {
		s.Prefixes = []Prefix{prefix(t, "64:ff9b::/96")}
		s.NonGlobal = true
		s.Mappings = table(t, figure1...)
	})
	tests := []struct {
		v4, v6 string
		by     origin
	}{
		{"192.0.2.1", "2001:db8:aaaa::", byMapping},
		{"192.0.2.2", "2001:db8:bbbb::b", byMapping},
		{"192.0.2.16", "2001:db8:cccc::", byMapping},
		{"192.0.2.24", "2001:db8:cccc::8", byMapping},
		{"192.0.2.31", "2001:db8:cccc::f", byMapping},
		{"192.0.2.128", "2001:db8:dddd::", byMapping},
		{"192.0.2.152", "2001:db8:dddd:0:6000::", byMapping},
		{"192.0.2.183", "2001:db8:dddd:0:dc00::", byMapping},
		{"192.0.2.191", "2001:db8:dddd:0:fc00::", byMapping},
		{"192.0.2.195", "2001:db8:eeee:9:8000::", byMapping},
		{"192.0.2.225", "64:ff9b::1", byMapping},
		{"192.0.2.248", "64:ff9b::c000:2f8", byPrefix},
	}
	for _, tt := range tests {
		t.Run(tt.v4, func(t *testing.T) {
			four, six := netip.MustParseAddr(tt.v4).As4(), netip.MustParseAddr(tt.v6).As16()
			if got, r := tr.to6(four, true); got != six || r != ReasonNone {
				t.Errorf("to6 = %s, %v, want %s", netip.AddrFrom16(got), r, tt.v6)
			}
			if got, by, r := tr.to4(&six); got != four || by != tt.by || r != ReasonNone {
				t.Errorf("to4 = %v by %v, %v, want %s", got, by, r, tt.v4)
			}
			got6, ok := tr.mappings.To6(netip.MustParseAddr(tt.v4))
			if want := tt.by == byMapping; ok != want || ok && got6.String() != tt.v6 {
				t.Errorf("To6 = %s, %v", got6, ok)
			}
			got4, ok := tr.mappings.To4(netip.MustParseAddr(tt.v6))
			if want := tt.by == byMapping; ok != want || ok && got4.String() != tt.v4 {
				t.Errorf("To4 = %s, %v", got4, ok)
			}
		})
	}
}

// TestMappingDiscardsBits: bits behind the suffix are dropped on the way to IPv4 (RFC
// 7757 section 3.3.2 step 5) and zero on the way to IPv6 (section 3.3.1 step 5).
func TestMappingDiscardsBits(t *testing.T) {
	tab := table(t, figure1...)
	got, ok := tab.To4(netip.MustParseAddr("2001:db8:dddd:0:63ff:ffff:ffff:ffff"))
	if !ok || got.String() != "192.0.2.152" {
		t.Errorf("To4 = %s, %v", got, ok)
	}
	whole := table(t, "0.0.0.0/0", "2001:db8:ff00::/40")
	six, ok := whole.To6(netip.MustParseAddr("198.51.100.64"))
	if !ok || six.String() != "2001:db8:ffc6:3364:4000::" {
		t.Errorf("To6 = %s, %v", six, ok)
	}
}

// TestMappingLongestMatch looks each column up by its own longest prefix, with the
// example of RFC 7757 section 5.
func TestMappingLongestMatch(t *testing.T) {
	var mappings []Mapping
	for _, pair := range [][2]string{
		{"0.0.0.0/0", "2001:db8:ff00::/40"},
		{"198.51.100.64", "2001:db8::abcd"},
		{"203.0.113.0/24", "2001:db8:ff12::/48"},
	} {
		m, err := ParseMapping(pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		mappings = append(mappings, m)
	}
	if _, err := NewTable(mappings, false); err == nil || !strings.Contains(err.Error(), "overlaps") {
		t.Errorf("overlap accepted: %v", err)
	}
	tab, err := NewTable(mappings, true)
	if err != nil {
		t.Fatal(err)
	}
	for v4, v6 := range map[string]string{
		"198.51.100.64": "2001:db8::abcd",
		"198.51.100.65": "2001:db8:ffc6:3364:4100::",
		"203.0.113.5":   "2001:db8:ff12:500::",
	} {
		if got, _ := tab.To6(netip.MustParseAddr(v4)); got.String() != v6 {
			t.Errorf("To6(%s) = %s, want %s", v4, got, v6)
		}
	}
	for v6, v4 := range map[string]string{
		"2001:db8:ffc6:3364:4000::": "198.51.100.64",
		"2001:db8::abcd":            "198.51.100.64",
		"2001:db8:ff12:500::":       "203.0.113.5",
	} {
		if got, _ := tab.To4(netip.MustParseAddr(v6)); got.String() != v4 {
			t.Errorf("To4(%s) = %s, want %s", v6, got, v4)
		}
	}
	if got, ok := tab.To4(netip.MustParseAddr("2001:db9::")); ok {
		t.Errorf("an unmapped address gave %s", got)
	}
}

func TestMappingRefused(t *testing.T) {
	tests := []struct {
		name  string
		pairs []string
		say   string
	}{
		{"more suffix bits on the IPv4 side", []string{"192.0.2.0/24", "2001:db8::/124"}, "do not fit"},
		{"bits behind the IPv4 length", []string{"192.0.2.1/24", "2001:db8::/64"}, "192.0.2.0/24"},
		{"bits behind the IPv6 length", []string{"192.0.2.0/24", "2001:db8::1/64"}, "2001:db8::/64"},
		{"sides exchanged", []string{"2001:db8::", "192.0.2.1"}, "no IPv4"},
		{"IPv4 twice", []string{"192.0.2.0/24", "192.0.2.0/24"}, "no IPv6"},
		{"IPv4-mapped", []string{"192.0.2.1", "::ffff:192.0.2.1"}, "no IPv6"},
		{"multicast", []string{"192.0.2.1", "ff0e::1"}, "never forwarded"},
		{"link-local", []string{"192.0.2.1", "fe80::1"}, "never forwarded"},
		{"not an address", []string{"192.0.2", "2001:db8::"}, "neither"},
		{"not a prefix", []string{"192.0.2.1", "2001:db8::/x"}, "neither"},
		{"identical IPv4 prefix", []string{"192.0.2.1", "2001:db8::1", "192.0.2.1", "2001:db8::2"}, "IPv4 prefix of mapping"},
		{"identical IPv6 prefix", []string{"198.51.100.8", "2001:db8::1", "198.51.100.9", "2001:db8::1"}, "IPv6 prefix of mapping"},
		{"overlap on the IPv4 side", []string{"192.0.2.0/24", "2001:db8::/64", "192.0.2.7", "2001:db8:1::"}, "overlaps"},
		{"overlap on the IPv6 side", []string{"192.0.2.0/24", "2001:db8::/64", "198.51.100.7", "2001:db8::1"}, "overlaps"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := parseAll(tt.pairs)
			if err == nil || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("error %v, want one that says %q", err, tt.say)
			}
		})
	}
	if _, err := NewTable([]Mapping{{}}, true); err == nil {
		t.Error("the zero mapping accepted")
	}
}

func parseAll(pairs []string) error {
	var mappings []Mapping
	for i := 0; i < len(pairs); i += 2 {
		m, err := ParseMapping(pairs[i], pairs[i+1])
		if err != nil {
			return err
		}
		mappings = append(mappings, m)
	}
	_, err := NewTable(mappings, false)
	return err
}

// TestOverlapAcross finds two that overlap though others stand between them.
func TestOverlapAcross(t *testing.T) {
	err := parseAll([]string{
		"192.0.2.0/24", "2001:db8:1::/64",
		"198.51.100.1", "2001:db8:2::1",
		"203.0.113.0/24", "2001:db8:3::/64",
		"192.0.2.200", "2001:db8:4::",
	})
	if err == nil || !strings.Contains(err.Error(), "192.0.2.200") {
		t.Errorf("error %v", err)
	}
}

// TestTableOverlaps finds mappings that share IPv6 addresses with a prefix.
func TestTableOverlaps(t *testing.T) {
	for mapping, want := range map[string]bool{
		"2001:db8:64::192.0.2.77/128": true,
		"2001:db8:64::c000:200/120":   true,
		"2001:db8::/32":               true,
		"2001:db8:65::/96":            false,
		"2001:db8:1::7/128":           false,
	} {
		m := Mapping{IPv4: netip.MustParsePrefix("198.51.100.7/32"), IPv6: netip.MustParsePrefix(mapping)}
		table, err := NewTable([]Mapping{m}, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := table.Overlaps(netip.MustParsePrefix("2001:db8:64::/96")); got != want {
			t.Errorf("%s: %v, want %v", mapping, got, want)
		}
	}
	if new(Table).Overlaps(netip.MustParsePrefix("::/0")) {
		t.Error("an empty table overlaps")
	}
}
