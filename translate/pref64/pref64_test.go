// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var same = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func octets(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func option(prefix string, lifetime time.Duration) Option {
	return Option{netip.MustParsePrefix(prefix), lifetime}
}

func network(prefix string, preferred time.Duration) Network {
	return Network{netip.MustParsePrefix(prefix), preferred}
}

// TestOption compares options with their octets, both ways.
func TestOption(t *testing.T) {
	for _, tt := range []struct {
		name   string
		option Option
		octets string
	}{
		{"the well-known prefix for half an hour", option("64:ff9b::/96", 1800*time.Second), "26 02 0708 0064ff9b 00000000 00000000"},
		{"/96", option("2001:db8:1:2:0:3::/96", 8*time.Second), "26 02 0008 20010db8 00010002 00000003"},
		{"/64", option("2001:db8:1:2::/64", 16*time.Second), "26 02 0011 20010db8 00010002 00000000"},
		{"/56", option("2001:db8:1:200::/56", 24*time.Second), "26 02 001a 20010db8 00010200 00000000"},
		{"/48", option("2001:db8:1::/48", 32*time.Second), "26 02 0023 20010db8 00010000 00000000"},
		{"/40", option("2001:db8:100::/40", 40*time.Second), "26 02 002c 20010db8 01000000 00000000"},
		{"/32", option("2001:db8::/32", 48*time.Second), "26 02 0035 20010db8 00000000 00000000"},
		{"the longest lifetime", option("64:ff9b::/96", 65528*time.Second), "26 02 fff8 0064ff9b 00000000 00000000"},
		{"withdrawn", option("64:ff9b::/96", 0), "26 02 0000 0064ff9b 00000000 00000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := octets(t, tt.octets)
			if got, err := AppendOption(nil, tt.option); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%x, %v; want %x", got, err, want)
			}
			if got, ok := ParseOption(want); !ok || got != tt.option {
				t.Errorf("%v, %v; want %v", got, ok, tt.option)
			}
		})
	}
}

func TestOptionRefused(t *testing.T) {
	for _, tt := range []struct{ name, octets string }{
		{"another type", "19 02 0708 0064ff9b 00000000 00000000"},
		{"length 1", "26 01 0708 0064ff9b"},
		{"length 3", "26 03 0708 0064ff9b 00000000 00000000 00000000 00000000"},
		{"length 2, but more octets", "26 02 0708 0064ff9b 00000000 00000000 00000000 00000000"},
		{"length code 6", "26 02 070e 20010db8 00000000 00000000"},
		{"length code 7", "26 02 070f 20010db8 00000000 00000000"},
		{"a link-local prefix", "26 02 0708 fe800000 00000000 00000000"},
		{"a multicast prefix", "26 02 0708 ff020000 00000000 00000000"},
		{"bits 64 to 71 set", "26 02 0708 20010db8 00000000 01000000"},
		{"nothing", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := ParseOption(octets(t, tt.octets)); ok {
				t.Errorf("taken as %v", got)
			}
		})
	}
	for _, o := range []Option{option("2001:db8::/80", 0), option("64:ff9b::/96", -1), {}} {
		if b, err := AppendOption(nil, o); err == nil || len(b) != 0 {
			t.Errorf("%v written as %x", o, b)
		}
	}
	got, ok := ParseOption(octets(t, "26 02 0023 20010db8 0001ffff ffffffff"))
	if want := option("2001:db8:1::/48", 32*time.Second); !ok || got != want {
		t.Errorf("bits behind the prefix matter: %v, %v", got, ok)
	}
}

// TestScaledLifetime rounds up, never to 0, never beyond the field.
func TestScaledLifetime(t *testing.T) {
	for _, tt := range []struct{ lifetime, want time.Duration }{
		{0, 0}, {time.Millisecond, 8 * time.Second}, {7 * time.Second, 8 * time.Second}, {8 * time.Second, 8 * time.Second},
		{9 * time.Second, 16 * time.Second}, {1801 * time.Second, 1808 * time.Second}, {65527 * time.Second, 65528 * time.Second},
		{65529 * time.Second, 65528 * time.Second}, {365 * 24 * time.Hour, 65528 * time.Second}, {1<<63 - 1, 65528 * time.Second},
	} {
		b, err := AppendOption(nil, option("64:ff9b::/96", tt.lifetime))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := ParseOption(b); got.Lifetime != tt.want {
			t.Errorf("%v becomes %v, want %v", tt.lifetime, got.Lifetime, tt.want)
		}
	}
	if got := DefaultLifetime(600 * time.Second); got != 1800*time.Second {
		t.Errorf("default %v", got)
	}
	if got := DefaultLifetime(10 * time.Hour); got != MaxLifetime {
		t.Errorf("default %v", got)
	}
}

func TestAdvertisement(t *testing.T) {
	options := []Option{option("2001:db8:64::/96", 1800*time.Second), option("2001:db8:65::/96", 0)}
	got, err := AppendAdvertisement(nil, options)
	want := octets(t, "86 00 0000 00 00 0000 00000000 00000000"+
		"26 02 0708 20010db8 00640000 00000000"+
		"26 02 0000 20010db8 00650000 00000000")
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%x, %v; want %x", got, err, want)
	}
	for _, tt := range []struct {
		name, octets string
		want         Advertisement
	}{
		{"our own", hex.EncodeToString(want), Advertisement{Options: options}},
		{"of a default router with other options", "86 00 0000 40 00 0708 00000000 00000000" +
			"01 01 020000000001" + "05 01 0000 000005dc" +
			"19 03 0000 00000258 20010db8 00000000 00000000 00000053" +
			"26 02 0708 0064ff9b 00000000 00000000",
			Advertisement{RouterLifetime: 1800 * time.Second, Options: []Option{option("64:ff9b::/96", 1800*time.Second)}, Resolvers: []Resolver{{netip.MustParseAddr("2001:db8::53"), 600 * time.Second}}}},
		{"networks of the link, of which one goes, one is deprecated, one is of the link alone and one has no such length", "86 00 0000 40 00 0708 00000000 00000000" +
			"03 04 40 c0 00000e10 00000708 00000000 20010db8 00010000 00000000 00000001" +
			"03 04 40 c0 00000000 00000000 00000000 20010db8 00020000 00000000 00000000" +
			"03 04 40 c0 00000e10 00000000 00000000 20010db8 00040000 00000000 00000000" +
			"03 04 40 c0 00000e10 00000708 00000000 fe800000 00000000 00000000 00000000" +
			"03 04 81 c0 00000e10 00000708 00000000 20010db8 00030000 00000000 00000000",
			Advertisement{RouterLifetime: 1800 * time.Second, Networks: []Network{network("2001:db8:1::/64", 1800*time.Second), network("2001:db8:2::/64", 0), network("2001:db8:4::/64", 0)}}},
		{"name servers that go", "86 00 0000 40 00 0708 00000000 00000000" + "19 03 0000 00000000 20010db8 00000000 00000000 00000053",
			Advertisement{RouterLifetime: 1800 * time.Second, Resolvers: []Resolver{{netip.MustParseAddr("2001:db8::53"), 0}}}},
		{"a PREF64 option to be ignored beside one that is not", "86 00 0000 40 00 0708 00000000 00000000" +
			"26 02 070f 0064ff9b 00000000 00000000" + "26 02 0708 0064ff9b 00000000 00000000",
			Advertisement{RouterLifetime: 1800 * time.Second, Options: []Option{option("64:ff9b::/96", 1800*time.Second)}}},
		{"no options", "86 00 0000 40 00 0000 00000000 00000000", Advertisement{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseAdvertisement(octets(t, tt.octets))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, tt := range []struct{ name, octets string }{
		{"too short", "86 00 0000 40 00 0708 00000000"},
		{"a solicitation", "85 00 0000 00000000 00000000 00000000"},
		{"a code", "86 01 0000 40 00 0708 00000000 00000000"},
		{"an option without a length", "86 00 0000 40 00 0708 00000000 00000000 2600070800000000"},
		{"an option beyond the end", "86 00 0000 40 00 0708 00000000 00000000 2602070800000000"},
		{"half an option", "86 00 0000 40 00 0708 00000000 00000000 26"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := ParseAdvertisement(octets(t, tt.octets)); err == nil {
				t.Errorf("taken as %+v", got)
			}
		})
	}
}

var start = time.Unix(1_700_000_000, 0)

func TestConsistency(t *testing.T) {
	a, b := netip.MustParseAddr("fe80::a"), netip.MustParseAddr("fe80::b")
	own := []Option{option("2001:db8:64::/96", time.Hour), option("2001:db8:65::/96", time.Hour)}
	turned := []Option{option("2001:db8:65::/96", time.Minute), option("2001:db8:64::/96", time.Hour)}
	other := []Option{option("2001:db8:64::/96", time.Hour)}
	withdrawn := []Option{option("2001:db8:64::/96", time.Hour), option("2001:db8:65::/96", 0)}
	former := option("2001:db8:66::/96", 0) // what both have announced before
	var c Consistency
	c.Own(own)
	for i, tt := range []struct {
		from          netip.Addr
		options       []Option
		differs, news bool
	}{
		{a, nil, false, false},
		{a, turned, false, false},
		{a, other, true, true},
		{a, other, true, false},
		{a, withdrawn, true, true},
		{b, other, true, true},
		{a, own, false, true},
		{a, own, false, false},
		{a, append(own[:2:2], former), false, false},
		{a, []Option{former}, false, false},
		{a, []Option{option("2001:db8:65::/96", 0)}, true, true},
	} {
		if differs, news := c.Heard(tt.from, tt.options); differs != tt.differs || news != tt.news {
			t.Errorf("step %d: differs %v, news %v", i, differs, news)
		}
	}
	for i := range 100 {
		c.Heard(netip.AddrFrom16([16]byte{0xfe, 0x80, 15: byte(i)}), other)
	}
	if len(c.others) > maxRouters {
		t.Errorf("%d remembered", len(c.others))
	}
}

// FuzzAdvertisement reads any message; what it holds is written and read again as the
// same.
func FuzzAdvertisement(f *testing.F) {
	f.Add(octets(f, "86 00 0000 40 00 0708 00000000 00000000 26 02 0708 0064ff9b 00000000 00000000"))
	f.Add(octets(f, "86 00 0000 40 00 0708 00000000 00000000 19 03 0000 00000258 20010db8 00000000 00000000 00000053"))
	f.Add(octets(f, "85 00 0000 00000000 01 01 020000000001"))
	f.Add(octets(f, "86 00 0000 40 00 0708 00000000 00000000 26 02 070f 20010db8 00000000 00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		IsSolicitation(b)
		ParseOption(b)
		a, err := ParseAdvertisement(b)
		if err != nil {
			return
		}
		if len(a.Options) > maxOptions || len(a.Resolvers) > MaxResolvers || len(a.Networks) > maxNetworks {
			t.Fatalf("no bound: %+v", a)
		}
		written, err := AppendAdvertisement(nil, a.Options)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseAdvertisement(written)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a.Options, again.Options, same); diff != "" {
			t.Errorf("(-read +read again):\n%s", diff)
		}
	})
}
