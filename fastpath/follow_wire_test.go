// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"context"
	"crypto/rand"
	"encoding/binary"
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

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// site is a relay's fast path, without a relay, between two IPv4 routers and two
// IPv6 routers, each on a device of its own. Packets of both directions pass it
// all the time, to every destination, and say when they were sent.
type site struct {
	t        *testing.T
	relay    *testutil.Netns
	routers  [4]*router // 0 and 1 are of IPv4, 2 and 3 of IPv6
	fast     *Teredo
	hot      *peer.Hot
	follower *Follower
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

func newSite(t *testing.T, mode Mode) *site {
	t.Helper()
	s := &site{
		t: t, relay: testutil.NewNetns(t), fast: loadForTest(t, TeredoConfig{Name: "site", Buckets: 256, Foreign: 1}),
		seen: make(map[netip.Addr][]sighting),
	}
	s.relay.Do(t, func() error {
		if err := addressesAtOnce(); err != nil {
			return err
		}
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
	r.ns.Do(s.t, addressesAtOnce)
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
		if err := napi("down"); err != nil {
			return err
		}
		r.socket, err = packetSocket("down")
		return err
	})
	s.t.Cleanup(func() { unix.Close(r.socket) })
	return r
}

// napi switches GRO on, without which XDP cannot redirect to a veth's far end.
func napi(link string) error {
	fd, err := ethtoolSocket()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = ethtool(fd, link, ethtoolSetGRO, 1)
	return err
}

// packetSocket sends and receives frames of a link of the calling thread's
// namespace. It gives up waiting now and then.
func packetSocket(link string) (int, error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index(link)}); err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		return -1, err
	}
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
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
	err = s.fast.Set(Settings{
		Seed: s.hot.Seed(), Prefixes: []netip.Prefix{sitePrefix}, Serve: []netip.Prefix{netip.MustParsePrefix("::/0")},
		Own: []netip.Addr{siteOwn}, Source: siteOwn, Port: sitePort, MTU: 1280,
		Refresh: 30 * time.Second, Memory: 30 * time.Second, Tunnel: tunnel,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.meet()
}

// meet makes the programs trust all clients from now on.
func (s *site) meet() {
	now := peer.Instant(Monotonic())
	for _, v4 := range append(destinations4(), siteClient) {
		key := clientOf(v4).As16()
		if r := s.hot.Insert(&key, netip.AddrPortFrom(v4, clientPort), now, time.Hour, false); r != peer.Accepted {
			s.t.Fatalf("%s is no peer: %v", v4, r)
		}
	}
	s.fast.Beat(time.Minute)
}

func destinations4() []netip.Addr {
	return append([]netip.Addr{viaFirst4, viaSecond4, byDefault4, specific4}, shared4...)
}

func destinations6() []netip.Addr {
	return append([]netip.Addr{viaFirst6, viaSecond6, byDefault6, specific6}, shared6...)
}

// attach attaches the programs, and follows.
func (s *site) attach(mode Mode) {
	s.t.Helper()
	var names []string
	for _, r := range s.routers {
		names = append(names, r.device)
		d := Device{Index: r.index, MAC: r.near, Frames: mode == ModeXDP, Packets: mode == ModeTC}
		if err := s.fast.SetDevice(d); err != nil {
			s.t.Fatal(err)
		}
	}
	s.relay.Do(s.t, func() error {
		a, err := Attach(s.fast.Programs(), AttachConfig{Name: "site", Mode: mode, Devices: names})
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { s.relay.Do(s.t, a.Close) })
		s.follower, err = NewFollower(s.fast)
		return err
	})
	s.follower.prober.every = 200 * time.Millisecond
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

// speak sends a packet to each router. What comes back, that nobody listens, is
// no matter.
func (s *site) speak() {
	for _, c := range s.engine {
		_, _ = c.Write([]byte("hello"))
	}
}

// traffic sends and receives until the test ends.
func (s *site) traffic() {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	s.t.Cleanup(func() { cancel(); work.Wait() })
	for i := range s.routers {
		work.Go(func() { s.receive(ctx, i) })
	}
	work.Go(func() { s.send(ctx) })
}

// send sends a packet to each destination every two milliseconds.
func (s *site) send(ctx context.Context) {
	var toClients, fromClients [][]byte
	for _, v4 := range destinations4() {
		toClients = append(toClients, siteFrame(s.routers[2].near, unix.ETH_P_IPV6, siteInner(siteHost, clientOf(v4))))
	}
	for _, v6 := range destinations6() {
		fromClients = append(fromClients, siteFrame(s.routers[0].near, unix.ETH_P_IP, siteOuter(siteInner(clientOf(siteClient), v6))))
	}
	last := Monotonic()
	for ctx.Err() == nil {
		for _, frames := range []struct {
			from *router
			list [][]byte
		}{{s.routers[2], toClients}, {s.routers[0], fromClients}} {
			for _, f := range frames.list {
				binary.BigEndian.PutUint64(f[len(f)-8:], uint64(Monotonic()))
				if _, err := unix.Write(frames.from.socket, f); err != nil {
					s.t.Errorf("cannot send: %v", err)
					return
				}
			}
		}
		time.Sleep(2 * time.Millisecond)
		now := Monotonic()
		s.mu.Lock()
		s.interval = max(s.interval, now-last)
		s.mu.Unlock()
		last = now
	}
}

// siteFrame puts an Ethernet header before a packet.
func siteFrame(to net.HardwareAddr, kind uint16, packet []byte) []byte {
	f := append(slices.Clone(to), 2, 0, 0, 0, 0, 1)
	return append(binary.BigEndian.AppendUint16(f, kind), packet...)
}

// siteInner is an IPv6 packet whose last 8 bytes are for the time. Nobody looks at its
// UDP checksum, but none is not allowed.
func siteInner(src, dst netip.Addr) []byte {
	b := make([]byte, 56)
	b[0], b[5], b[6], b[7] = 0x60, 16, unix.IPPROTO_UDP, 64
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[40:], payloadPort)
	binary.BigEndian.PutUint16(b[42:], payloadPort)
	binary.BigEndian.PutUint16(b[44:], 16)
	b[46] = 1
	return b
}

// siteOuter puts a packet of the client into its tunnel, without an outer checksum.
func siteOuter(packet []byte) []byte {
	b := make([]byte, 28, 28+len(packet))
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(28+len(packet)))
	copy(b[12:], siteClient.AsSlice())
	copy(b[16:], siteOwn.AsSlice())
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(b[20:], clientPort)
	binary.BigEndian.PutUint16(b[22:], sitePort)
	binary.BigEndian.PutUint16(b[24:], uint16(8+len(packet)))
	return append(b, packet...)
}

// receive notes what comes to a router through the fast path.
func (s *site) receive(ctx context.Context, router int) {
	buf := make([]byte, 2048)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(s.routers[router].socket, buf, 0)
		if err != nil || from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		f := buf[:n]
		var dst netip.Addr
		switch {
		case n == 14+28+56 && router < 2:
			dst = netip.AddrFrom4([4]byte(f[30:34]))
		case n == 14+56 && router >= 2:
			dst = netip.AddrFrom16([16]byte(f[38:54]))
		default:
			continue
		}
		seen := sighting{time.Duration(binary.BigEndian.Uint64(f[n-8:])), router, [6]byte(f[:6])}
		s.mu.Lock()
		s.seen[dst] = append(s.seen[dst], seen)
		s.mu.Unlock()
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

// limit is how long a packet may still go where it should have gone before.
const limit = 100 * time.Millisecond

// after makes a change and checks where packets go that are sent later than the
// limit after it. A machine that stood still meanwhile gets that time on top.
func (s *site) after(what string, limit time.Duration, moved map[netip.Addr]int, change func()) {
	s.t.Helper()
	s.meet()
	s.mu.Lock()
	s.interval = 0
	s.mu.Unlock()
	change()
	changed := Monotonic()
	for end := changed + limit + 300*time.Millisecond; Monotonic() < end; time.Sleep(20 * time.Millisecond) {
		if limit > time.Second {
			// Packets are left to the engine when a neighbour does not answer.
			s.speak()
		}
	}
	want := s.expected(moved)

	s.mu.Lock()
	defer s.mu.Unlock()
	worst, wrong := time.Duration(0), 0
	for dst, allowed := range want {
		last := time.Duration(0)
		for _, seen := range s.seen[dst] {
			late := seen.sent - changed
			last = max(last, late)
			if slices.Contains(allowed, where{seen.router, seen.mac}) {
				continue
			}
			worst = max(worst, late)
			if late > limit+s.interval {
				wrong++
			}
		}
		if last+s.interval < limit+100*time.Millisecond {
			s.t.Errorf("%s: no packet came through to %s any more", what, dst)
		}
	}
	s.t.Logf("%s: the last packet to an old next hop was sent %v after it; longest pause of the sender %v", what, worst, s.interval)
	if wrong > 0 {
		s.t.Errorf("%s: %d packets went to the wrong next hop later than %v", what, wrong, limit+s.interval)
	}
	for dst := range s.seen {
		s.seen[dst] = nil
	}
}

// route changes a route of the relay.
func (s *site) route(f func(*netlink.Route) error, dst string, router int) func() {
	return func() {
		s.relay.Do(s.t, func() error { return f(routeTo(dst, s.routers[router].address.String())) })
	}
}

// moveTo gives a router another MAC, announced or not.
func (s *site) moveTo(router int, mac, notify string) func() {
	return func() { s.routers[router].ns.Do(s.t, func() error { return move(mac, notify) }) }
}

// eachItsOwn checks that equal-cost routes are all used, and one destination is
// not sent now here, now there.
func (s *site) eachItsOwn(what string, shared []netip.Addr) {
	s.t.Helper()
	time.Sleep(200 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	used := make(map[int]int)
	for _, dst := range shared {
		routers := make(map[int]bool)
		for _, seen := range s.seen[dst] {
			routers[seen.router] = true
			used[seen.router]++
		}
		if len(routers) != 1 {
			s.t.Errorf("%s: packets to %s came to %d routers", what, dst, len(routers))
		}
	}
	if len(used) != 2 {
		s.t.Errorf("%s: %d of 2 equal-cost routes are used", what, len(used))
	}
	for dst := range s.seen {
		s.seen[dst] = nil
	}
}

// TestPacketsFollowTheNetwork changes routes and neighbours under traffic.
func TestPacketsFollowTheNetwork(t *testing.T) {
	for _, mode := range []Mode{ModeTC, ModeXDP} {
		t.Run(string(mode), func(t *testing.T) {
			s := newSite(t, mode)
			s.awaitTraffic()
			s.awaitClasses()
			s.after("nothing", limit, nil, func() {})
			s.eachItsOwn("IPv4", shared4)
			s.eachItsOwn("IPv6", shared6)

			s.after("more specific IPv4 route", limit, map[netip.Addr]int{specific4: 1}, s.route(netlink.RouteAdd, "198.18.0.0/24", 1))
			s.after("its removal", limit, nil, s.route(netlink.RouteDel, "198.18.0.0/24", 1))
			s.after("more specific IPv6 route", limit, map[netip.Addr]int{specific6: 3}, s.route(netlink.RouteAdd, "2001:db8:c::/64", 3))
			s.after("its removal", limit, nil, s.route(netlink.RouteDel, "2001:db8:c::/64", 3))
			s.awaitClasses()
			other := map[netip.Addr]int{byDefault4: 1, specific4: 1}
			s.after("another default route", limit, other, s.route(netlink.RouteReplace, "0.0.0.0/0", 1))

			s.after("IPv4 neighbour announces its move", limit, other, s.moveTo(1, "02:00:00:00:01:77", "1"))
			s.after("IPv6 neighbour announces its move", limit, other, s.moveTo(3, "02:00:00:00:03:77", "1"))
			const seconds = 2 * time.Second
			s.after("IPv4 neighbour moves silently", seconds, other, s.moveTo(0, "02:00:00:00:00:88", "0"))
			s.after("IPv6 neighbour moves silently", seconds, other, s.moveTo(2, "02:00:00:00:02:88", "0"))
			t.Logf("%+v", s.follower.Stats())
		})
	}
}

// awaitTraffic waits until packets come through to every destination.
func (s *site) awaitTraffic() {
	s.t.Helper()
	all := append(destinations4(), destinations6()...)
	s.await("traffic to all destinations", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, dst := range all {
			if len(s.seen[dst]) == 0 {
				return false
			}
		}
		return true
	})
}

// awaitClasses waits until the default route has its class.
func (s *site) awaitClasses() {
	s.t.Helper()
	s.await("classes", func() bool { return s.fast.Routes4()[198<<8|18] != 0 })
}

func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(longEnough); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			counters, err := s.fast.Counters()
			s.t.Fatalf("waited in vain for %s; %+v %v; %+v", what, counters, err, s.follower.Stats())
		}
	}
}
