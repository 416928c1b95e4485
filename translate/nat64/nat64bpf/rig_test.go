// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// Addresses of the flows of tests.
var (
	flowPool6  = netip.MustParsePrefix("2001:db8:64::/96")
	flowPool4  = netip.MustParseAddr("203.0.113.1")
	flowHost   = netip.MustParseAddr("2001:db8:1::7")
	flowPeer   = netip.MustParseAddr("198.51.100.9")
	flowMAC    = net.HardwareAddr{2, 0, 0x5e, 0, 0x20, 1}
	flowFarMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

// someSizes are those of a small NAT64.
var someSizes = state.Sizes{Sessions: 4096, Subscribers: 64, Addresses: 4, BlockWords: 4, SubscriberLength: 64}

// flowRig is the programs of a NAT64 over a state that Go shares, in a namespace where
// routes lead everywhere. Programs get packets by test runs.
type flowRig struct {
	*Path
	testing.TB
	table  *state.Table
	ns     *testutil.Netns
	xdp    *ebpf.Program
	tunnel int
}

func newFlowRig(t testing.TB, z state.Sizes, change ...func(*Settings)) *flowRig {
	t.Helper()
	testutil.NeedRoot(t)
	r := &flowRig{TB: t, ns: testutil.NewNetns(t)}
	var err error
	if r.Path, err = Load(Config{Name: "test", Sizes: z}); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := r.Path.Close(); err != nil {
			t.Error(err)
		}
	})
	r.xdp = r.Programs().XDP
	r.ns.Do(t, func() (err error) {
		r.tunnel, err = r.route()
		return err
	})
	r.begin(z, change)
	return r
}

// renewed is the rig as it was made, but for settings, for a subtest: the kernel takes half a
// second to verify the programs of another one.
func (r *flowRig) renewed(t testing.TB, change ...func(*Settings)) *flowRig {
	t.Helper()
	again := *r
	again.TB = t
	for _, slab := range r.Memory() {
		clear(slab)
	}
	again.begin(r.config.Sizes, change)
	return &again
}

// begin lays a new state over the tables, and has the programs run.
func (r *flowRig) begin(z state.Sizes, change []func(*Settings)) {
	r.Helper()
	r.open(z)
	s := flowSettings()
	s.Tunnel = r.tunnel
	for _, f := range change {
		f(&s)
	}
	if err := r.Set(s); err != nil {
		r.Fatal(err)
	}
	r.Beat(time.Hour)
}

// open lays the state over the tables, with a pool of one address.
func (r *flowRig) open(z state.Sizes) {
	r.Helper()
	var seed [state.Seeds]uint64
	for i := range seed {
		seed[i] = rand.Uint64()
	}
	r.openSeeded(z, seed)
}

func (r *flowRig) openSeeded(z state.Sizes, seed [state.Seeds]uint64) {
	r.Helper()
	var err error
	if r.table, _, err = state.Open(z, r.Memory(), seed); err != nil {
		r.Fatal(err)
	}
	pool := state.PoolAddress{Address: flowPool4.As4()}
	for transport := range state.Transports {
		pool.Ports = append(pool.Ports, state.PortRange{Transport: transport, First: 1024, Last: 65535})
	}
	if err := r.table.SetPool([]state.PoolAddress{pool}); err != nil {
		r.Fatal(err)
	}
}

// flowSettings are those of a plain NAT64.
func flowSettings() Settings {
	s := Settings{
		Pool6:       []translatebpf.Prefix{{Prefix: flowPool6}},
		Pool4:       []Range{{Prefix: netip.PrefixFrom(flowPool4, 32)}},
		ExternalTCP: true,
	}
	for transport := range state.Transports {
		s.Pool4[0].Ports[transport] = PortRange{First: 1024, Last: 65535}
		for status := state.Opened; status < state.Statuses; status++ {
			s.Lifetimes[transport][status] = time.Hour
		}
	}
	return s
}

// route makes a device with a default route of each family, and one to be the tunnel.
func (r *flowRig) route() (tunnel int, err error) {
	link := func(name string, mac net.HardwareAddr) (*netlink.Veth, error) {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500, HardwareAddr: mac}, PeerName: name + "peer"}
		if err := netlink.LinkAdd(v); err != nil {
			return nil, err
		}
		return v, errors.Join(fastpathtest.Up(name), fastpathtest.Up(name+"peer"))
	}
	out, err := link("out", flowMAC)
	if err != nil {
		return 0, err
	}
	tun, err := link("tun", nil)
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"ipv6/conf/all", "ipv4/conf/all"} {
		if err := os.WriteFile("/proc/sys/net/"+name+"/forwarding", []byte("1"), 0); err != nil {
			return 0, err
		}
	}
	for _, way := range []struct{ own, gateway, to string }{
		{"192.0.2.3/24", "192.0.2.1", "0.0.0.0/0"}, {"2001:db8::1/64", "2001:db8::2", "::/0"},
	} {
		own, _ := netlink.ParseAddr(way.own)
		own.Flags = unix.IFA_F_NODAD
		_, to, _ := net.ParseCIDR(way.to)
		gateway := net.ParseIP(way.gateway)
		if err := errors.Join(
			netlink.AddrAdd(out, own),
			netlink.NeighSet(&netlink.Neigh{LinkIndex: out.Index, IP: gateway, HardwareAddr: flowFarMAC, State: netlink.NUD_PERMANENT}),
			netlink.RouteAdd(&netlink.Route{Dst: to, Gw: gateway, LinkIndex: out.Index}),
		); err != nil {
			return 0, err
		}
	}
	// Test runs come in by the loopback device.
	return tun.Index, errors.Join(
		r.SetDevice(fastpath.Device{Index: 1, MAC: flowMAC}), r.SetDevice(fastpath.Device{Index: out.Index, MAC: flowMAC, Frames: true, Packets: true}))
}

// client makes the client of an address, with a block of ports.
func (r *flowRig) client(host netip.Addr, limit uint32) (s state.Subscriber) {
	r.Helper()
	a := host.As16()
	if o := r.table.MakeSubscriber(&a, flowPool4.As4(), limit, &s); o != state.Made {
		r.Fatalf("no client: %s", o)
	}
	var b state.Block
	if o := r.table.Lease(&s, state.UDP, state.MaxBlocks, rand.Uint64(), &b); o != state.Made {
		r.Fatalf("no block: %s", o)
	}
	return s
}

// flowPacket is one packet of a flow.
type flowPacket struct {
	from4     bool // the IPv4 side sends it
	transport state.Transport
	host      netip.Addr
	peer      netip.Addr
	x, t, z   uint16 // x for one of the IPv6 side, t for one of the IPv4 side
	flags     byte   // of TCP
	reply     bool   // of ICMP
	pool6     netip.Prefix
}

func outward(transport state.Transport, x, z uint16) flowPacket {
	return flowPacket{transport: transport, host: flowHost, peer: flowPeer, x: x, z: z, flags: 2, pool6: flowPool6}
}

func inward(transport state.Transport, t, z uint16) flowPacket {
	return flowPacket{from4: true, transport: transport, peer: flowPeer, t: t, z: z, flags: 2}
}

func (p flowPacket) key6() state.Key6 {
	k := state.Key6{Client: p.host.As16(), Peer: p.peer.As4(), ClientPort: p.x, PeerPort: p.z, Transport: p.transport}
	if p.transport == state.ICMP {
		k.PeerPort = 0
	}
	return k
}

func (p flowPacket) inside() state.Inside {
	return state.Inside{Client: p.host.As16(), Port: p.x, Transport: p.transport}
}

func (p flowPacket) outside() state.Outside {
	return state.Outside{Pool: flowPool4.As4(), Port: p.t, Transport: p.transport}
}

// frame builds it, with eight bytes of payload and checksums that no one looks at.
func (p flowPacket) frame() []byte {
	var l4 []byte
	from, to := p.x, p.z
	if p.from4 {
		from, to = p.z, p.t
	}
	switch p.transport {
	case state.TCP:
		l4 = make([]byte, 28)
		l4[12], l4[13] = 5<<4, p.flags
		binary.BigEndian.PutUint16(l4[16:], 0x1234)
	case state.UDP:
		l4 = make([]byte, 16)
		binary.BigEndian.PutUint16(l4[4:], 16)
		binary.BigEndian.PutUint16(l4[6:], 0x1234)
	default:
		l4 = make([]byte, 16)
		l4[0] = 128
		id := p.x
		if p.reply {
			l4[0] = 129
		}
		if p.from4 {
			l4[0], id = 8, p.t
			if p.reply {
				l4[0] = 0
			}
		}
		binary.BigEndian.PutUint16(l4[2:], 0x1234)
		binary.BigEndian.PutUint16(l4[4:], id)
	}
	if p.transport != state.ICMP {
		binary.BigEndian.PutUint16(l4, from)
		binary.BigEndian.PutUint16(l4[2:], to)
	}
	frame := append([]byte(nil), flowMAC...)
	frame = append(frame, flowFarMAC...)
	if p.from4 {
		return append(append(frame, 8, 0), p.packet4(l4)...)
	}
	protocol := map[state.Transport]byte{state.TCP: packet.ProtoTCP, state.UDP: packet.ProtoUDP, state.ICMP: packet.ProtoICMPv6}[p.transport]
	to6 := p.pool6.Addr().As16()
	copy(to6[12:], p.peer.AsSlice())
	frame = packet.AppendIPv6Header(append(frame, 0x86, 0xdd), protocol, 64, len(l4), p.host, netip.AddrFrom16(to6))
	return append(frame, l4...)
}

func (p flowPacket) packet4(l4 []byte) []byte {
	ip := make([]byte, 20, 20+len(l4))
	ip[0], ip[8] = 0x45, 64
	ip[9] = map[state.Transport]byte{state.TCP: 6, state.UDP: 17, state.ICMP: 1}[p.transport]
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(l4)))
	binary.BigEndian.PutUint16(ip[6:], 0x4000)
	copy(ip[12:], p.peer.AsSlice())
	copy(ip[16:], flowPool4.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], ^packet.Fold(packet.Sum(0, ip)))
	return append(ip, l4...)
}

// counts returns how often each reason was met.
func (r *flowRig) counts() (counts [nat64ReasonREASON_COUNT]uint64) {
	r.Helper()
	list, err := r.Counters()
	if err != nil {
		r.Fatal(err)
	}
	for i, c := range list {
		counts[i] = c.Packets
	}
	return counts
}

// run has the program look at a packet so often, and returns its last word.
func (r *flowRig) run(p flowPacket, repeat uint32) (verdict uint32) {
	r.Helper()
	r.ns.Do(r, func() (err error) {
		verdict, err = r.xdp.Run(&ebpf.RunOptions{Data: p.frame(), DataOut: make([]byte, 256), Repeat: repeat})
		return err
	})
	return verdict
}

// send has the program look at a packet, and returns the reason that it was counted
// under.
func (r *flowRig) send(p flowPacket) Reason {
	r.Helper()
	before := r.counts()
	r.run(p, 1)
	after := r.counts()
	found := Reason(nat64ReasonREASON_COUNT)
	for i := range after {
		switch after[i] - before[i] {
		case 0:
		case 1:
			if found != Reason(nat64ReasonREASON_COUNT) {
				r.Fatalf("one packet was counted as %s and %s", found, Reason(i))
			}
			found = Reason(i)
		default:
			r.Fatalf("one packet was counted %d times as %s", after[i]-before[i], Reason(i))
		}
	}
	return found
}

// expect sends a packet and compares its reason.
func (r *flowRig) expect(p flowPacket, want Reason) {
	r.Helper()
	if got := r.send(p); got != want {
		r.Errorf("%+v: %s, want %s", p, got, want)
	}
}

// session returns the session of a packet of the IPv6 side, as Go finds it.
func (r *flowRig) session(p flowPacket) (s state.Session) {
	r.Helper()
	k := p.key6()
	if !r.table.Find6(&k, &s) {
		r.Fatalf("%+v: Go finds no session", p)
	}
	return s
}

// make makes the session of a packet of the IPv6 side in Go.
func (r *flowRig) make(p flowPacket, n state.Fresh) (b state.Binding, s state.Session) {
	r.Helper()
	host := p.host.As16()
	var c state.Subscriber
	if !r.table.FindSubscriber(&host, &c) {
		r.Fatal("the client is not known")
	}
	if o := r.table.NewBinding(&c, p.inside(), state.Wish{}, rand.Uint64(), &b); !o.OK() {
		r.Fatalf("no binding: %s", o)
	}
	n.Peer, n.PeerPort = p.peer.As4(), p.key6().PeerPort
	if o := r.table.NewSession(&b, n, &s); !o.OK() {
		r.Fatalf("no session: %s", o)
	}
	return b, s
}

// isStampOf reports whether a session has a stamp of an instant between start and now. The
// clock of programs is a tick behind.
func isStampOf(w state.Word, start uint32) bool {
	return w.Stamp()+1 >= start && w.Stamp() <= stampNow()
}

// stampNow is the stamp of this moment, or one less.
func stampNow() uint32 { return state.Stamp(fastpath.Monotonic()) }

// recordAt is one record of a slab.
func recordAt[R any](memory []byte, index uint32) *R {
	var r R
	return (*R)(unsafe.Pointer(&memory[uintptr(index)*unsafe.Sizeof(r)]))
}
