// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestSpecialIPv4: each row of the registry, by its first and last address, as source
// and destination from either side.
func TestSpecialIPv4(t *testing.T) {
	tr, p := translator(t, nil), prefix(t, testNSP)
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			six := p.Embed(a).String()
			source, destination := ReasonNone, ReasonNone
			if !special.Forwarded4(a.As4()) {
				source, destination = ReasonIllegalSource, ReasonIllegalDestination
			}
			for _, tt := range []struct {
				name string
				in   []byte
				want Reason
			}{
				{"IPv4 source", v4{src: a.String(), payload: udp(4)}.bytes(), source},
				{"IPv4 destination", v4{dst: a.String(), payload: udp(4)}.bytes(), destination},
				{"source from IPv6", v6{src: six, payload: udp(4)}.bytes(), source},
				{"destination from IPv6", v6{dst: six, payload: udp(4)}.bytes(), destination},
				{"source of an error", v4{src: a.String(), proto: protoICMP, payload: icmp(3, 1, 0, back4())}.bytes(), ReasonNone},
			} {
				if res, out := run(tr, tt.in, testPath); res.Reason != tt.want || (len(out) == 1) != (tt.want == ReasonNone) {
					t.Errorf("%s %s, %s: %v, want %v", row.Name, a, tt.name, res.Reason, tt.want)
				}
			}
			if p.Represents(a) != special.Forwarded4(a.As4()) {
				t.Errorf("%s %s: represented %t", row.Name, a, p.Represents(a))
			}
			known := prefix(t, WellKnownPrefix.String())
			if known.Represents(a) != special.Global4(a.As4()) {
				t.Errorf("%s %s: the well-known prefix represents it: %t", row.Name, a, known.Represents(a))
			}
		}
	}
}

// TestSpecialIPv6: the same of IPv6, where explicit mappings give addresses that no prefix
// does.
func TestSpecialIPv6(t *testing.T) {
	for _, row := range special.IPv6 {
		for _, a := range testutil.Ends(row.Prefix) {
			raw := a.As16()
			forwarded := special.Forwarded6(&raw)
			tr := translator(t, nil)
			m := Mapping{IPv4: netip.MustParsePrefix("203.0.113.77/32"), IPv6: netip.PrefixFrom(a, 128)}
			table, err := NewTable([]Mapping{m}, false)
			if (err == nil) != forwarded {
				t.Errorf("%s %s: mapping: %v", row.Name, a, err)
			}
			if err == nil {
				tr = translator(t, func(s *Settings) { s.Mappings = table })
			}
			source, destination := ReasonNone, ReasonNone
			if !forwarded {
				source, destination = ReasonIllegalSource, ReasonIllegalDestination
			}
			if res, _ := run(tr, v6{src: a.String(), payload: udp(4)}.bytes(), testPath); res.Reason != source {
				t.Errorf("%s %s as source: %v", row.Name, a, res.Reason)
			}
			if res, _ := run(tr, v6{dst: a.String(), payload: udp(4)}.bytes(), testPath); res.Reason != destination {
				t.Errorf("%s %s as destination: %v", row.Name, a, res.Reason)
			}
		}
	}
	for _, own := range []Settings{
		{Own4: netip.MustParseAddr("169.254.1.1")}, {Own6: netip.MustParseAddr("fec0::1")},
		{Pool4: prefixes("169.254.1.0/30")}, {Pool6: prefixes("fe80::/126")},
	} {
		own.Prefixes = []Prefix{prefix(t, testNSP)}
		if _, err := New(own); err == nil {
			t.Errorf("errors come from %+v", own)
		}
	}
}
