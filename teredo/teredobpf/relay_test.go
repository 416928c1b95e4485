// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// small is a relay of a few peers.
func small(change ...func(*RelayConfig)) RelayConfig {
	cfg := RelayConfig{Name: "test", Buckets: 1 << 6, Foreign: 100, Shape: "2001::/32"}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

func loadForTest(t testing.TB, cfg RelayConfig) *Relay {
	t.Helper()
	testutil.NeedRoot(t)
	fast, err := LoadRelay(cfg)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := fast.Close(); err != nil {
			t.Error(err)
		}
	})
	return fast
}

// someSettings are those of a plain relay.
func someSettings() Settings {
	return Settings{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("2001::/32")}, Own: []netip.Addr{netip.MustParseAddr("192.0.2.3")},
		Port: 3545, MTU: 1280, Refresh: 20 * time.Second, Memory: 300 * time.Second,
	}
}

func TestLoad(t *testing.T) {
	fast := loadForTest(t, small())
	if fast.Adopted() {
		t.Error("tables were taken over from nobody")
	}
	if got := len(fast.Peers()); got != 64*peer.BucketBytes {
		t.Errorf("the peer table has %d bytes", got)
	}
	if uintptr(unsafe.Pointer(&fast.Peers()[0]))%peer.BucketBytes != 0 {
		t.Error("buckets are no cache lines")
	}
	p := fast.Programs()
	if p.XDP == nil || p.Ingress == nil {
		t.Errorf("programs are missing: %+v", p)
	}
	list, err := fast.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range list {
		if r := Reason(i); c.Packets != 0 || c.Bytes != 0 || c.Verdict != r.Verdict() || c.Reason != r.String() {
			t.Errorf("a new table counted %+v", c)
		}
	}
}

func TestLoadRefusesBuckets(t *testing.T) {
	for _, n := range []int{-1, 0, 3, 1000, 1 << 26} {
		if fast, err := LoadRelay(small(func(c *RelayConfig) { c.Buckets = n })); err == nil {
			fast.Close()
			t.Errorf("a table of %d buckets was made", n)
		}
	}
}

func TestObjectsOfAllArchitecturesLoad(t *testing.T) { fastpathtest.ObjectsLoad(t) }

// The layout version in C and Go is one.
func TestLayoutVersion(t *testing.T) {
	fastpathtest.Defines(t, "bpf/layout.h", []string{fmt.Sprintf("LAYOUT_VERSION %d\n", layoutVersion)})
}

// What lies in maps has the size that Go takes it for.
func TestLayout(t *testing.T) {
	spec, err := loadTeredo()
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]uint32{}
	for name, m := range spec.Maps {
		sizes[name] = m.ValueSize
	}
	delete(sizes, ".rodata")
	want := map[string]uint32{
		".data.settings": uint32(unsafe.Sizeof(teredoRelaySettings{})),
		"peers":          peer.BucketBytes, "foreign": uint32(unsafe.Sizeof(teredoMapping{})),
		"counters": uint32(unsafe.Sizeof(teredoCounter{})), "neighbours": 8, "samples": 0,
		// Blocks of next hops, and what is shared: routes, filter, budgets.
		"hops4": 64 * 40, "hops6": 256 * 48, ".bss": 65536 + fastpath.TallySlots + 8 + 64*8 + 16384*8,
	}
	if diff := cmp.Diff(want, sizes); diff != "" {
		t.Errorf("sizes of values (-want +got):\n%s", diff)
	}
	if got := spec.Maps["counters"].MaxEntries; got != uint32(len(teredoReasons.Words)) {
		t.Errorf("%d counters for %d reasons", got, len(teredoReasons.Words))
	}
	if peer.StampUnit != StampUnit {
		t.Errorf("programs count ages in %s, the engine in %s", StampUnit, peer.StampUnit)
	}
	// The engine's doubtAge, in whole stamps.
	fastpathtest.Defines(t, "bpf/layout.h", []string{fmt.Sprintf("STAMP_DOUBT %d ", stamps(2*time.Second))})
	for _, n := range []int{len(teredoRelaySettings{}.ByTag) - maxPrefixes, len(teredoRelaySettings{}.Serve) - maxServe,
		len(teredoRelaySettings{}.Own) - ownSlots, len(teredoRelaySettings{}.Devices) - 256} {
		if n != 0 {
			t.Errorf("an array of the settings has %d elements more than Go knows", n)
		}
	}
}

func TestReasonsHaveNames(t *testing.T) {
	seen := make(map[string]bool)
	verdict := fastpath.Forward
	for i := range len(teredoReasons.Words) {
		r := Reason(i)
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d has no name of its own: %q", i, r)
		}
		seen[r.String()] = true
		if r.Verdict() < verdict {
			t.Errorf("%s stands behind reasons of a later verdict", r)
		}
		verdict = r.Verdict()
	}
	if Reason(len(teredoReasons.Words)).String() != "unknown" || fastpath.Verdict(3).String() != "unknown" || fastpath.Place(4).String() != "unknown" {
		t.Error("what is not there has a name")
	}
}

// A successor of the same shape takes over what it finds; another one starts again.
func TestPinnedTables(t *testing.T) {
	testutil.NeedRoot(t)
	root := fastpathtest.MountBPFFS(t)
	pins, err := pinned.OpenAt(root, "tables")
	if err != nil {
		t.Fatal(err)
	}
	defer pins.Close()
	pinned := func(c *RelayConfig) { c.Pins = pins }
	key := [16]byte{0x20, 0x01, 15: 7}
	mapped := netip.MustParseAddrPort("192.0.2.9:1234")

	first := loadForTest(t, small(pinned))
	if first.Adopted() {
		t.Fatal("tables were taken over from nobody")
	}
	s := someSettings()
	s.Seed = [5]uint64{1, 2, 3, 4, 5}
	if err := first.Set(s); err != nil {
		t.Fatal(err)
	}
	first.Beat(time.Hour)
	copy(first.Peers(), "peer")
	first.Foreign().Put(key, mapped)
	first.UnderTest().Add(key)
	first.Routes4()[7] = 9
	filterSeed := first.settings.FilterSeed

	second := loadForTest(t, small(pinned))
	if !second.Adopted() {
		t.Fatal("nothing was taken over")
	}
	if got := second.Settings().Seed; got != s.Seed {
		t.Errorf("the seed is %v", got)
	}
	if got, ok := second.Foreign().Get(key); !ok || got != mapped || string(second.Peers()[:4]) != "peer" ||
		second.Routes4()[7] != 9 || second.settings.FilterSeed != filterSeed || second.settings.AliveUntil == 0 {
		t.Error("what the predecessor wrote is not there")
	}
	if second.settings.Port != first.settings.Port {
		t.Error("the settings are not those of the predecessor")
	}

	for name, change := range map[string]func(*RelayConfig){
		"buckets": func(c *RelayConfig) { c.Buckets *= 2 },
		"foreign": func(c *RelayConfig) { c.Foreign++ },
		"shape":   func(c *RelayConfig) { c.Shape = "2001:db8::/32" },
	} {
		other := loadForTest(t, small(pinned, change))
		if other.Adopted() || string(other.Peers()[:4]) == "peer" {
			t.Errorf("tables of other %s were taken over", name)
		}
		if string(first.Peers()[:4]) != "peer" {
			t.Errorf("a relay with other %s changed the tables of the first", name)
		}
	}
	last := loadForTest(t, small(pinned))
	if err := last.Unpin(); err != nil {
		t.Fatal(err)
	}
	names, err := pins.Names()
	if err != nil || len(names) != 0 {
		t.Errorf("%v are left: %v", names, err)
	}
}

// A table that is damaged, or of another kind, is not taken over, nor are the rest; but for
// counters, which begin anew.
func TestPinnedTablesDamaged(t *testing.T) {
	testutil.NeedRoot(t)
	pins, err := pinned.OpenAt(fastpathtest.MountBPFFS(t), "damaged")
	if err != nil {
		t.Fatal(err)
	}
	defer pins.Close()
	cfg := small(func(c *RelayConfig) { c.Pins = pins })
	for _, pin := range []string{"peers", "foreign", "counters", "neighbours", "settings", "shared"} {
		first := loadForTest(t, cfg)
		if err := os.Remove(pins.Path(pin)); err != nil {
			t.Fatal(err)
		}
		if second := loadForTest(t, cfg); second.Adopted() != (pin == "counters") {
			t.Errorf("tables without %s: taken over %t", pin, second.Adopted())
		}
		if err := os.Remove(pins.Path(pin)); err != nil {
			t.Fatal(err)
		}
		if err := first.Map("hops4").Pin(pins.Path(pin)); err != nil {
			t.Fatal(err)
		}
		if third := loadForTest(t, cfg); third.Adopted() != (pin == "counters") {
			t.Errorf("tables with another %s: taken over %t", pin, third.Adopted())
		}
	}
}

func TestSetRefuses(t *testing.T) {
	fast := loadForTest(t, small())
	for name, change := range map[string]func(*Settings){
		"no prefix":         func(s *Settings) { s.Prefixes = nil },
		"too many prefixes": func(s *Settings) { s.Prefixes = make([]netip.Prefix, 17) },
		"a /48":             func(s *Settings) { s.Prefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8::/48")} },
		"an IPv4 prefix":    func(s *Settings) { s.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} },
		"an IPv6 source":    func(s *Settings) { s.Source = netip.MustParseAddr("2001:db8::1") },
		"a small MTU":       func(s *Settings) { s.MTU = 1279 },
		"a great MTU":       func(s *Settings) { s.MTU = 65536 },
	} {
		s := someSettings()
		change(&s)
		if err := fast.Set(s); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if err := fast.Set(someSettings()); err != nil {
		t.Error(err)
	}
}

// Setting keeps life, and ends all next hops.
func TestSetKeepsLife(t *testing.T) {
	fast := loadForTest(t, small())
	before := fastpath.Monotonic()
	fast.Beat(time.Hour)
	until, generation := fast.settings.AliveUntil, fast.settings.Generation
	if left := time.Duration(until) - before; left < time.Hour || left > time.Hour+time.Minute {
		t.Errorf("a beat of an hour lasts %s", left)
	}
	if err := fast.Set(someSettings()); err != nil {
		t.Fatal(err)
	}
	if fast.settings.AliveUntil != until || fast.settings.Generation == generation {
		t.Errorf("life %d, was %d; generation %d, was %d", fast.settings.AliveUntil, until, fast.settings.Generation, generation)
	}
}

func TestDeviceSlots(t *testing.T) {
	fast := loadForTest(t, small())
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for _, tt := range []struct {
		name  string
		index int
		mac   net.HardwareAddr
		ok    bool
	}{
		{"a device", 7, mac, true},
		{"the same", 7, mac, true},
		{"one in its slot", 7 + 256, mac, false},
		{"another", 8, mac, true},
		{"no index", 0, mac, false},
		{"no address", 9, nil, false},
		{"a long address", 9, make(net.HardwareAddr, 20), false},
	} {
		if err := fast.SetDevice(fastpath.Device{Index: tt.index, MAC: tt.mac}); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if diff := cmp.Diff([]int{7, 8}, fast.Devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	fast.RemoveDevice(7)
	fast.RemoveDevice(8 + 256) // is not there
	if err := fast.SetDevice(fastpath.Device{Index: 7 + 256, MAC: mac}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]int{7 + 256, 8}, fast.Devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestForeign(t *testing.T) {
	fast := loadForTest(t, small(func(c *RelayConfig) { c.Foreign = 3 }))
	f := fast.Foreign()
	want := make(map[[16]byte]netip.AddrPort)
	for i := range 3 {
		key := [16]byte{15: byte(i)}
		want[key] = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), uint16(1000+i))
		if !f.Put(key, want[key]) {
			t.Fatal("no room for one of three")
		}
	}
	if f.Put([16]byte{15: 9}, want[[16]byte{}]) {
		t.Error("there was room for a fourth")
	}
	f.Delete([16]byte{15: 1})
	f.Delete([16]byte{15: 77})
	delete(want, [16]byte{15: 1})
	got := make(map[[16]byte]netip.AddrPort)
	f.Walk(func(key [16]byte, mapped netip.AddrPort) { got[key] = mapped })
	if !maps.Equal(got, want) || f.Len() != 2 {
		t.Errorf("%v, want %v", got, want)
	}
}

// A counter that was full once stays, since no one knows how many it stands for.
func TestFilterSaturates(t *testing.T) {
	fast := loadForTest(t, small())
	f := fast.UnderTest()
	key := [16]byte{15: 1}
	count := func() uint32 { return f.tally.Count(f.slot(&key)) }
	for _, tt := range []struct{ add, remove, want int }{
		{3, 1, 2}, {0, 2, 0}, {0, 1, 0}, {254, 0, 254}, {0, 1, 253}, {5, 0, 255}, {0, 300, 255},
	} {
		for range tt.add {
			f.Add(key)
		}
		for range tt.remove {
			f.Remove(key)
		}
		if got := count(); got != uint32(tt.want) {
			t.Errorf("after %d more and %d less: %d, want %d", tt.add, tt.remove, got, tt.want)
		}
	}
	f.Clear()
	if count() != 0 {
		t.Error("not cleared")
	}
}

func TestOwnAddressesFindPlaces(t *testing.T) {
	var own []netip.Addr
	for i := range 60 {
		own = append(own, netip.AddrFrom4([4]byte{192, 0, 2, byte(i * 3)}))
	}
	own = append(own, netip.MustParseAddr("2001:db8::1"), own[0])
	factor, slots := placeOwn(own)
	for _, a := range own[:60] {
		if w := fastpath.IPv4Word(a); slots[w*factor>>24] != w {
			t.Errorf("%s has no place", a)
		}
	}
}
