// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// The host of a NAT64: two devices towards IPv4 and two towards IPv6, as of the relay.
const (
	narrow4 = 1000 // MTU of the second device of each family
	narrow6 = 1280
)

// natWays are routes of that host; each has a gateway that never fails.
var natWays = []way{
	{"198.51.100.0/24", "192.0.2.2", mac(101), 0},
	{"198.41.0.0/24", "192.0.2.2", mac(101), 0},
	{"10.0.0.0/24", "192.0.2.2", mac(101), 0},
	{"203.0.113.0/25", "192.0.2.66", mac(102), 1},
	{"2001:db8:1::/48", "2001:db8:f:1::2", mac(103), 2},
	{"2001:db8:3::/48", "2001:db8:f:1::2", mac(103), 2},
	{"2001:db8:2::/48", "2001:db8:f:2::2", mac(104), 3},
}

var (
	natPrefixes = []netip.Prefix{
		netip.MustParsePrefix("2001:db8:64::/96"), translate.WellKnownPrefix,
		netip.MustParsePrefix("3fff:100::/32"), netip.MustParsePrefix("3fff:200:100::/40"),
		netip.MustParsePrefix("3fff:300:1::/48"), netip.MustParsePrefix("3fff:400:1:100::/56"),
		netip.MustParsePrefix("3fff:500:1:1::/64"),
		netip.MustParsePrefix("3fff:100:c633::/96"), // inside of another
	}
	natOwn4, natOwn6  = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:f:1::1")
	natPool, natPool2 = netip.MustParseAddr("192.0.2.130"), netip.MustParseAddr("192.0.2.131")
	natDetour         = netip.MustParsePrefix("fd00:64:64:64::/64")
)

// natSizes are small: tables and ports run out.
var natSizes = state.Sizes{Sessions: 192, Subscribers: 8, Addresses: 4, BlockWords: 1, SubscriberLength: 64}

// natWorld is one host whose programs and engine share the state of a NAT64.
type natWorld struct {
	t        testing.TB
	ns       *testutil.Netns
	ports    []*port
	fast     *nat64bpf.Path
	epoch    time.Time
	settings nat64.Settings
	table    *state.Table
	engine   *nat64.Engine
	mtu4     int // of the networks on either side, 0: as the routes say
	mtu6     int
	partial  bool // frames of XDP may have checksums that are left to hardware
	out      nat64.Out

	sessions      []byte // the records of all sessions
	before, after []byte // copies of them
	counts        runtest.Counts
	reasons       map[string]uint64 // counted up to the last drop
	skipped       int               // comparisons that the clock spoiled
}

// natPorts are the devices of that host.
func natPorts() []*port {
	return []*port{
		{name: "four0", mac: mac(1), mtu: 1500, addr: "192.0.2.1/26"},
		{name: "four1", mac: mac(2), mtu: narrow4, addr: "192.0.2.65/26"},
		{name: "six0", mac: mac(3), mtu: 1500, addr: "2001:db8:f:1::1/64"},
		{name: "six1", mac: mac(4), mtu: narrow6, addr: "2001:db8:f:2::1/64"},
		{name: "tun", mac: mac(5), mtu: 1500, addr: "2001:db8:f:3::1/64"},
	}
}

func newNATWorld(t testing.TB, sizes state.Sizes) *natWorld {
	t.Helper()
	w := &natWorld{t: t, ns: testutil.NewNetns(t), ports: natPorts()}
	w.ns.Do(t, func() error { return makeHost(w.ports, natWays) })
	fast, err := nat64bpf.Load(nat64bpf.Config{Name: "differ", Sizes: sizes})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	w.fast, w.epoch = fast, time.Now().Add(-fastpath.Monotonic())
	t.Cleanup(func() { fast.Close() })
	for _, p := range w.ports[:4] {
		if err := fast.SetDevice(fastpath.Device{Index: p.index, MAC: p.mac, Frames: true, Packets: true}); err != nil {
			t.Fatal(err)
		}
	}
	w.sessions = fast.Memory()[state.SlabSessions]
	w.before, w.after = make([]byte, len(w.sessions)), make([]byte, len(w.sessions))
	fast.Beat(time.Hour)
	return w
}

// settle empties all tables and gives engine and programs the same settings.
func (w *natWorld) settle(rng *rand.Rand, s nat64.Settings, partial bool, puntRate int) {
	w.t.Helper()
	for _, slab := range w.fast.Memory() {
		clear(slab)
	}
	w.fast.Waiting().Clear()
	var seed [state.Seeds]uint64
	for i := range seed {
		seed[i] = rng.Uint64()
	}
	var err error
	if w.table, _, err = state.Open(natSizes, w.fast.Memory(), seed); err != nil {
		w.t.Fatal(err)
	}
	w.settings, w.partial = s, partial
	if w.engine, err = nat64.New(s, w.table, w.epoch, testRand()); err != nil {
		w.t.Fatal(err)
	}
	w.engine.SetWaiting(natWaiting{w.fast.Waiting()})
	w.engine.SetIDs(w.fast.IDs())
	if err := w.fast.Set(w.programs(puntRate)); err != nil {
		w.t.Fatal(err)
	}
	// Test runs of XDP come in by the loopback device.
	if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: w.ports[0].mac, Partial: partial}); err != nil {
		w.t.Fatal(err)
	}
}

// natWaiting tells the programs of SYNs that the engine has stored.
type natWaiting struct{ *nat64bpf.Waiting }

func (n natWaiting) Wait(peer netip.AddrPort) { n.Add(peer.Addr().As4(), peer.Port()) }
func (n natWaiting) Done(peer netip.AddrPort) { n.Remove(peer.Addr().As4(), peer.Port()) }

// programs is what the programs must know of the engine's settings.
func (w *natWorld) programs(puntRate int) nat64bpf.Settings {
	s := &w.settings
	p := nat64bpf.Settings{
		ExternalTCP: !s.DropExternalTCP, NoICMPInfo: s.DropICMPInfo, OutboundOnly: s.OutboundRefreshOnly,
		ZeroClass: s.Translate.ZeroTrafficClass, FixedTOS: s.Translate.FixedTOS, Unsummed: s.Translate.UDPZeroChecksum != translate.ZeroChecksumDrop, TOS: s.Translate.TOS,
		MTU4: w.mtu4, MTU6: w.mtu6, LowestMTU: s.Translate.LowestIPv6MTU, Detour: s.DetourPrefix.IsValid(), InnerSource: s.RouterAsInner,
		RouterPool4: len(s.Translate.Pool4) > 0, RouterPool6: len(s.Translate.Pool6) > 0,
		Tunnel: w.ports[4].index, PuntRate: puntRate, PuntShare: puntRate / 2,
	}
	for transport, kind := range []nat64.Filtering{state.TCP: s.FilterTCP, state.UDP: s.FilterUDP, state.ICMP: s.FilterICMP} {
		p.AddressDependent[transport] = kind == nat64.AddressDependent
	}
	for transport, states := range s.Lifetimes() {
		for status, units := range states {
			p.Lifetimes[transport][status] = time.Duration(units) * state.StampUnit
		}
	}
	for _, prefix := range s.Translate.Prefixes {
		p.Pool6 = append(p.Pool6, translatebpf.Prefix{
			Prefix: prefix.Prefix(), Strict: prefix.WellKnown() && !s.Translate.NonGlobal,
		})
	}
	for _, r := range s.Pool4 {
		to := nat64bpf.Range{Prefix: r.Prefix, Own: r.Own}
		for transport := range to.Ports {
			to.Ports[transport] = nat64bpf.PortRange{First: 1, Last: 0}
			if r.Transports == 0 || r.Transports&(1<<transport) != 0 {
				to.Ports[transport] = nat64bpf.PortRange{First: r.First, Last: r.Last}
			}
		}
		p.Pool4 = append(p.Pool4, to)
	}
	return p
}

// runner runs the program of a hook.
func (w *natWorld) runner(at runtest.Hook) *runtest.Runner {
	return runtest.NewRunner(at, w.fast.Programs(), w.ports[0].index, 1<<14)
}

// counted returns the reasons that were counted since the last call.
func (w *natWorld) counted() (map[string]uint64, error) { return w.counts.Packets(w.fast) }

// natRoute returns the way to an address, which may be a gateway's own.
func natRoute(a netip.Addr) (way, bool) {
	for _, r := range natWays {
		if netip.MustParsePrefix(r.to).Contains(a) || netip.MustParseAddr(r.gateway) == a {
			return r, true
		}
	}
	return way{}, false
}

// mtuTo is the MTU of the way to an address, or the lesser one of its network; 0 when there is
// no way.
func (w *natWorld) mtuTo(a netip.Addr) int {
	r, ok := natRoute(a)
	if !ok {
		return 0
	}
	network := w.mtu6
	if a.Is4() {
		network = w.mtu4
	}
	if way := w.ports[r.port].mtu; network == 0 || way < network {
		return way
	}
	return network
}
