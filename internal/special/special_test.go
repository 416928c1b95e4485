// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package special_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/special"
)

// Each row of the registries, by addresses of it that no longer row has.
func TestRegistries(t *testing.T) {
	type verdict struct{ forwarded, global bool }
	never, inside, everywhere := verdict{}, verdict{forwarded: true}, verdict{true, true}
	for _, tt := range []struct {
		row   string
		addrs []string
		want  verdict
	}{
		{"0.0.0.0/8", []string{"0.0.0.1", "0.255.255.255"}, never},
		{"0.0.0.0/32", []string{"0.0.0.0"}, never},
		{"10.0.0.0/8", []string{"10.0.0.0", "10.255.255.255"}, inside},
		{"100.64.0.0/10", []string{"100.64.0.0", "100.127.255.255"}, inside},
		{"127.0.0.0/8", []string{"127.0.0.0", "127.0.0.1", "127.255.255.255"}, never},
		{"169.254.0.0/16", []string{"169.254.0.0", "169.254.169.254", "169.254.255.255"}, never},
		{"172.16.0.0/12", []string{"172.16.0.0", "172.31.255.255"}, inside},
		{"192.0.0.0/24", []string{"192.0.0.11", "192.0.0.169", "192.0.0.172", "192.0.0.255"}, never},
		{"192.0.0.0/29", []string{"192.0.0.0", "192.0.0.7"}, inside},
		{"192.0.0.8/32", []string{"192.0.0.8"}, never},
		{"192.0.0.9/32", []string{"192.0.0.9"}, everywhere},
		{"192.0.0.10/32", []string{"192.0.0.10"}, everywhere},
		{"192.0.0.170/32", []string{"192.0.0.170"}, never},
		{"192.0.0.171/32", []string{"192.0.0.171"}, never},
		{"192.0.2.0/24", []string{"192.0.2.0", "192.0.2.255"}, inside},
		{"192.31.196.0/24", []string{"192.31.196.0", "192.31.196.255"}, everywhere},
		{"192.52.193.0/24", []string{"192.52.193.0", "192.52.193.255"}, everywhere},
		{"192.88.99.0/24", []string{"192.88.99.1", "192.88.99.255"}, inside},
		{"192.88.99.2/32", []string{"192.88.99.2"}, inside},
		{"192.168.0.0/16", []string{"192.168.0.0", "192.168.255.255"}, inside},
		{"192.175.48.0/24", []string{"192.175.48.0", "192.175.48.255"}, everywhere},
		{"198.18.0.0/15", []string{"198.18.0.0", "198.19.255.255"}, inside},
		{"198.51.100.0/24", []string{"198.51.100.0", "198.51.100.255"}, inside},
		{"203.0.113.0/24", []string{"203.0.113.0", "203.0.113.255"}, inside},
		{"224.0.0.0/4", []string{"224.0.0.0", "239.255.255.255"}, never},
		{"240.0.0.0/4", []string{"240.0.0.0", "255.255.255.254"}, never},
		{"255.255.255.255/32", []string{"255.255.255.255"}, never},
		{"IPv4 beside", []string{
			"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
			"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.1.255", "192.0.3.0",
			"192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
			"198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
		}, everywhere},
		{"::/96", []string{"::2", "::192.0.2.1", "::ffff:ffff"}, never},
		{"::/128", []string{"::"}, never},
		{"::1/128", []string{"::1"}, never},
		{"::ffff:0:0/96", []string{"::ffff:0:0", "::ffff:192.0.2.1", "::ffff:255.255.255.255"}, never},
		{"64:ff9b::/96", []string{"64:ff9b::", "64:ff9b::ffff:ffff"}, everywhere},
		{"64:ff9b:1::/48", []string{"64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"}, inside},
		{"100::/64", []string{"100::", "100::ffff:ffff:ffff:ffff"}, inside},
		{"100:0:0:1::/64", []string{"100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff"}, never},
		{"2001::/23", []string{"2001:5::", "2001:1::4", "2001:1ff:ffff::"}, inside},
		{"2001::/32", []string{"2001::", "2001:0:ffff::"}, inside},
		{"2001:1::1/128", []string{"2001:1::1"}, everywhere},
		{"2001:1::2/128", []string{"2001:1::2"}, everywhere},
		{"2001:1::3/128", []string{"2001:1::3"}, everywhere},
		{"2001:2::/48", []string{"2001:2::", "2001:2:0:ffff::"}, inside},
		{"2001:3::/32", []string{"2001:3::", "2001:3:ffff::"}, everywhere},
		{"2001:4:112::/48", []string{"2001:4:112::", "2001:4:112:ffff::"}, everywhere},
		{"2001:10::/28", []string{"2001:10::", "2001:1f:ffff::"}, inside},
		{"2001:20::/28", []string{"2001:20::", "2001:2f:ffff::"}, everywhere},
		{"2001:30::/28", []string{"2001:30::", "2001:3f:ffff::"}, everywhere},
		{"2001:db8::/32", []string{"2001:db8::", "2001:db8:ffff::"}, inside},
		{"2002::/16", []string{"2002::", "2002:a00:1::1", "2002:ffff::"}, inside},
		{"2620:4f:8000::/48", []string{"2620:4f:8000::", "2620:4f:8000:ffff::"}, everywhere},
		{"3fff::/20", []string{"3fff::", "3fff:fff:ffff::"}, inside},
		{"5f00::/16", []string{"5f00::", "5f00:ffff::"}, inside},
		{"fc00::/7", []string{"fc00::", "fdff:ffff::"}, inside},
		{"fe80::/10", []string{"fe80::", "fe80::1", "febf:ffff::"}, never},
		{"fec0::/10", []string{"fec0::", "feff:ffff::"}, never},
		{"ff00::/8", []string{"ff00::", "ff0e::1", "ffff:ffff::"}, never},
		{"IPv6 beside", []string{
			"::1:0:0", "::fffe:0:0", "::ffff:0:c000:201", "0:0:0:1::", "64:ff9b:0:0:0:1::", "64:ff9b:2::", "ff:ffff::", "100:0:0:2::", "101::", "2000:ffff::", "2001:200::", "2001:db7:ffff::",
			"2001:db9::", "2003::", "2620:4f:7fff::", "2620:4f:8001::", "3ffe:831f::1", "3fff:1000::", "5eff::", "5f01::", "fbff::", "fe00::", "fe7f:ffff::",
		}, everywhere},
	} {
		for _, s := range tt.addrs {
			a := netip.MustParseAddr(s)
			var got verdict
			if raw := a.As16(); a.Is4() {
				got = verdict{special.Forwarded4(a.As4()), special.Global4(a.As4())}
			} else {
				got = verdict{special.Forwarded6(&raw), tt.want.global}
			}
			if got != tt.want {
				t.Errorf("%s of %s: %+v, want %+v", a, tt.row, got, tt.want)
			}
		}
		if prefix, err := netip.ParsePrefix(tt.row); err == nil && !slices.ContainsFunc(slices.Concat(special.IPv4, special.IPv6), func(r special.Row) bool {
			return r.Prefix == prefix && verdict{r.Forwarded(), r.Global} == tt.want
		}) {
			t.Errorf("%s is not there with these verdicts", prefix)
		}
	}
	if n := len(special.IPv4) + len(special.IPv6); n != 27+28 {
		t.Errorf("%d rows; name new ones above", n)
	}
}

// The columns agree with each other (RFC 6890 section 2.2.1): what is forwarded may be
// either end of a packet, and what is global is forwarded.
func TestColumns(t *testing.T) {
	for _, r := range slices.Concat(special.IPv4, special.IPv6) {
		if r.Forwardable && !(r.Source && r.Destination) || r.Global && !r.Forwardable || r.Reserved && r.Forwarded() {
			t.Errorf("%s %s: %+v", r.Prefix, r.Name, r)
		}
		if r.Prefix.Masked() != r.Prefix {
			t.Errorf("%s has bits behind its length", r.Prefix)
		}
	}
}

func TestForwardedPrefix(t *testing.T) {
	for s, want := range map[string]bool{
		"0.0.0.0/0": false, "128.0.0.0/1": false, "169.254.7.0/24": false, "192.0.0.0/16": false, "192.0.0.0/29": true,
		"10.0.0.0/8": true, "8.0.0.0/6": true, "203.0.113.0/24": true, "192.0.0.8/30": false,
		"::/0": false, "2000::/3": true, "64:ff9b::/96": true, "100::/32": false, "100::/64": true, "fe80::/64": false,
		"fc00::/6": false, "fc00::/7": true, "::ffff:0:0/96": false, "2001:db8::/32": true,
	} {
		if got := special.ForwardedPrefix(netip.MustParsePrefix(s)); got != want {
			t.Errorf("%s: %t", s, got)
		}
	}
}

func BenchmarkForwarded(b *testing.B) {
	four, six := [4]byte{192, 0, 2, 1}, netip.MustParseAddr("2001:db8::1").As16()
	b.ReportAllocs()
	for b.Loop() {
		if !special.Forwarded4(four) || !special.Forwarded6(&six) {
			b.Fatal("not forwarded")
		}
	}
}

func TestHidden(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "192.168.9.9": true, "100.64.0.1": true, "100.127.255.255": true, "169.254.0.1": true, "127.0.0.1": true,
		"fd00::1": true, "fe80::1": true, "::1": true, "100.128.0.1": false, "192.0.2.1": false, "2001:db8::1": false,
	} {
		if got := special.Hidden(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	if special.Hidden(netip.Addr{}) {
		t.Error("no address is hidden")
	}
}
