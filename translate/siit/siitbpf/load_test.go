// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// Constants in C and Go are one.
func TestSIITConstants(t *testing.T) {
	fastpathtest.Defines(t, "bpf/siit_settings.h", []string{
		fmt.Sprintf("FLAG_ZERO_CLASS %d ", siitFlagZeroClass), fmt.Sprintf("FLAG_FIXED_TOS %d ", siitFlagFixedTOS),
		fmt.Sprintf("FLAG_SIMPLE %d ", siitFlagSimple), fmt.Sprintf("FLAG_MAPPED_IN_POOL6 %d ", siitFlagMappedInPool6),
		fmt.Sprintf("FLAG_UNSUMMED %d ", siitFlagUnsummed),
		fmt.Sprintf("MAX_POOL4 %d\n", translatebpf.MaxPool4),
	})
}

func TestSIITReasonsHaveNames(t *testing.T) {
	seen, verdict := make(map[string]bool), fastpath.Forward
	for i := range len(siitReasons.Words) {
		r := Reason(i)
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d is called %q", i, r)
		}
		seen[r.String()] = true
		if r.Verdict() < verdict {
			t.Errorf("%s stands behind reasons of a later verdict", r)
		}
		verdict = r.Verdict()
	}
	if got := Reason(len(siitReasons.Words)).String(); got != "unknown" {
		t.Errorf("no reason is called %q", got)
	}
	if PuntLimit.Verdict() != fastpath.Drop || To6Forwarded.Verdict() != fastpath.Forward {
		t.Error("verdicts are not those of the reasons")
	}
}

// loadSIITForTest loads programs, until the test ends.
func loadSIITForTest(t *testing.T, cfg Config) *Path {
	t.Helper()
	testutil.NeedRoot(t)
	s, err := Load(cfg)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// some are so many mappings, from a number on.
func someMappings(from, n int) (list []translate.Mapping) {
	for i := from; i < from+n; i++ {
		v4 := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		v6 := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
		list = append(list, translate.Mapping{IPv4: netip.PrefixFrom(v4, 32), IPv6: netip.PrefixFrom(v6, 128)})
	}
	return list
}

// held are the mappings in the programs' tables.
func (s *Path) held(t *testing.T) map[siitMapping4]siitMapped6 {
	t.Helper()
	all := make(map[siitMapping4]siitMapped6)
	var key siitMapping4
	var value siitMapped6
	each := s.mappings.four.Iterate()
	for each.Next(&key, &value) {
		all[key] = value
	}
	if err := each.Err(); err != nil {
		t.Fatal(err)
	}
	back := 0
	var key6 siitMapping6
	var value4 siitMapped4
	each = s.mappings.six.Iterate()
	for each.Next(&key6, &value4) {
		back++
		if there := all[siitMapping4{Bits: 32, Address: value4.Base}]; there.Base != key6.Address {
			t.Errorf("%+v is mapped to %+v, and that to %+v", key6, value4, there)
		}
	}
	if back != len(all) || each.Err() != nil {
		t.Errorf("%d mappings to IPv6, %d to IPv4: %v", len(all), back, each.Err())
	}
	return all
}

// Tables hold what was set, whatever was there before.
func TestSIITChangesMappings(t *testing.T) {
	s := loadSIITForTest(t, Config{Name: "test"})
	one := someMappings(0, 1)
	other := one[0]
	other.IPv6 = netip.MustParsePrefix("2001:db8:ffff::1/128")
	many := someMappings(0, 5000)
	for _, tt := range []struct {
		name string
		list []translate.Mapping
	}{
		{"none", nil},
		{"one", one},
		{"more than a batch", many},
		{"one less in the middle", append(someMappings(0, 2000), someMappings(2001, 2999)...)},
		{"one more at the end", append(append(someMappings(0, 2000), someMappings(2001, 2999)...), someMappings(2000, 1)...)},
		{"in another order", append(someMappings(2500, 2500), someMappings(0, 2500)...)},
		{"half of them others", append(someMappings(2500, 2500), someMappings(9000, 2500)...)},
		{"one alone", one},
		{"to another address", []translate.Mapping{other}},
		{"none again", nil},
	} {
		if err := s.Set(Settings{Mappings: tt.list}); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		want := make(map[siitMapping4]siitMapped6)
		for _, m := range tt.list {
			want[*key4(m)] = siitMapped6{Base: fastpath.IPv6Words(m.IPv6.Addr().As16())}
		}
		if diff := cmp.Diff(want, s.held(t), cmpopts.IgnoreUnexported(siitMapped6{})); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", tt.name, diff[:min(len(diff), 2000)])
		}
	}
}

// What changes is found without a look at all the rest.
func TestSIITMappingsChanged(t *testing.T) {
	m := someMappings(0, 6)
	for _, tt := range []struct {
		name                 string
		was, is, gone, fresh []translate.Mapping
	}{
		{"nothing", m, m, nil, nil},
		{"all new", nil, m, nil, m},
		{"all gone", m, nil, m, nil},
		{"one at the end", m[:5], m, nil, m[5:]},
		{"one at the start", m[1:], m, nil, m[:1]},
		{"two swapped", m[:2], []translate.Mapping{m[1], m[0]}, nil, nil},
		{"one for another", []translate.Mapping{m[0], m[1], m[2]}, []translate.Mapping{m[0], m[4], m[2]}, m[1:2], m[4:5]},
		{"twice the same, once", []translate.Mapping{m[0], m[1]}, m[1:2], m[:1], nil},
	} {
		gone, fresh := changed(tt.was, tt.is)
		compare := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
		if diff := cmp.Diff([][]translate.Mapping{tt.gone, tt.fresh}, [][]translate.Mapping{gone, fresh}, compare, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// What the programs cannot take leaves them closed until they can; so does a table that
// the kernel refuses.
func TestSIITRefuses(t *testing.T) {
	s := loadSIITForTest(t, Config{Name: "test", Mappings: 1})
	if s.mappings.room != leastMappings {
		t.Errorf("there is room for %d mappings", s.mappings.room)
	}
	good := Settings{Mappings: someMappings(0, 3)}
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		want   string
	}{
		{"too many mappings", func(n *Settings) { n.Mappings = someMappings(0, leastMappings+1) }, "restart isthmus"},
		{"17 prefixes", func(n *Settings) { n.Pool6 = make([]translatebpf.Prefix, 17) }, "16 prefixes of pool6 at most"},
		{"a prefix of 65 bits", func(n *Settings) { n.Pool6 = []translatebpf.Prefix{{Prefix: netip.MustParsePrefix("2001:db8::/65")}} }, "cannot be a prefix of pool6"},
		{"an IPv6 pool4", func(n *Settings) { n.Pool4 = []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")} }, "cannot be in pool4"},
		{"a mapping of too few bits", func(n *Settings) {
			n.Mappings = []translate.Mapping{{IPv4: netip.MustParsePrefix("10.0.0.0/8"), IPv6: netip.MustParsePrefix("2001:db8::/112")}}
		}, "cannot be a mapping"},
		{"a low lowest MTU", func(n *Settings) { n.LowestMTU = 1000 }, "lowest MTU"},
	} {
		if err := s.Set(good); err != nil || s.settings.Closed != 0 {
			t.Fatalf("%v, closed %d", err, s.settings.Closed)
		}
		bad := good
		tt.change(&bad)
		if err := s.Set(bad); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if s.settings.Closed != 1 {
			t.Errorf("%s: the programs go on", tt.name)
		}
	}
	// The kernel refuses in the middle.
	four := s.mappings.four
	small, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 24, MaxEntries: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	s.mappings.four = small
	if err := s.Set(Settings{Mappings: someMappings(10, 5)}); err == nil || s.settings.Closed != 1 {
		t.Errorf("a full table: %v, closed %d", err, s.settings.Closed)
	}
	s.mappings.four = four
	if err := s.Set(Settings{Mappings: someMappings(11, 2)}); err != nil || s.settings.Closed != 0 {
		t.Errorf("behind it: %v, closed %d", err, s.settings.Closed)
	}
	if n := len(s.held(t)); n != 2 {
		t.Errorf("%d mappings are left", n)
	}
}

// Room grows with what there is at the start.
func TestSIITRoom(t *testing.T) {
	for n, want := range map[int]int{0: 1 << 16, 20_000: 80_000, 1 << 20: MaxMappings} {
		s := loadSIITForTest(t, Config{Name: "test", Mappings: n})
		if s.mappings.room != want || int(s.mappings.six.MaxEntries()) != want {
			t.Errorf("of %d mappings there is room for %d, want %d", n, s.mappings.room, want)
		}
	}
	s := &siitMappings{room: MaxMappings}
	if err := s.set(make([]translate.Mapping, MaxMappings+1)); err == nil || !strings.Contains(err.Error(), "shorter prefixes") {
		t.Errorf("more than there can be: %v", err)
	}
}

// The settings as the programs read them.
func TestSIITFills(t *testing.T) {
	n := Settings{
		Pool6: []translatebpf.Prefix{{Prefix: netip.MustParsePrefix("2001:db8:64::/48"), Strict: true}},
		Pool4: []netip.Prefix{netip.MustParsePrefix("192.0.2.16/28")},
		Mappings: []translate.Mapping{
			{IPv4: netip.MustParsePrefix("192.0.2.64/26"), IPv6: netip.MustParsePrefix("2001:db8::/64")},
			{IPv4: netip.MustParsePrefix("192.0.2.1/32"), IPv6: netip.MustParsePrefix("2001:db8:64::1/128")},
			{IPv4: netip.MustParsePrefix("192.0.2.2/32"), IPv6: netip.MustParsePrefix("2001:db8:1::/64")},
		},
		SimpleHairpin: true, MTU6: 1500, FixedTOS: true, TOS: 7, Unsummed: true, Tunnel: 5, Source4: netip.MustParseAddr("192.0.2.9"), PuntRate: 1000,
	}
	var c siitSiitSettings
	n.fill(&c)
	if c.Flags != siitFlagFixedTOS|siitFlagSimple|siitFlagMappedInPool6|siitFlagUnsummed || c.Tos != 7 || c.Tun != 5 || c.LowestMtu != 1280 ||
		c.Mtu4 != ^uint32(0) || c.Mtu6 != 1500 || c.Pool6Count != 1 || c.Pool6[0].Flags != translatebpf.Strict || c.PuntTotal != 67 || c.PuntSource != 0 {
		t.Errorf("flags %x, TOS %d, device %d, MTUs %d, %d, %d, %d prefixes, the first %+v, punts %d, %d",
			c.Flags, c.Tos, c.Tun, c.LowestMtu, c.Mtu4, c.Mtu6, c.Pool6Count, c.Pool6[0], c.PuntTotal, c.PuntSource)
	}
	if c.First4 != 0xc0000201 || c.Span4 != 0x7e || c.Source != 0x090200c0 || c.Pool4Count != 1 || c.Pool4[0] != (siitRange4{Address: 0x100200c0, Mask: 0xf0ffffff}) {
		t.Errorf("addresses of ours: %x and %x more, %x, %+v", c.First4, c.Span4, c.Source, c.Pool4[0])
	}
	if c.Lengths4 != 2 || c.Length4[0] != (siitLength4{Bits: 32, Mask: ^uint32(0)}) || c.Length4[1] != (siitLength4{Bits: 26, Mask: 0xc0ffffff}) {
		t.Errorf("lengths of IPv4: %d, %+v", c.Lengths4, c.Length4[:3])
	}
	if c.Lengths6 != 2 || c.Length6[0].Bits != 128 || c.Length6[1] != (siitLength6{Bits: 64, Mask: [2]uint64{^uint64(0), 0}}) {
		t.Errorf("lengths of IPv6: %d, %+v", c.Lengths6, c.Length6[:3])
	}
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		source uint32
	}{
		{"of pool4", func(n *Settings) { n.Source4 = netip.Addr{} }, 0x100200c0},
		{"of a mapping", func(n *Settings) { n.Source4, n.Pool4 = netip.Addr{}, nil }, 0x400200c0},
		{"of nobody", func(n *Settings) { *n = Settings{} }, 0x080000c0},
	} {
		other := n
		tt.change(&other)
		other.fill(&c)
		if c.Source != tt.source {
			t.Errorf("routes are asked for an address %s: %x", tt.name, c.Source)
		}
	}
	if c.Span4 != 0 || c.First4 != 0 || c.Lengths4 != 0 || c.Lengths6 != 0 || c.Pool4Count != 0 || c.Flags != 0 {
		t.Errorf("behind settings of nothing: %x and %x more, lengths %d and %d, pool4 %d, flags %x",
			c.First4, c.Span4, c.Lengths4, c.Lengths6, c.Pool4Count, c.Flags)
	}
}
