// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package differ_test holds the fast path against the engine: the same frames go
// through the programs, by the kernel's test run, and through teredo/relay in a
// small model of the kernel around it. Both use one peer table.
package differ_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// The host of the relay: two devices towards IPv4 and two towards IPv6, each with
// gateways that never fail.
var (
	server   = netip.MustParseAddr("203.0.113.9")
	relayIP  = netip.MustParseAddr("192.0.2.3")
	secondIP = netip.MustParseAddr("192.0.2.131")
	prefixes = []netip.Prefix{teredo.Prefix, netip.MustParsePrefix("2001:db8::/32")}
	served   = []netip.Prefix{netip.MustParsePrefix("3fff::/24"), netip.MustParsePrefix("3fff:100:2:3::/65")}
)

var seed = peer.Seed{11, 13, 17, 19, 23}

const (
	relayPort = 3545
	maxPeers  = 1000
	peerAge   = 30 * time.Second // PeerTimeout
	tunnelMTU = 1280
	narrow    = 1300 // MTU of the second devices
)

// port is one Ethernet device of the host.
type port struct {
	name  string
	mac   net.HardwareAddr
	mtu   int
	addr  string
	index int
}

var ports = []*port{
	{name: "four0", mac: mac(1), mtu: 1500, addr: "192.0.2.3/25"},
	{name: "four1", mac: mac(2), mtu: narrow, addr: "192.0.2.131/25"},
	{name: "six0", mac: mac(3), mtu: 1500, addr: "3fff:fff:0:1::1/64"},
	{name: "six1", mac: mac(4), mtu: narrow, addr: "3fff:fff:0:2::1/64"},
	{name: "tun", mac: mac(5), mtu: 1500, addr: "3fff:fff:0:3::1/64"},
}

func mac(n byte) net.HardwareAddr { return net.HardwareAddr{0x02, 0, 0x5e, 0, 0x10, n} }

// way is a route, as the kernel and the model know it.
type way struct {
	to      string
	gateway string
	mac     net.HardwareAddr // of the gateway; nil: it has never answered
	port    int
}

var ways = []way{
	{"198.51.100.0/24", "192.0.2.1", mac(101), 0},
	{"203.0.113.0/24", "192.0.2.129", mac(102), 1},
	{"198.18.0.0/15", "192.0.2.2", nil, 0},
	{"3fff:1::/48", "3fff:fff:0:1::2", mac(103), 2},
	{"3fff:2::/48", "3fff:fff:0:2::2", mac(104), 3},
	{"3fff:100:2:3::/64", "3fff:fff:0:1::3", mac(105), 2},
	{"3fff:3::/48", "3fff:fff:0:1::4", nil, 2},
}

// world is a host with a relay, whose engine and programs share their tables.
type world struct {
	t     testing.TB
	ns    *testutil.Netns
	fast  *teredobpf.Relay
	relay *relay.Relay
	hot   *peer.Hot // a second writer, while the engine does nothing
	cfg   relay.Config
	epoch time.Time
	last  map[teredobpf.Reason]uint64

	change []func(*teredobpf.Settings, *relay.Config)
}

// newWorld makes the host. change sees the settings before they are set.
func newWorld(t testing.TB, change ...func(*teredobpf.Settings, *relay.Config)) *world {
	t.Helper()
	return newWorldOf(t, peer.HotBytes(maxPeers)/peer.BucketBytes, change...)
}

// newWorldOf makes the host with so many buckets of peers.
func newWorldOf(t testing.TB, buckets int, change ...func(*teredobpf.Settings, *relay.Config)) *world {
	t.Helper()
	w := &world{t: t, ns: testutil.NewNetns(t)}
	w.ns.Do(t, func() error { return makeHost(ports, ways) })
	fast, err := teredobpf.LoadRelay(teredobpf.RelayConfig{Name: "differ", Buckets: buckets, Foreign: 1 << 13})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	w.fast = fast
	t.Cleanup(func() { fast.Close() })
	w.change = change
	w.settle()
	for _, p := range ports[:4] {
		if err := fast.SetDevice(fastpath.Device{Index: p.index, MAC: p.mac, Frames: true, Packets: true, Whole: true, MTU: p.mtu}); err != nil {
			t.Fatal(err)
		}
	}
	// Test runs of XDP come in by the loopback device.
	if err := fast.SetDevice(fastpath.Device{Index: 1, MAC: ports[0].mac}); err != nil {
		t.Fatal(err)
	}
	fast.Beat(time.Hour)
	return w
}

// settle empties all tables, makes engine and settings equal, and fills the tables
// with the cast.
func (w *world) settle() {
	w.t.Helper()
	w.clear()
	w.epoch = time.Now().Add(-fastpath.Monotonic())
	cfg := relay.Config{
		Prefixes: prefixes, Serve: served, Address: netip.MustParseAddr("3fff:fff:0:1::1"),
		Own: []netip.Addr{relayIP, secondIP}, Port: relayPort, MTU: tunnelMTU, MaxPeers: maxPeers,
		Memory: w.fast.Peers(), Epoch: w.epoch, PeerTimeout: peerAge,
		Shared:       &relay.Shared{Seed: seed, Foreign: w.fast.Foreign(), UnderTest: w.fast.UnderTest()},
		QueuePackets: 2, QueueBytes: 4096, QueueTotalBytes: 1 << 20,
	}
	s := teredobpf.Settings{
		Seed: seed, Prefixes: prefixes, Serve: served, Own: cfg.Own, Source: relayIP,
		Port: relayPort, MTU: tunnelMTU, Tunnel: ports[4].index,
	}
	for _, f := range w.change {
		f(&s, &cfg)
	}
	send, receive := cfg.Ages()
	s.Refresh, s.Memory = send, receive
	if err := w.fast.Set(s); err != nil {
		w.t.Fatal(err)
	}
	w.cfg = cfg
	w.reopen()
	w.populate()
	var err error
	if w.relay, err = relay.New(cfg, w.now(), testRand()); err != nil {
		w.t.Fatal(err)
	}
	w.stir()
}

// reopen lays the second writer's table over the memory.
func (w *world) reopen() {
	w.t.Helper()
	keys := make([][4]byte, len(prefixes))
	for i, p := range prefixes {
		keys[i] = [4]byte(p.Addr().AsSlice())
	}
	var err error
	if w.hot, err = peer.OpenHot(w.fast.Peers(), maxPeers, keys, seed, w.fast.Foreign(), w.instant()); err != nil {
		w.t.Fatal(err)
	}
}

// clear empties the tables.
func (w *world) clear() {
	clear(w.fast.Peers())
	var keys [][16]byte
	w.fast.Foreign().Walk(func(key [16]byte, _ netip.AddrPort) { keys = append(keys, key) })
	for _, key := range keys {
		w.fast.Foreign().Delete(key)
	}
	w.fast.UnderTest().Clear()
}

// isHost reports whether the relay is its host's own.
func (w *world) isHost() bool { return w.cfg.Host }

func testRand() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{1}) }

func (w *world) now() time.Time        { return w.epoch.Add(fastpath.Monotonic()) }
func (w *world) instant() peer.Instant { return peer.Instant(fastpath.Monotonic()) }

// makeHost makes devices, routes and neighbours in the thread's namespace.
func makeHost(ports []*port, ways []way) error {
	for _, p := range ports {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.MTU = p.name, p.mac, p.mtu
		v := &netlink.Veth{LinkAttrs: attrs, PeerName: p.name + "p"}
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("cannot make %s: %w", p.name, err)
		}
		addr, err := netlink.ParseAddr(p.addr)
		if err != nil {
			return err
		}
		addr.Flags = 0x02 // IFA_F_NODAD
		for _, name := range []string{p.name, p.name + "p"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if name == p.name {
				p.index = link.Attrs().Index
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
			if name == p.name {
				if err := netlink.AddrAdd(link, addr); err != nil {
					return err
				}
			}
		}
	}
	for _, name := range []string{"ipv6/conf/all", "ipv4/conf/tun"} {
		if err := os.WriteFile("/proc/sys/net/"+name+"/forwarding", []byte("1"), 0); err != nil {
			return err
		}
	}
	for _, r := range ways {
		if err := r.add(ports); err != nil {
			return fmt.Errorf("cannot route %s: %w", r.to, err)
		}
	}
	return nil
}

func (r *way) add(ports []*port) error {
	to, err := netlink.ParseIPNet(r.to)
	if err != nil {
		return err
	}
	if r.mac != nil {
		if err := r.setNeighbour(ports); err != nil {
			return err
		}
	}
	return netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(r.gateway), LinkIndex: ports[r.port].index})
}

// setNeighbour tells the kernel the gateway's address, for good.
func (r *way) setNeighbour(ports []*port) error {
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: ports[r.port].index, IP: net.ParseIP(r.gateway), HardwareAddr: r.mac, State: netlink.NUD_PERMANENT,
	})
}

// route returns the way to a destination, as the model has it.
func route(a netip.Addr) (r way, ok bool) {
	for _, r := range ways {
		if netip.MustParsePrefix(r.to).Contains(a) && r.mac != nil {
			return r, true
		}
	}
	return way{}, false
}
