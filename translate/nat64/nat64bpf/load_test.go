// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

func loadNAT64ForTest(t *testing.T, cfg Config) *Path {
	t.Helper()
	testutil.NeedRoot(t)
	n, err := Load(cfg)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Flags and the version in C and Go are one.
func TestNAT64Constants(t *testing.T) {
	fastpathtest.Defines(t, "bpf/nat64_settings.h", []string{
		fmt.Sprintf("NAT64_SETTINGS_VERSION %d", nat64Version),
		fmt.Sprintf("FLAG_FILTER(transport) (%dU << (transport))", nat64FlagFilterTCP),
		fmt.Sprintf("FLAG_EXTERNAL_TCP %d ", nat64FlagExternalTCP), fmt.Sprintf("FLAG_NO_ICMP_INFO %d ", nat64FlagNoICMPInfo),
		fmt.Sprintf("FLAG_OUTBOUND_ONLY %d ", nat64FlagOutboundOnly), fmt.Sprintf("FLAG_ZERO_CLASS %d ", nat64FlagZeroClass),
		fmt.Sprintf("FLAG_FIXED_TOS %d ", nat64FlagFixedTOS), fmt.Sprintf("FLAG_DETOUR %d ", nat64FlagDetour),
		fmt.Sprintf("FLAG_UNFINISHED %d ", nat64FlagUnfinished), fmt.Sprintf("FLAG_INNER_SOURCE %d ", nat64FlagInnerSource),
		fmt.Sprintf("FLAG_ROUTER_POOL4 %d\n", nat64FlagRouterPool4), fmt.Sprintf("FLAG_ROUTER_POOL6 %d\n", nat64FlagRouterPool6),
		fmt.Sprintf("FLAG_UNSUMMED %d ", nat64FlagUnsummed),
		fmt.Sprintf("MAX_POOL4 %d\n", translatebpf.MaxPool4), fmt.Sprintf("POOL4_OWN %d ", pool4Own),
	})
	if nat64FlagFilterUDP != nat64FlagFilterTCP<<state.UDP || nat64FlagFilterICMP != nat64FlagFilterTCP<<state.ICMP {
		t.Error("flags of filtering are not in the order of transports")
	}
}

func TestNAT64ReasonsHaveNames(t *testing.T) {
	seen, verdict := make(map[string]bool), fastpath.Forward
	for i := range len(nat64Reasons.Words) {
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
	if Reason(nat64ReasonREASON_COUNT).String() != "unknown" {
		t.Error("what is not there has a name")
	}
}

func TestLoadNAT64Refuses(t *testing.T) {
	z := someSizes
	z.BlockWords = 3
	if n, err := Load(Config{Name: "test", Sizes: z}); err == nil {
		n.Close()
		t.Error("a block of three words was accepted")
	}
}

// TestPinnedByOneWithFewerReasons has a successor that knows a reason more, or that finds no
// counters: it counts anew, and state and settings go on.
func TestPinnedByOneWithFewerReasons(t *testing.T) {
	testutil.NeedRoot(t)
	pins, err := pinned.OpenAt(fastpathtest.MountBPFFS(t), "nat64")
	if err != nil {
		t.Fatal(err)
	}
	defer pins.Close()
	cfg := Config{Name: "nat64", Sizes: someSizes, Shape: "x", Pins: pins}
	first := loadNAT64ForTest(t, cfg)
	counters := first.Map("counters")
	size := counters.MaxEntries()
	for _, entries := range []uint32{size - 1, 0} {
		if err := os.Remove(pins.Path("counters")); err != nil {
			t.Fatal(err)
		}
		if entries > 0 {
			fewer, err := ebpf.NewMap(&ebpf.MapSpec{
				Type: counters.Type(), KeySize: counters.KeySize(), ValueSize: counters.ValueSize(), MaxEntries: entries,
			})
			if err == nil {
				err = fewer.Pin(pins.Path("counters"))
			}
			if err != nil {
				t.Fatal(err)
			}
			fewer.Close()
		}
		second := loadNAT64ForTest(t, cfg)
		if !second.Adopted() || second.settings.HopSeed != first.settings.HopSeed {
			t.Errorf("%d counters: state and settings were not taken over", entries)
		}
		kept, err := ebpf.LoadPinnedMap(pins.Path("counters"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if kept.MaxEntries() != size {
			t.Errorf("%d counters are kept, want %d", kept.MaxEntries(), size)
		}
		kept.Close()
	}
}

// A successor of the same sizes takes over state and settings; another begins again.
func TestPinnedNAT64(t *testing.T) {
	testutil.NeedRoot(t)
	pins, err := pinned.OpenAt(fastpathtest.MountBPFFS(t), "nat64")
	if err != nil {
		t.Fatal(err)
	}
	defer pins.Close()
	cfg := Config{Name: "nat64", Sizes: someSizes, Shape: "x", Pins: pins}
	first := loadNAT64ForTest(t, cfg)
	if first.Adopted() {
		t.Fatal("tables were taken over from nobody")
	}
	r := &flowRig{Path: first, TB: t}
	r.open(someSizes)
	r.client(flowHost, 0)
	p := outward(state.UDP, 5000, 53)
	_, made := r.make(p, state.Fresh{Status: state.Opened, Stamp: 7})
	if err := first.Set(flowSettings()); err != nil {
		t.Fatal(err)
	}
	first.Beat(time.Hour)
	first.Waiting().Add(flowPeer.As4(), 80)

	second := loadNAT64ForTest(t, cfg)
	if !second.Adopted() || second.settings.AliveUntil == 0 || second.settings.Pool6Count != 1 ||
		second.settings.HopSeed != first.settings.HopSeed {
		t.Error("what the predecessor was told is not there")
	}
	second.Sleep()
	if first.settings.AliveUntil != 0 {
		t.Error("programs of the predecessor go on")
	}
	table, adopted, err := state.Open(someSizes, second.Memory(), [state.Seeds]uint64{})
	if err != nil || !adopted {
		t.Fatalf("adopted: %t, %v", adopted, err)
	}
	var s state.Session
	if k := p.key6(); !table.Find6(&k, &s) || s != made {
		t.Errorf("the session is %+v, was %+v", s, made)
	}
	w := second.Waiting()
	if w.tally.Count(w.slot(flowPeer.As4(), 80)) != 1 {
		t.Error("a stored SYN was forgotten")
	}

	for name, change := range map[string]func(*Config){
		"sessions":      func(c *Config) { c.Sizes.Sessions *= 2 },
		"client length": func(c *Config) { c.Sizes.SubscriberLength = 128 },
		"shape":         func(c *Config) { c.Shape = "y" },
	} {
		other := cfg
		change(&other)
		if n := loadNAT64ForTest(t, other); n.Adopted() {
			t.Errorf("tables of other %s were taken over", name)
		}
	}
	last := loadNAT64ForTest(t, cfg)
	if err := last.Unpin(); err != nil {
		t.Fatal(err)
	}
	if names, err := pins.Names(); err != nil || len(names) != 0 {
		t.Errorf("%v are left: %v", names, err)
	}
}

func TestSetNAT64Refuses(t *testing.T) {
	n := loadNAT64ForTest(t, Config{Name: "test", Sizes: someSizes})
	for name, change := range map[string]func(*Settings){
		"no prefix":         func(s *Settings) { s.Pool6 = nil },
		"too many prefixes": func(s *Settings) { s.Pool6 = make([]translatebpf.Prefix, 17) },
		"a /80":             func(s *Settings) { s.Pool6[0].Prefix = netip.MustParsePrefix("2001:db8::/80") },
		"an IPv4 prefix":    func(s *Settings) { s.Pool6[0].Prefix = netip.MustParsePrefix("192.0.2.0/32") },
		"no pool":           func(s *Settings) { s.Pool4 = nil },
		"an IPv6 pool":      func(s *Settings) { s.Pool4[0].Prefix = netip.MustParsePrefix("2001:db8::/64") },
		"a small MTU":       func(s *Settings) { s.LowestMTU = 1279 },
		"a great MTU":       func(s *Settings) { s.LowestMTU = 65536 },
	} {
		s := flowSettings()
		change(&s)
		if err := n.Set(s); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// What is set is what programs read, and life and generations are kept.
func TestSetNAT64(t *testing.T) {
	n := loadNAT64ForTest(t, Config{Name: "test", Sizes: someSizes})
	n.Beat(time.Hour)
	until, generation := n.settings.AliveUntil, n.settings.Generation
	s := flowSettings()
	s.Pool6 = append(s.Pool6, translatebpf.Prefix{Prefix: netip.MustParsePrefix("2001:db8:9::/48"), Strict: true}, translatebpf.Prefix{Prefix: flowPool6, Out: true})
	s.Pool4[0] = Range{Prefix: netip.MustParsePrefix("198.51.100.0/28"), Own: true}
	s.Pool4[0].Ports[state.ICMP] = PortRange{100, 200}
	s.Lifetimes[state.ICMP][state.Opened] = time.Minute
	s.FixedTOS, s.TOS, s.Detour, s.PuntRate = true, 0x28, true, 1000
	if err := n.Set(s); err != nil {
		t.Fatal(err)
	}
	c := n.settings
	if c.AliveUntil != until || c.Generation != generation+1 {
		t.Errorf("life %d, was %d; generation %d, was %d", c.AliveUntil, until, c.Generation, generation)
	}
	if c.Flags != nat64FlagExternalTCP|nat64FlagFixedTOS|nat64FlagDetour || c.Tos != 0x28 || c.LowestMtu != 1280 || c.PuntTotal != 67 {
		t.Errorf("flags %#x, TOS %#x, MTU %d, punts %d", c.Flags, c.Tos, c.LowestMtu, c.PuntTotal)
	}
	if c.Lifetime[state.ICMP][state.Opened] != 224 || c.Lifetime[state.TCP][state.Free] != 0 || c.Lifetime[state.UDP][15] != 0 {
		t.Errorf("lifetimes %v", c.Lifetime)
	}
	if c.Pool6Count != 3 || c.Pool6[1].Length != 48 || c.Pool6[1].Flags != translatebpf.Strict || c.Pool6[1].Range.Mask != [2]uint64{0xffff_ffff_ffff, 0} ||
		c.Pool6[2].Range.Mask != [2]uint64{^uint64(0), ^uint64(0)} || c.Pool6[2].Range.Address != c.Pool6[0].Range.Address {
		t.Errorf("pool6 is %+v", c.Pool6[:3])
	}
	want := nat64Pool4Range{Address: 0x006433c6, Mask: 0xf0ffffff, Flags: pool4Own}
	want.First[state.ICMP], want.Last[state.ICMP] = 100, 200
	if c.Pool4Count != 1 || c.Pool4[0] != want || c.Source != want.Address {
		t.Errorf("pool4 is %+v, the source %#x", c.Pool4[0], c.Source)
	}
	if err := n.SetDevice(fastpath.Device{Index: 7, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Frames: true}); err != nil {
		t.Fatal(err)
	}
	if d := c.Devices[7]; d.Ifindex != 7 || d.Flags != 1 || d.Mac != [6]uint8{2, 0, 0, 0, 0, 1} {
		t.Errorf("the device is %+v", d)
	}
}
