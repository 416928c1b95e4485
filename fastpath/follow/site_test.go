// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// site is a relay's fast path, without a relay, between two IPv4 routers and two
// IPv6 routers, each on a device of its own. Packets of both directions pass it
// all the time, to every destination, and say when they were sent.
type site struct {
	t        *testing.T
	relay    *testutil.Netns
	routers  [4]*router // 0 and 1 are of IPv4, 2 and 3 of IPv6
	fast     *teredobpf.Relay
	hot      *peer.Hot
	follower *Follower
	bumps    *bumpLog
	engine   []net.Conn // to each router

	mu       sync.Mutex
	seen     map[netip.Addr][]sighting
	interval time.Duration // the longest time between two packets to a destination
}

// router is the next hop at the far end of a device of the relay.
type router struct {
	ns      *testutil.Netns
	device  string
	address netip.Addr
	index   int              // of the device, at the relay
	near    net.HardwareAddr // of the device
	socket  int
}

// sighting is a packet that came to a router.
type sighting struct {
	sent   time.Duration
	router int
	mac    [6]byte // that it was sent to
}

// where says what router a packet should come to, by what MAC.
type where struct {
	router int
	mac    [6]byte
}

// What the site is made of. Some destinations share a /16 with others, to have
// next hops of a class and those of single destinations. The relay's own address
// is on neither device, since of equal-cost routes newer kernels prefer that of
// the device with the source address.
var (
	siteOwn    = netip.MustParseAddr("203.0.113.250")
	sitePrefix = netip.MustParsePrefix("2001::/32")
	siteHost   = netip.MustParseAddr("2001:db8:9::1") // whom packets to clients come from
	siteClient = netip.MustParseAddr("203.0.113.99")  // whom packets from clients come from

	viaFirst4, viaSecond4 = netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.7")
	byDefault4, specific4 = netip.MustParseAddr("198.18.5.5"), netip.MustParseAddr("198.18.0.9")
	viaFirst6, viaSecond6 = netip.MustParseAddr("2001:db8:a::7"), netip.MustParseAddr("2001:db8:b::7")
	byDefault6, specific6 = netip.MustParseAddr("2001:db8:c:1::9"), netip.MustParseAddr("2001:db8:c::9")
	shared4               = spread("100.64.0.1", 1, 24)
	shared6               = spread("2001:db8:e::1", 9, 24)
)

const (
	sitePort    = 3545
	clientPort  = 40000
	payloadPort = 4242
)

// spread makes addresses that differ in one byte.
func spread(first string, at, n int) []netip.Addr {
	var all []netip.Addr
	for i := range n {
		b := netip.MustParseAddr(first).AsSlice()
		b[at] += byte(i)
		a, _ := netip.AddrFromSlice(b)
		all = append(all, a)
	}
	return all
}

// clientOf is the Teredo address of a client behind an IPv4 address.
func clientOf(v4 netip.Addr) netip.Addr {
	return teredo.Addr{
		Prefix: sitePrefix, Server: netip.MustParseAddr("192.0.2.200"), Mapped: netip.AddrPortFrom(v4, clientPort),
	}.IP()
}

func newSite(t *testing.T, mode fastpath.Mode) *site {
	t.Helper()
	s := &site{
		t: t, relay: testutil.NewNetns(t), fast: loadRelay(t, teredobpf.RelayConfig{Name: "site", Buckets: 256, Foreign: 1}),
		seen: make(map[netip.Addr][]sighting),
	}
	s.relay.AddressesAtOnce(t)
	s.relay.Do(t, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tun"}, PeerName: "nowhere"}); err != nil {
			return err
		}
		if err := addresses("tun", siteOwn.String()+"/32"); err != nil {
			return err
		}
		if err := sysctl("ipv4/conf/tun/forwarding", "1"); err != nil {
			return err
		}
		return sysctl("ipv6/conf/all/forwarding", "1")
	})
	for i, prefix := range []string{"192.0.2.1/25", "192.0.2.129/25", "2001:db8:1::1/64", "2001:db8:2::1/64"} {
		s.routers[i] = s.plug(fmt.Sprintf("to%d", i), netip.MustParsePrefix(prefix))
	}
	s.relay.Do(t, s.firstRoutes)
	s.configure()
	s.attach(mode)
	s.greet()
	s.traffic()
	return s
}

// plug makes a device of the relay with a router behind it.
func (s *site) plug(device string, near netip.Prefix) *router {
	s.t.Helper()
	r := &router{ns: testutil.NewNetns(s.t), device: device, address: near.Addr().Next()}
	r.ns.AddressesAtOnce(s.t)
	s.relay.Do(s.t, func() error {
		err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "down", PeerNamespace: netlink.NsFd(r.ns.Handle()),
		})
		if err != nil {
			return err
		}
		if err := addresses(device, near.String()); err != nil {
			return err
		}
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		r.index, r.near = l.Attrs().Index, l.Attrs().HardwareAddr
		return nil
	})
	r.ns.Do(s.t, func() (err error) {
		if err := addresses("down", netip.PrefixFrom(r.address, near.Bits()).String()); err != nil {
			return err
		}
		if err := testutil.ReceiveByNAPI("down", true); err != nil {
			return err
		}
		r.socket, err = fastpathtest.PacketSocket("down")
		return err
	})
	s.t.Cleanup(func() { unix.Close(r.socket) })
	s.relay.AwaitLinks(s.t, device)
	r.ns.AwaitLinks(s.t, "down")
	return r
}

// firstRoutes is how the host routes at first.
func (s *site) firstRoutes() error {
	r := s.routers
	for _, route := range []struct {
		dst string
		via *router
	}{
		{"198.51.100.0/24", r[0]},
		{"203.0.113.0/24", r[1]},
		{"0.0.0.0/0", r[0]},
		{"2001:db8:a::/48", r[2]},
		{"2001:db8:b::/48", r[3]},
		{"2001:db8:c::/48", r[2]},
	} {
		if err := netlink.RouteAdd(routeTo(route.dst, route.via.address.String())); err != nil {
			return fmt.Errorf("route to %s: %w", route.dst, err)
		}
	}
	for dst, via := range map[string][]*router{"100.64.0.0/10": r[:2], "2001:db8:e::/48": r[2:]} {
		route := routeTo(dst, "")
		for _, hop := range via {
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: hop.address.AsSlice(), LinkIndex: hop.index})
		}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("equal-cost route to %s: %w", dst, err)
		}
	}
	return nil
}

// configure tells the programs of a relay and its peers.
func (s *site) configure() {
	s.t.Helper()
	var err error
	s.hot, err = peer.NewHot(s.fast.Peers(), 512, [][4]byte{{0x20, 0x01, 0, 0}}, rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	tunnel := 0
	s.relay.Do(s.t, func() error { tunnel = index("tun"); return nil })
	err = s.fast.Set(teredobpf.Settings{
		Seed: s.hot.Seed(), Prefixes: []netip.Prefix{sitePrefix}, Serve: []netip.Prefix{netip.MustParsePrefix("::/0")},
		Own: []netip.Addr{siteOwn}, Source: siteOwn, Port: sitePort, MTU: 1280,
		Refresh: time.Hour, Memory: time.Hour, Tunnel: tunnel,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.meet()
}

// meet makes the programs trust all clients from now on.
func (s *site) meet() {
	now := peer.Instant(fastpath.Monotonic())
	for _, v4 := range append(destinations4(), siteClient) {
		key := clientOf(v4).As16()
		if r := s.hot.Insert(&key, netip.AddrPortFrom(v4, clientPort), now, time.Hour, false); r != peer.Accepted {
			s.t.Fatalf("%s is no peer: %v", v4, r)
		}
	}
	s.fast.Beat(time.Hour)
}

func destinations4() []netip.Addr {
	return append([]netip.Addr{viaFirst4, viaSecond4, byDefault4, specific4}, shared4...)
}

func destinations6() []netip.Addr {
	return append([]netip.Addr{viaFirst6, viaSecond6, byDefault6, specific6}, shared6...)
}

// attach attaches the programs, and follows.
func (s *site) attach(mode fastpath.Mode) {
	s.t.Helper()
	var names []string
	for _, r := range s.routers {
		names = append(names, r.device)
		d := fastpath.Device{Index: r.index, MAC: r.near, Frames: mode == fastpath.ModeXDP, Packets: mode == fastpath.ModeTC}
		if err := s.fast.SetDevice(d); err != nil {
			s.t.Fatal(err)
		}
	}
	s.bumps = &bumpLog{Relay: s.fast}
	s.relay.Do(s.t, func() error {
		a, err := attach.Attach(s.fast.Programs(), attach.Config{Name: "site", Mode: mode, Devices: names})
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { s.relay.Do(s.t, a.Close) })
		s.follower, err = New(s.bumps)
		return err
	})
	s.follower.prober.every = 200 * time.Millisecond
	s.bumps.recounts = s.follower.recounts.Load
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.follower.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

// greet makes the relay's kernel know its routers, as packets of an engine do.
func (s *site) greet() {
	s.t.Helper()
	s.relay.Do(s.t, func() error {
		for _, r := range s.routers {
			if err := fasterProbes(r.device); err != nil {
				return err
			}
			c, err := net.Dial("udp", netip.AddrPortFrom(r.address, 9).String())
			if err != nil {
				return err
			}
			s.t.Cleanup(func() { c.Close() })
			s.engine = append(s.engine, c)
		}
		return nil
	})
	s.speak()
}

// speak sends a packet to each router. What comes back, that no one listens, is
// no matter.
func (s *site) speak() {
	for _, c := range s.engine {
		_, _ = c.Write([]byte("hello"))
	}
}

// mac is what a router has now.
func (s *site) mac(router int) (mac [6]byte) {
	s.t.Helper()
	s.routers[router].ns.Do(s.t, func() error {
		l, err := netlink.LinkByName("down")
		if err == nil {
			mac = [6]byte(l.Attrs().HardwareAddr)
		}
		return err
	})
	return mac
}

// bumpLog notes the bumps of a follower.
type bumpLog struct {
	*teredobpf.Relay
	recounts func() uint64

	mu   sync.Mutex
	list []bumpNote
}

// bumpNote is one, with how often the classes had been recounted.
type bumpNote struct {
	at       time.Duration
	recounts uint64
}

// Bump implements [Table].
func (b *bumpLog) Bump() {
	b.Relay.Bump()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, bumpNote{fastpath.Monotonic(), b.recounts()})
}

// from returns those behind the first n.
func (b *bumpLog) from(n int) []bumpNote {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.list[n:])
}

// expected is where packets to each destination have to go: as the first routes
// say, but for those in moved.
func (s *site) expected(moved map[netip.Addr]int) map[netip.Addr][]where {
	want := make(map[netip.Addr][]where)
	to := map[netip.Addr]int{
		viaFirst4: 0, viaSecond4: 1, byDefault4: 0, specific4: 0,
		viaFirst6: 2, viaSecond6: 3, byDefault6: 2, specific6: 2,
	}
	maps.Copy(to, moved)
	for dst, router := range to {
		want[dst] = []where{{router, s.mac(router)}}
	}
	for i := range shared4 {
		want[shared4[i]] = []where{{0, s.mac(0)}, {1, s.mac(1)}}
		want[shared6[i]] = []where{{2, s.mac(2)}, {3, s.mac(3)}}
	}
	return want
}

func loadRelay(t *testing.T, cfg teredobpf.RelayConfig) *teredobpf.Relay {
	t.Helper()
	testutil.NeedRoot(t)
	fast, err := teredobpf.LoadRelay(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fast.Close(); err != nil {
			t.Error(err)
		}
	})
	return fast
}
