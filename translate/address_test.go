// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"
)

// TestEmbeddedAddresses runs the vectors of RFC 6052 section 2.4, tables 1 and 2, the
// other prefixes of RFC 8215 and the example of RFC 7915 appendix A.
func TestEmbeddedAddresses(t *testing.T) {
	tests := []struct{ prefix, v4, v6 string }{
		{"2001:db8::/32", "192.0.2.33", "2001:db8:c000:221::"},
		{"2001:db8:100::/40", "192.0.2.33", "2001:db8:1c0:2:21::"},
		{"2001:db8:122::/48", "192.0.2.33", "2001:db8:122:c000:2:2100::"},
		{"2001:db8:122:300::/56", "192.0.2.33", "2001:db8:122:3c0:0:221::"},
		{"2001:db8:122:344::/64", "192.0.2.33", "2001:db8:122:344:c0:2:2100::"},
		{"2001:db8:122:344::/96", "192.0.2.33", "2001:db8:122:344::192.0.2.33"},
		{"64:ff9b::/96", "192.0.2.33", "64:ff9b::192.0.2.33"},
		{"64:ff9b:1:fffe::/96", "192.0.2.33", "64:ff9b:1:fffe::192.0.2.33"},
		{"64:ff9b:1::/48", "10.1.2.3", "64:ff9b:1:a01:2:300::"},
		{"2001:db8:100::/40", "198.51.100.2", "2001:db8:1c6:3364:2::"},
	}
	for _, tt := range tests {
		t.Run(tt.prefix, func(t *testing.T) {
			p := prefix(t, tt.prefix)
			four, six := netip.MustParseAddr(tt.v4), netip.MustParseAddr(tt.v6)
			if got := p.Embed(four); got != six {
				t.Errorf("Embed(%s) = %s, want %s", four, got, six)
			}
			if got, ok := p.Extract(six); !ok || got != four {
				t.Errorf("Extract(%s) = %s, %v, want %s", six, got, ok, four)
			}
			if p.Prefix().String() != tt.prefix {
				t.Errorf("Prefix() = %s", p.Prefix())
			}
		})
	}
}

// TestEmbeddedPositions puts four different octets under each length and looks where
// they are, by the figure of RFC 6052 section 2.2.
func TestEmbeddedPositions(t *testing.T) {
	tests := []struct {
		prefix string
		at     [4]int
	}{
		{"2001:db8::/32", [4]int{4, 5, 6, 7}},
		{"2001:db8::/40", [4]int{5, 6, 7, 9}},
		{"2001:db8::/48", [4]int{6, 7, 9, 10}},
		{"2001:db8::/56", [4]int{7, 9, 10, 11}},
		{"2001:db8::/64", [4]int{9, 10, 11, 12}},
		{"2001:db8::/96", [4]int{12, 13, 14, 15}},
	}
	addresses := [][4]byte{
		{1, 2, 3, 4}, {255, 255, 255, 255}, {0, 0, 0, 0}, {128, 0, 0, 1}, {0, 255, 0, 255}, {203, 0, 113, 9},
		{192, 0, 2, 33}, {10, 0, 0, 1}, {8, 8, 8, 8}, {224, 1, 2, 3}, {127, 0, 0, 1}, {254, 253, 252, 251},
	}
	for _, tt := range tests {
		t.Run(tt.prefix, func(t *testing.T) {
			p := prefix(t, tt.prefix)
			for _, a := range addresses {
				want := netip.MustParsePrefix(tt.prefix).Addr().As16()
				for i, at := range tt.at {
					want[at] = a[i]
				}
				if got := p.embed(a); got != want {
					t.Errorf("embed(%v) = %x, want %x", a, got, want)
				}
				if got := p.extract(&want); got != a {
					t.Errorf("extract(%x) = %v, want %v", want, got, a)
				}
			}
		})
	}
}

// TestEmbeddedSuffix: what stands in the suffix and in bits 64 to 71 is ignored (RFC
// 6052 section 2.2).
func TestEmbeddedSuffix(t *testing.T) {
	tests := []struct{ prefix, v6 string }{
		{"2001:db8::/32", "2001:db8:c000:221:ffff:ffff:ffff:ffff"},
		{"2001:db8:100::/40", "2001:db8:1c0:2:ff21:ffff:ffff:ffff"},
		{"2001:db8:122::/48", "2001:db8:122:c000:ff02:21ff:ffff:ffff"},
		{"2001:db8:122:300::/56", "2001:db8:122:3c0:ff00:221:ffff:ffff"},
		{"2001:db8:122:344::/64", "2001:db8:122:344:ffc0:2:21ff:ffff"},
	}
	for _, tt := range tests {
		p := prefix(t, tt.prefix)
		if got, ok := p.Extract(netip.MustParseAddr(tt.v6)); !ok || got != netip.MustParseAddr("192.0.2.33") {
			t.Errorf("Extract(%s) = %s, %v", tt.v6, got, ok)
		}
	}
	p := prefix(t, "2001:db8::/96")
	if got, ok := p.Extract(netip.MustParseAddr("2001:db8:1::c000:221")); ok {
		t.Errorf("an address of another prefix gave %s", got)
	}
}

func TestPrefixRefused(t *testing.T) {
	tests := []struct{ name, prefix string }{
		{"length between the known ones", "2001:db8::/44"},
		{"length 72", "2001:db8::/72"},
		{"length 24", "2001:d00::/24"},
		{"length 128", "2001:db8::1/128"},
		{"bits behind the length", "2001:db8::1/96"},
		{"bits 64 to 71 set", "2001:db8:0:0:100::/96"},
		{"IPv4", "192.0.2.0/24"},
		{"well-known prefix with another length", "64:ff9b::/64"},
		{"covers the well-known prefix", "64:ff9b::/32"},
		{"multicast", "ff0e::/96"},
		{"link-local", "fe80::/64"},
		{"unspecified", "::/96"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := NewPrefix(netip.MustParsePrefix(tt.prefix)); err == nil {
				t.Errorf("%s accepted", tt.prefix)
			} else {
				t.Log(err)
			}
		})
	}
	if _, err := NewPrefix(netip.Prefix{}); err == nil {
		t.Error("the zero prefix accepted")
	}
}

// TestWellKnownPrefixRules: packets that pair the well-known prefix with a non-global
// IPv4 address are dropped, in either direction and as either address (RFC 6052
// section 3.1); other prefixes have no such rule (RFC 8215 section 5).
func TestWellKnownPrefixRules(t *testing.T) {
	wkp := func(s *Settings) { s.Prefixes = []Prefix{prefix(t, "64:ff9b::/96")} }
	strict := translator(t, wkp)
	relaxed := translator(t, func(s *Settings) { wkp(s); s.NonGlobal = true })
	local := translator(t, func(s *Settings) { s.Prefixes = []Prefix{prefix(t, "64:ff9b:1::/96")} })

	for _, a := range []string{
		"10.0.0.1", "100.64.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1",
		"192.168.1.1", "198.19.0.1", "198.51.100.1", "203.0.113.1",
	} {
		global := "8.8.4.4"
		for _, in := range [][]byte{
			v4{src: a, dst: global, payload: udp(4)}.bytes(),
			v4{src: global, dst: a, payload: udp(4)}.bytes(),
			v6{src: "64:ff9b::" + a, dst: "64:ff9b::" + global, payload: udp(4)}.bytes(),
			v6{src: "64:ff9b::" + global, dst: "64:ff9b::" + a, payload: udp(4)}.bytes(),
		} {
			if res, out := run(strict, in, testPath); res.Reason != ReasonNonGlobal || len(out) != 0 {
				t.Errorf("%s strict: %v %v", a, res.Verdict, res.Reason)
			}
			if res, _ := run(relaxed, in, testPath); res.Verdict != Translated {
				t.Errorf("%s relaxed: %v %v", a, res.Verdict, res.Reason)
			}
		}
		in := v6{src: "64:ff9b:1::" + a, dst: "64:ff9b:1::" + global, payload: udp(4)}.bytes()
		if res, _ := run(local, in, testPath); res.Verdict != Translated {
			t.Errorf("%s by the local-use prefix: %v %v", a, res.Verdict, res.Reason)
		}
	}
	for _, a := range []string{"8.8.8.8", "100.63.255.255", "100.128.0.0", "172.32.0.1", "198.20.0.1", "192.0.1.1", "223.255.255.254"} {
		in := v4{src: a, dst: "8.8.4.4", payload: udp(4)}.bytes()
		if res, _ := run(strict, in, testPath); res.Verdict != Translated {
			t.Errorf("global address %s: %v %v", a, res.Verdict, res.Reason)
		}
	}
}

// TestLongestPrefix: to IPv4 the longest matching prefix counts, to IPv6 the first.
func TestLongestPrefix(t *testing.T) {
	tr := translator(t, func(s *Settings) {
		s.Prefixes = []Prefix{prefix(t, "2001:db8::/32"), prefix(t, "2001:db8:64::/96")}
	})
	wantPackets(t, tr, testPath, v6{hop: 9, payload: udp(3)}.bytes(), v4{id: 0x1234, ttl: 8, payload: udp(3)}.bytes())
	wantPackets(t, tr, testPath, v4{payload: udp(3)}.bytes(),
		v6{src: "2001:db8:c633:6402::", dst: "2001:db8:c000:221::", payload: udp(3)}.bytes())
}

func TestRepresents(t *testing.T) {
	for _, tt := range []struct {
		prefix, a string
		want      bool
	}{
		{"64:ff9b::/96", "1.1.1.1", true},
		{"64:ff9b::/96", "10.0.0.1", false},
		{"64:ff9b::/96", "192.0.2.1", false},
		{"64:ff9b::/96", "192.0.0.170", false},
		{"2001:db8:64::/96", "10.0.0.1", true},
		{"64:ff9b:1::/96", "10.0.0.1", true},
		{"2001:db8:64::/96", "169.254.169.254", false},
		{"2001:db8:64::/96", "127.0.0.1", false},
	} {
		p, err := NewPrefix(netip.MustParsePrefix(tt.prefix))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Represents(netip.MustParseAddr(tt.a)); got != tt.want {
			t.Errorf("%s represents %s: %v", tt.prefix, tt.a, got)
		}
	}
}
