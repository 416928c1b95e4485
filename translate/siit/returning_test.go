// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siit

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// TestCirclesEnd: what comes out is led to the translator again, as a host does that has no
// route to the IPv6 host. The host takes one hop and the device gives two.
func TestCirclesEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		from  netip.Addr
		to    string
		hops  byte
		round int // passes at most
	}{
		{"from IPv4 to pool4", host4, "203.0.113.7", 64, 12},
		{"from IPv4 to pool4, all hops", host4, "203.0.113.7", 255, 16},
		{"from IPv6 to pool4", host6, "2001:db8:64::203.0.113.7", 64, 12},
		{"by the second prefix", host6, "2001:db8:65::203.0.113.7", 64, 12},
		{"to a mapping in the prefix", host4, "198.51.100.7", 64, 12},
		{"to a mapping in the prefix, by its IPv4 form", host6, "2001:db8:64::198.51.100.7", 64, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := engine(t, circular(t))
			p := echo(tt.from, netip.MustParseAddr(tt.to), tt.hops)
			var out packet.Batch
			for n := 1; ; n++ {
				out.Reset()
				e.Handle(p, start, &out)
				if len(out.IP) != 1 || n > tt.round {
					t.Fatalf("%d packets came out of pass %d", len(out.IP), n)
				}
				p = append([]byte(nil), out.IP[0]...)
				if isError(p) {
					return
				}
				lead(p)
			}
		})
	}
}

// isError reports whether a packet is Time Exceeded of either family.
func isError(p []byte) bool {
	if p[0]>>4 == 4 {
		return p[9] == 1 && p[20] == icmpTimeExceeded
	}
	return p[6] == packet.ProtoICMPv6 && p[40] == packet.ICMPv6TimeExceeded
}

// lead gives a packet the hop that it gains on its way from the device to the device.
func lead(p []byte) {
	at := hopLimitAt
	if p[0]>>4 == 4 {
		at = 8
	}
	p[at] = min(p[at], 254) + 1
	if at == 8 {
		p[10], p[11] = 0, 0
		sum := ^packet.Fold(packet.Sum(0, p[:20]))
		p[10], p[11] = byte(sum>>8), byte(sum)
	}
}

// TestHopsOfOthers: of what does not come back one hop is taken.
func TestHopsOfOthers(t *testing.T) {
	for _, tt := range []struct{ name, from, to string }{
		{"to an IPv4 host", host6.String(), "2001:db8:64::192.0.2.2"},
		{"to a mapping outside of the prefixes, as a CLAT's own is", "2001:db8:64::192.0.2.2", host6.String()},
		{"to a host of pool4, which has a route", host4.String(), "203.0.113.7"},
		{"turned round to a mapping in the prefix", host6.String(), "2001:db8:64::198.51.100.7"},
		{"turned round", host6.String(), "2001:db8:64::198.51.100.6"},
	} {
		e := engine(t, circular(t))
		var out packet.Batch
		e.Handle(echo(netip.MustParseAddr(tt.from), netip.MustParseAddr(tt.to), 64), start, &out)
		if len(out.IP) != 1 {
			t.Fatalf("%s: %d packets came out", tt.name, len(out.IP))
		}
		hops := out.IP[0][hopLimitAt]
		if out.IP[0][0]>>4 == 4 {
			hops = out.IP[0][8]
		}
		if hops != 63 {
			t.Errorf("%s: %d hops are left, want 63", tt.name, hops)
		}
	}
}

// circular has a pool4, and a mapping inside its first prefix.
func circular(t *testing.T) Settings {
	s := settings(t)
	second, err := translate.NewPrefix(netip.MustParsePrefix("2001:db8:65::/96"))
	if err != nil {
		t.Fatal(err)
	}
	s.Translate.Prefixes = append(s.Translate.Prefixes, second)
	s.Pool4 = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	var list []translate.Mapping
	for four, six := range map[string]string{mapped4.String(): host6.String(), "198.51.100.7": "2001:db8:64::192.0.2.77"} {
		m, err := translate.ParseMapping(four, six)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	if s.Translate.Mappings, err = translate.NewTable(list, false); err != nil {
		t.Fatal(err)
	}
	return s
}
