// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// The host of a NAT64, with two devices on either side and gateways that never fail.
var (
	clientAddr  = netip.MustParseAddr("2001:db8:1::5")   // X'
	slimClient  = netip.MustParseAddr("2001:db8:2::5")   // behind a link of 1280
	poolAddr    = netip.MustParseAddr("192.0.2.130")     // T
	ownAddr     = netip.MustParseAddr("192.0.2.1")       // T, and the host's
	serverAddr  = netip.MustParseAddr("198.51.100.7")    // Z
	globalAddr  = netip.MustParseAddr("198.41.0.4")      // Z that the well-known prefix may represent
	slimServer  = netip.MustParseAddr("203.0.113.7")     // behind a link of 1000
	lostServer  = netip.MustParseAddr("203.0.113.200")   // no route
	routerAddr4 = netip.MustParseAddr("198.51.100.1")    // says that Z cannot be reached
	routerAddr6 = netip.MustParseAddr("2001:db8:f:1::9") // the same of X'
)

// pool6 are the prefixes, of all lengths.
var pool6 = []netip.Prefix{
	netip.MustParsePrefix("2001:db8:64::/96"), translate.WellKnownPrefix,
	netip.MustParsePrefix("3fff:100::/32"), netip.MustParsePrefix("3fff:200:100::/40"),
	netip.MustParsePrefix("3fff:300:1::/48"), netip.MustParsePrefix("3fff:400:1:100::/56"),
	netip.MustParsePrefix("3fff:500:1:1::/64"),
}

const (
	clientPort = 40001 // x
	poolPort   = 50003 // t
	ownPort    = 20005 // t, at the host's address
	serverPort = 443   // z
)

// natPort is one Ethernet device of the host.
type natPort struct {
	name  string
	mac   net.HardwareAddr
	mtu   int
	addrs []string
	index int
}

func natMAC(n byte) net.HardwareAddr { return net.HardwareAddr{0x02, 0, 0x5e, 0, 0x20, n} }

// natWay is a route of the host.
type natWay struct {
	to, gateway string
	mac         net.HardwareAddr
	port        int
}

var natWays = []natWay{
	{"198.51.100.0/24", "192.0.2.2", natMAC(101), 0},
	{"198.41.0.0/24", "192.0.2.2", natMAC(101), 0},
	{"203.0.113.0/25", "192.0.2.66", natMAC(102), 1},
	{"2001:db8:1::/48", "2001:db8:f:1::2", natMAC(103), 2},
	{"2001:db8:3::/48", "2001:db8:f:1::2", natMAC(103), 2},
	{"2001:db8:2::/48", "2001:db8:f:2::2", natMAC(104), 3},
	{"2001:db8:64::c000:2b0/124", "2001:db8:f:1::2", natMAC(103), 2}, // hosts whose addresses are made by a prefix
}

// natHost is a host with routes, of a translator whose programs run by the kernel's test
// run.
type natHost struct {
	ns    *testutil.Netns
	ports []*natPort
}

// newNATHost makes the host.
func newNATHost(t testing.TB) natHost {
	t.Helper()
	h := natHost{ns: testutil.NewNetns(t), ports: []*natPort{
		{name: "four0", mac: natMAC(1), mtu: 1500, addrs: []string{"192.0.2.1/26"}},
		{name: "four1", mac: natMAC(2), mtu: 1000, addrs: []string{"192.0.2.65/26"}},
		{name: "six0", mac: natMAC(3), mtu: 1500, addrs: []string{"2001:db8:f:1::1/64"}},
		{name: "six1", mac: natMAC(4), mtu: 1280, addrs: []string{"2001:db8:f:2::1/64"}},
		{name: "tun", mac: natMAC(5), mtu: 1500},
	}}
	h.ns.Do(t, h.build)
	return h
}

// natWorld is a NAT64 on such a host.
type natWorld struct {
	natHost
	fast    *fastpath.NAT64
	table   *state.Table
	trans   *translate.Translator
	prefix  []translate.Prefix
	setting fastpath.NAT64Settings
	last    []fastpath.Counter
}

// newNATWorld makes the host. change sees the settings before they are set.
func newNATWorld(t testing.TB, change ...func(*fastpath.NAT64Settings, *translate.Settings)) *natWorld {
	t.Helper()
	w := &natWorld{natHost: newNATHost(t)}
	sizes := state.Sizes{Sessions: 1 << 12, Subscribers: 64, Addresses: 4, BlockWords: 16, SubscriberLength: 64}
	fast, err := fastpath.LoadNAT64(fastpath.NAT64Config{Name: "test", Sizes: sizes})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	w.fast = fast
	t.Cleanup(func() {
		if err := fast.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.table, _, err = state.Open(sizes, fast.Memory(), [state.Seeds]uint64{1, 3, 5, 7, 11, 13, 17, 19}); err != nil {
		t.Fatal(err)
	}
	w.configure(t, change)
	for _, p := range w.ports[:4] {
		d := fastpath.Device{Index: p.index, MAC: p.mac, Frames: true, Packets: true}
		if err := fast.SetDevice(d); err != nil {
			t.Fatal(err)
		}
	}
	// Test runs of XDP come in by the loopback device.
	w.arriveBy(t, false)
	fast.Beat(time.Hour)
	w.last, err = fast.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// arriveBy says whether frames of XDP come by a device whose senders leave checksums
// unfinished.
func (w *natWorld) arriveBy(t testing.TB, partial bool) {
	t.Helper()
	if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: w.ports[0].mac, Partial: partial}); err != nil {
		t.Fatal(err)
	}
}

// configure sets the programs, the table's pool and the codec to be the same.
func (w *natWorld) configure(t testing.TB, change []func(*fastpath.NAT64Settings, *translate.Settings)) {
	t.Helper()
	s := fastpath.NAT64Settings{ExternalTCP: true, Tunnel: w.ports[4].index}
	codec := translate.Settings{UDPZeroChecksum: translate.ZeroChecksumCompute}
	for _, p := range pool6 {
		prefix, err := translate.NewPrefix(p)
		if err != nil {
			t.Fatal(err)
		}
		w.prefix = append(w.prefix, prefix)
		s.Pool6 = append(s.Pool6, fastpath.NAT64Prefix{Prefix: p, Strict: p == translate.WellKnownPrefix})
	}
	all := fastpath.PortRange{First: 1024, Last: 65535}
	some := fastpath.PortRange{First: 20000, Last: 29999}
	s.Pool4 = []fastpath.NAT64Range{
		{Prefix: netip.MustParsePrefix("192.0.2.128/28"), Ports: [state.Transports]fastpath.PortRange{all, all, all}},
		{Prefix: netip.PrefixFrom(ownAddr, 32), Ports: [state.Transports]fastpath.PortRange{some, some, some}, Own: true},
	}
	for transport := range s.Lifetimes {
		for status := range s.Lifetimes[transport] {
			s.Lifetimes[transport][status] = time.Hour
		}
	}
	codec.Prefixes = w.prefix
	for _, f := range change {
		f(&s, &codec)
	}
	pool := []state.PoolAddress{{Address: poolAddr.As4()}, {Address: ownAddr.As4()}}
	for transport := range state.Transports {
		pool[0].Ports = append(pool[0].Ports, state.PortRange{Transport: transport, First: all.First, Last: all.Last})
		pool[1].Ports = append(pool[1].Ports, state.PortRange{Transport: transport, First: some.First, Last: some.Last})
	}
	var err error
	if err = w.table.SetPool(pool); err != nil {
		t.Fatal(err)
	}
	if w.trans, err = translate.New(codec); err != nil {
		t.Fatal(err)
	}
	if err = w.fast.Set(s); err != nil {
		t.Fatal(err)
	}
	w.setting = s
}

// build makes devices, routes and neighbours in the thread's namespace.
func (h *natHost) build() error {
	for _, p := range h.ports {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.MTU = p.name, p.mac, p.mtu
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: p.name + "p"}); err != nil {
			return fmt.Errorf("cannot make %s: %w", p.name, err)
		}
		for _, name := range []string{p.name, p.name + "p"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
			if name != p.name {
				continue
			}
			p.index = link.Attrs().Index
			for _, a := range p.addrs {
				addr, err := netlink.ParseAddr(a)
				if err != nil {
					return err
				}
				addr.Flags = 0x02 // IFA_F_NODAD
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
	for _, r := range natWays {
		to, err := netlink.ParseIPNet(r.to)
		if err != nil {
			return err
		}
		at := h.ports[r.port].index
		n := netlink.Neigh{LinkIndex: at, IP: net.ParseIP(r.gateway), HardwareAddr: r.mac, State: netlink.NUD_PERMANENT}
		if err := netlink.NeighSet(&n); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(r.gateway), LinkIndex: at}); err != nil {
			return fmt.Errorf("cannot route %s: %w", r.to, err)
		}
	}
	return nil
}

// bind makes a binding, if it is not there, and a session of it.
func (w *natWorld) bind(t testing.TB, in state.Inside, out state.Outside, f state.Fresh) state.Session {
	t.Helper()
	var b state.Binding
	if !w.table.FindBinding6(&in, &b) {
		if o := w.table.NewStatic(in, out, &b); !o.OK() {
			t.Fatalf("binding of %v to %v: %s", in, out, o)
		}
	}
	f.Stamp = state.Stamp(fastpath.Monotonic())
	var s state.Session
	if o := w.table.NewSession(&b, f, &s); o != state.Made && o != state.Found {
		t.Fatalf("session with %v: %s", f.Peer, o)
	}
	return s
}

// flow is a session as a test knows it.
type flow struct {
	transport  state.Transport
	client     netip.Addr // X'
	pool, peer netip.Addr // T, Z
	prefix     int        // of pool6
	poolPort   uint16     // t
}

// open makes the session of a flow.
func (w *natWorld) open(t testing.TB, f flow) {
	t.Helper()
	fresh := state.Fresh{Peer: f.peer.As4(), PeerPort: serverPort, Prefix: uint8(f.prefix), Status: state.Opened}
	switch f.transport {
	case state.TCP:
		fresh.Status = state.Established
	case state.ICMP:
		fresh.PeerPort = 0
	}
	w.bind(t, state.Inside{Client: f.client.As16(), Port: clientPort, Transport: f.transport},
		state.Outside{Pool: f.pool.As4(), Port: f.poolPort, Transport: f.transport}, fresh)
}

// peer6 is the IPv6 form of the flow's Z.
func (w *natWorld) peer6(f flow) netip.Addr { return w.prefix[f.prefix].Embed(f.peer) }

// to4 and to6 are what a packet of the flow becomes.
func (w *natWorld) to4(f flow) translate.Endpoints {
	return translate.Endpoints{Src: f.pool, Dst: f.peer, Ports: true, SrcPort: f.poolPort, DstPort: serverPort}
}

func (w *natWorld) to6(f flow) translate.Endpoints {
	e := translate.Endpoints{Src: w.peer6(f), Dst: f.client, Ports: true, SrcPort: serverPort, DstPort: clientPort}
	if f.transport == state.ICMP {
		e.SrcPort = clientPort
	}
	return e
}
