// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnbpf"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// The host of a GGSN: a device towards SGSNs, one towards the network, a narrow one, and its TUN device.
var (
	own       = netip.MustParseAddr("192.0.2.1")
	node      = netip.MustParseAddr("198.51.100.7") // an SGSN
	farNode   = netip.MustParseAddr("198.51.101.7") // behind a link of 1400
	stranger  = netip.MustParseAddr("198.51.100.8") // another
	terminal4 = netip.MustParseAddr("10.45.0.9")    // a terminal
	terminal6 = netip.MustParseAddr("2001:db8:45:9::7")
	host4     = netip.MustParseAddr("203.0.113.80") // somebody in the network
	host6     = netip.MustParseAddr("2001:db8:1::80")
	slim4     = netip.MustParseAddr("203.0.114.80") // behind a link of 1400
	slim6     = netip.MustParseAddr("2001:db8:2::80")
	lost4     = netip.MustParseAddr("203.0.115.80") // no route
	lost6     = netip.MustParseAddr("2001:db8:3::80")
)

const (
	teid     = 0x01020304 // ours
	nodeTEID = 0xa1a2a3a4
)

type port struct {
	name  string
	mac   net.HardwareAddr
	mtu   int
	addrs []string
	index int
}

func mac(n byte) net.HardwareAddr { return net.HardwareAddr{0x02, 0, 0x5e, 0, 0x30, n} }

// way is a route of the host.
type way struct {
	to, gateway string
	mac         net.HardwareAddr
	port        int
}

var ways = []way{
	{"198.51.100.0/24", "192.0.2.2", mac(101), 0},
	{"198.51.101.0/24", "192.0.2.130", mac(104), 2},
	{"203.0.113.0/24", "192.0.2.66", mac(102), 1},
	{"2001:db8:1::/48", "2001:db8:f:1::2", mac(103), 1},
	{"203.0.114.0/24", "192.0.2.130", mac(104), 2},
	{"2001:db8:2::/48", "2001:db8:f:2::2", mac(105), 2},
}

// pools are where terminals have their addresses; the last ones no route leads to.
var pools = []netip.Prefix{
	netip.MustParsePrefix("10.45.0.0/16"), netip.MustParsePrefix("2001:db8:45::/48"),
	netip.MustParsePrefix("203.0.113.128/25"), netip.MustParsePrefix("2001:db8:1:8000::/49"),
}

// world is the host with programs and one context, whose record the test writes.
type world struct {
	ns      *testutil.Netns
	ports   []*port
	fast    *ggsnbpf.Path
	shared  *ggsn.Shared
	context *ggsn.SharedContext
	epoch   time.Time
	counts  runtest.Counts
}

func newWorld(t testing.TB, change ...func(*ggsnbpf.Settings)) *world {
	t.Helper()
	w := &world{ns: testutil.NewNetns(t), epoch: time.Now().Add(-time.Minute), ports: []*port{
		{name: "gn", mac: mac(1), mtu: 1500, addrs: []string{"192.0.2.1/26"}},
		{name: "gi", mac: mac(2), mtu: 1500, addrs: []string{"192.0.2.65/26", "2001:db8:f:1::1/64"}},
		{name: "slim", mac: mac(3), mtu: 1400, addrs: []string{"192.0.2.129/26", "2001:db8:f:2::1/64"}},
		{name: "tun", mac: mac(4), mtu: 1500},
	}}
	w.ns.Do(t, w.build)
	var err error
	if w.fast, err = ggsnbpf.Load(ggsnbpf.Config{Name: "test", Contexts: 100}); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := w.fast.Close(); err != nil {
			t.Error(err)
		}
	})
	s := ggsnbpf.Settings{Address: own, Tunnel: w.ports[3].index}
	for _, f := range change {
		f(&s)
	}
	if err := w.fast.Set(s); err != nil {
		t.Fatal(err)
	}
	for _, p := range w.ports[:3] {
		if err := w.fast.SetDevice(fastpath.Device{Index: p.index, MAC: p.mac, Frames: true, Packets: true, MTU: p.mtu}); err != nil {
			t.Fatal(err)
		}
	}
	w.arriveBy(t, false)
	w.fast.Beat(time.Hour)
	if err := w.fast.SetInside(pools); err != nil {
		t.Fatal(err)
	}
	w.shared = w.fast.Shared(w.epoch)
	w.context = &w.shared.Contexts[3]
	*w.context = ggsn.SharedContext{
		State: 1, TEID: wire(teid), Node: fastpath.IPv4Word(node), NodeTEID: wire(nodeTEID),
		Address: fastpath.IPv4Word(terminal4), Prefix: prefixWord(terminal6), Flags: ggsn.SharedIPv4 | ggsn.SharedIPv6,
		MTU: 1450, Class: 46 << 2, Left: ^uint64(0),
	}
	if !w.shared.Index.Enter(3, w.context) {
		t.Fatal("there is no room for one context")
	}
	w.counted(t)
	return w
}

// arriveBy has test runs of XDP, which come in by the loopback device, come by one whose local senders may leave
// checksums to hardware, or not.
func (w *world) arriveBy(t testing.TB, partial bool) {
	t.Helper()
	if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: w.ports[0].mac, Partial: partial}); err != nil {
		t.Fatal(err)
	}
}

// wire is a number as it is loaded from a packet.
func wire(n uint32) uint32 {
	return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, n))
}

func prefixWord(a netip.Addr) uint64 {
	b := a.As16()
	return binary.NativeEndian.Uint64(b[:])
}

// build makes devices, routes and neighbours in the thread's namespace.
func (w *world) build() error {
	for _, p := range w.ports {
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
			if name == p.name {
				p.index = link.Attrs().Index
			}
		}
		for _, a := range p.addrs {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			addr.Flags = 0x02 // IFA_F_NODAD
			link, err := netlink.LinkByIndex(p.index)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"ipv6/conf/all", "ipv4/conf/tun"} {
		if err := os.WriteFile("/proc/sys/net/"+name+"/forwarding", []byte("1"), 0); err != nil {
			return err
		}
	}
	return w.route()
}

func (w *world) route() error {
	for _, r := range ways {
		to, err := netlink.ParseIPNet(r.to)
		if err != nil {
			return err
		}
		at := w.ports[r.port].index
		n := netlink.Neigh{LinkIndex: at, IP: net.ParseIP(r.gateway), HardwareAddr: r.mac, State: netlink.NUD_PERMANENT}
		if err := netlink.NeighSet(&n); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(r.gateway), LinkIndex: at}); err != nil {
			return fmt.Errorf("cannot route %s: %w", r.to, err)
		}
	}
	for _, pool := range pools[:2] {
		to, err := netlink.ParseIPNet(pool.String())
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, LinkIndex: w.ports[3].index}); err != nil {
			return fmt.Errorf("cannot route %s: %w", pool, err)
		}
	}
	return nil
}

// run gives a packet to the program of a hook, and returns what leaves.
func (w *world) run(t testing.TB, at runtest.Hook, ip []byte) (verdict fastpath.Verdict, out []byte) {
	t.Helper()
	w.ns.Do(t, func() error {
		r, err := runtest.NewRunner(at, w.fast.Programs(), w.ports[0].index, 4096).Run(w.frame(ip))
		verdict, out = r.Verdict, r.Out
		return err
	})
	return verdict, out
}

// frame puts an Ethernet header for the host in front of a packet.
func (w *world) frame(ip []byte) []byte {
	f := append(append([]byte{}, w.ports[0].mac...), mac(200)...)
	kind := uint16(0x86dd)
	if ip[0]>>4 == 4 {
		kind = 0x0800
	}
	return append(binary.BigEndian.AppendUint16(f, kind), ip...)
}

// counted returns the packets that programs have counted since the last call, by reason.
func (w *world) counted(t testing.TB) map[string]uint64 {
	t.Helper()
	news, err := w.counts.Packets(w.fast)
	if err != nil {
		t.Fatal(err)
	}
	return news
}

// inside makes a packet of a transport with so many octets behind the IP header, and right checksums.
func inside(from, to netip.Addr, proto byte, n int) []byte {
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(i*7 + 3)
	}
	if n >= 8 {
		switch proto {
		case packet.ProtoUDP:
			binary.BigEndian.PutUint16(body[4:], uint16(n))
		case packet.ProtoTCP:
			copy(body[min(n, 12):], []byte{5 << 4, 0x10})
		case packet.ProtoICMPv6, packet.ProtoICMPv4:
			body[0], body[1] = 128, 0
		}
	}
	if from.Is4() {
		return seal(packet4(from, to, proto, body))
	}
	return seal(append(packet.AppendIPv6Header(nil, proto, 64, n, from, to), body...))
}

func packet4(from, to netip.Addr, proto byte, body []byte) []byte {
	ip := []byte{0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, proto, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(body)))
	ip = append(append(ip, from.AsSlice()...), to.AsSlice()...)
	return append(ip, body...)
}

// checksum is that of octets with a sum before them.
func checksum(sum uint32, b []byte) uint16 {
	for i, c := range b {
		sum += uint32(c) << (8 * (1 - i&1))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// seal makes the checksums of a packet right.
func seal(ip []byte) []byte {
	head, proto, ends := 40, ip[6], []byte(nil)
	if ip[0]>>4 == 4 {
		head, proto = 20, ip[9]
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], checksum(0, ip[:20]))
		ends = ip[12:20]
	} else {
		ends = ip[8:40]
	}
	body := ip[head:]
	at, pseudo := map[byte]int{packet.ProtoTCP: 16, packet.ProtoUDP: 6, packet.ProtoICMPv6: 2, packet.ProtoICMPv4: 2}[proto], uint32(0)
	if at == 0 || len(body) < at+2 {
		return ip
	}
	if proto != packet.ProtoICMPv4 {
		pseudo = uint32(^checksum(uint32(proto)+uint32(len(body)), ends))
	}
	binary.BigEndian.PutUint16(body[at:], 0)
	c := checksum(pseudo, body)
	if c == 0 && proto == packet.ProtoUDP {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(body[at:], c)
	return ip
}

// gpdu puts a packet into a G-PDU from a node; sequence asks for a header with a sequence number.
func gpdu(from netip.Addr, to uint32, sequence bool, ip []byte) []byte {
	g := []byte{0x30, 255, 0, 0}
	g = binary.BigEndian.AppendUint32(g, to)
	if sequence {
		g[0] |= 2
		g = append(g, 0x12, 0x34, 0, 0)
	}
	g = append(g, ip...)
	binary.BigEndian.PutUint16(g[2:], uint16(len(g)-8))
	return datagram(from, own, g)
}

// datagram is one of UDP over IPv4, between ports 2152.
func datagram(from, to netip.Addr, payload []byte) []byte {
	u := []byte{2152 >> 8, 2152 & 0xff, 2152 >> 8, 2152 & 0xff, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(payload)))
	return seal(packet4(from, to, packet.ProtoUDP, append(u, payload...)))
}

// setECN writes the ECN field of a packet.
func setECN(ip []byte, ecn byte) {
	if ip[0]>>4 == 6 {
		ip[1] = ip[1]&0xcf | ecn<<4
		return
	}
	ip[1] = ip[1]&^3 | ecn
	seal(ip)
}
