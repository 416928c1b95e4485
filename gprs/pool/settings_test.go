// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseRange(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"prefix of IPv4: without network and broadcast", "10.45.0.0/20", "10.45.0.1-10.45.15.254"},
		{"two addresses of a link", "192.0.2.4/31", "192.0.2.4-192.0.2.5"},
		{"one address", "192.0.2.4/32", "192.0.2.4-192.0.2.4"},
		{"all of IPv4", "0.0.0.0/0", "0.0.0.1-255.255.255.254"},
		{"prefix of IPv6", "2001:db8:6::/52", "2001:db8:6::-2001:db8:6:fff:ffff:ffff:ffff:ffff"},
		{"first and last", "192.0.2.10 - 192.0.2.19", "192.0.2.10-192.0.2.19"},
		{"first and last of IPv6", "2001:db8::-2001:db8:0:9:ffff:ffff:ffff:ffff", "2001:db8::-2001:db8:0:9:ffff:ffff:ffff:ffff"},
		{"bits behind the prefix", "10.45.0.1/20", ""},
		{"two families", "192.0.2.1-2001:db8::", ""},
		{"from above to below", "192.0.2.9-192.0.2.1", ""},
		{"zone", "fe80::1%eth0-fe80::2%eth0", ""},
		{"address alone", "192.0.2.1", ""},
		{"nothing", "", ""},
		{"half a range", "192.0.2.1-", ""},
	} {
		r, err := ParseRange(row.text)
		if got := r.String(); err == nil && got != row.want || err != nil && row.want != "" {
			t.Errorf("%s: %s, %v", row.name, got, err)
			continue
		}
		if row.want != "" {
			if again, err := ParseRange(r.String()); err != nil || again != r {
				t.Errorf("%s: read again: %v, %v", row.name, again, err)
			}
		}
	}
}

// TestSettings shows how many leases there are, and the first of them.
func TestSettings(t *testing.T) {
	for _, row := range []struct {
		name, ranges, except string
		length               int
		size                 uint64
		first                string
	}{
		{"prefix of IPv4", "192.0.2.0/24", "", 32, 254, "192.0.2.1/32"},
		{"the gateway's own address", "192.0.2.0/24", "192.0.2.1/32", 32, 253, "192.0.2.2/32"},
		{"an address in the middle", "192.0.2.0/24", "192.0.2.8/32", 32, 253, "192.0.2.1/32"},
		{"another pool within", "192.0.2.0/24", "192.0.2.0/25", 32, 127, "192.0.2.128/32"},
		{"several ranges in any order", "192.0.2.20-192.0.2.29 192.0.2.10-192.0.2.11", "", 32, 12, "192.0.2.10/32"},
		{"exceptions that touch nothing", "192.0.2.20-192.0.2.29", "192.0.2.30/32 2001:db8::/32 192.0.2.19/32", 32, 10, "192.0.2.20/32"},
		{"an exception over two ranges", "192.0.2.20-192.0.2.29 192.0.2.10-192.0.2.19", "192.0.2.16/29", 32, 12, "192.0.2.10/32"},
		{"links", "2001:db8:6::/52", "", 64, 1 << 12, "2001:db8:6::/64"},
		{"the gateway's own link", "2001:db8:6::/52", "2001:db8:6::1/128", 64, 1<<12 - 1, "2001:db8:6:1::/64"},
		{"one link", "2001:db8:6::/64", "", 64, 1, "2001:db8:6::/64"},
		{"delegated prefixes", "2001:db8::/40", "", 56, 1 << 16, "2001:db8::/56"},
		{"links of which the ends are cut", "2001:db8::1-2001:db8:0:9:ffff::", "", 64, 8, "2001:db8:0:1::/64"},
		{"2^48 links", "2000::/16", "", 64, 1 << 48, "2000::/64"},
		{"more than 2^48", "2000::/15", "", 64, 0, ""},
		{"all of IPv6", "::/0", "", 64, 0, ""},
		{"the end of IPv6, cut", "ffff:ffff:ffff:ffff::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", 64, 0, ""},
		{"the beginning of IPv6, cut", "::-::1", "", 64, 0, ""},
		{"less than a link", "2001:db8::1-2001:db8::ffff", "", 64, 0, ""},
		{"a /65", "2001:db8::/48", "", 65, 0, ""},
		{"IPv4 by 24", "192.0.2.0/24", "", 24, 0, ""},
		{"no length", "2001:db8::/48", "", 0, 0, ""},
		{"two families", "192.0.2.0/24 2001:db8::/48", "", 32, 0, ""},
		{"overlapping ranges", "192.0.2.0/24 192.0.2.9-192.0.2.9", "", 32, 0, ""},
		{"nothing left", "192.0.2.0/24", "192.0.2.0/24", 32, 0, ""},
		{"no ranges", "", "", 32, 0, ""},
	} {
		s := Settings{Length: row.length}
		for _, text := range strings.Fields(row.ranges) {
			r, err := ParseRange(text)
			if err != nil {
				t.Fatal(row.name, err)
			}
			s.Ranges = append(s.Ranges, r)
		}
		for _, text := range strings.Fields(row.except) {
			s.Except = append(s.Except, netip.MustParsePrefix(text))
		}
		p, err := New(s, 0)
		if err != nil || row.size == 0 {
			if (err == nil) != (row.size != 0) {
				t.Errorf("%s: %v", row.name, err)
			}
			continue
		}
		if c := p.Counters(); c.Size != row.size || c.Free != row.size {
			t.Errorf("%s: %+v, want %d", row.name, c, row.size)
		}
		if first, err := p.Take(start); err != nil || first.String() != row.first {
			t.Errorf("%s: first is %v (%v), want %s", row.name, first, err, row.first)
		}
	}
}

// TestTooManyExceptions are refused: a search looks at every span.
func TestTooManyExceptions(t *testing.T) {
	s := Settings{Length: 32, Ranges: []Range{PrefixRange(netip.MustParsePrefix("10.0.0.0/8"))}}
	for a := netip.MustParseAddr("10.0.0.2"); len(s.Except) < maxSpans; a = a.Next().Next() {
		s.Except = append(s.Except, netip.PrefixFrom(a, 32))
	}
	if _, err := New(s, 0); err == nil {
		t.Error("taken")
	}
	s.Except = s.Except[1:]
	if _, err := New(s, 0); err != nil {
		t.Error(err)
	}
}

// TestInvalidRange is refused, not taken for something else.
func TestInvalidRange(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::")
	for _, r := range []Range{{}, {four, netip.Addr{}}, {netip.Addr{}, four}, {four.Next(), four}, {four, six}, {six, four}} {
		for _, length := range []int{32, 64} {
			if _, err := New(Settings{Length: length, Ranges: []Range{r}}, 0); err == nil {
				t.Errorf("%v by %d is taken", r, length)
			}
		}
	}
}
