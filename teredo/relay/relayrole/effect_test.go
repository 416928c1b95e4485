// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// written are the settings of a section with these lines.
func written(t *testing.T, lines string) Settings {
	t.Helper()
	return *configtest.One(t, Role.Section, "[announce]\nmethod = \"route\"\n[[teredo_relay]]\n"+lines).(*Settings)
}

// bench is the engine of a relay of lines of a file, in virtual time.
type bench struct {
	*relay.Relay
	t   *testing.T
	now time.Time
	out packet.Batch
}

func benchOf(t *testing.T, lines string) *bench {
	t.Helper()
	cfg := written(t, lines)
	b := &bench{t: t, now: time.Unix(1_700_000_000, 0)}
	var err error
	b.Relay, err = relay.New(engineConfig(&cfg, &local{
		own: []netip.Addr{netip.MustParseAddr("203.0.113.3")}, global: netip.MustParseAddr("2001:db8::beef"), port: 3545,
	}), b.now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// teredoClient is a client of a server.
type teredoClient struct {
	at netip.AddrPort
	ip netip.Addr
}

func clientOf(server, at string) teredoClient {
	mapped := netip.MustParseAddrPort(at)
	return teredoClient{mapped, teredo.Addr{Prefix: teredo.Prefix, Server: netip.MustParseAddr(server), Mapped: mapped}.IP()}
}

var (
	sixHost = netip.MustParseAddr("2001:db8::1")
	someone = clientOf("198.51.100.1", "203.0.113.7:40000")
	another = clientOf("198.51.100.2", "203.0.113.9:41000")
)

// ip and udp hand a packet in, and return how many come out.
func (b *bench) ip(p []byte) int {
	b.out.Reset()
	b.HandleIP(bytes.Clone(p), b.now, &b.out)
	return len(b.out.UDP)
}

func (b *bench) udp(from teredoClient, p []byte) int {
	b.out.Reset()
	b.HandleUDP(from.at, bytes.Clone(p), b.now, &b.out)
	return len(b.out.IP)
}

// data is a packet with so many octets of data.
func data(src, dst netip.Addr, size int) []byte {
	return append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, size, src, dst), make([]byte, size)...)
}

// source is that of the packet in the only datagram that came out.
func (b *bench) source() netip.Addr {
	b.t.Helper()
	if len(b.out.UDP) == 0 {
		b.t.Fatal("nothing came out")
	}
	p, err := teredo.Parse(b.out.UDP[0].Payload)
	if err != nil {
		b.t.Fatal(err)
	}
	return p.IPv6.Src()
}

// trust has the host send a packet and the client answer the bubble, and returns how many
// packets that waited for that come out.
func (b *bench) trust(p teredoClient) int {
	b.t.Helper()
	b.ip(data(sixHost, p.ip, 8))
	b.udp(p, teredo.AppendBubble(nil, p.ip, b.source()))
	return len(b.out.UDP)
}

// wants compares a count.
func (b *bench) wants(what string, got, want int) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%d %s, want %d", got, what, want)
	}
}

// bind has a client name the relay as its fallback, and prove where it is.
func (b *bench) bind(p teredoClient) {
	b.t.Helper()
	step := func(dst netip.Addr) {
		trailers := teredo.Trailers{HasNonce: true, Nonce: 0x11223344}
		b.udp(p, trailers.AppendTo(teredo.AppendBubble(nil, p.ip, dst)))
	}
	step(teredo.AllRouters)
	step(b.source())
	step(b.source())
}

// TestKeysOfPackets sees which packets a relay sends, and where.
func TestKeysOfPackets(t *testing.T) {
	for _, tt := range []struct {
		key, lines string
		play       func(b *bench)
	}{
		{configtest.InEffect(t, "teredo_relay", "prefixes"), `prefixes = ["2400:db8::/32"]`, func(b *bench) {
			p := teredo.Addr{Prefix: netip.MustParsePrefix("2400:db8::/32"), Server: netip.MustParseAddr("198.51.100.1"), Mapped: someone.at}.IP()
			b.wants("bubbles", b.ip(data(sixHost, p, 8)), 1)
		}},
		{configtest.InEffect(t, "teredo_relay", "serve"), `serve = ["2001:db8:5::/48"]`, func(b *bench) {
			b.trust(someone)
			b.wants("delivered", b.udp(someone, data(someone.ip, sixHost, 8)), 0)
			b.wants("delivered", b.udp(someone, data(someone.ip, netip.MustParseAddr("2001:db8:5::1"), 8)), 1)
		}},
		{configtest.InEffect(t, "teredo_relay", "mode"), `mode = "host"`, func(b *bench) {
			b.wants("of a stranger delivered", b.udp(someone, data(someone.ip, sixHost, 8)), 1)
		}},
		{configtest.InEffect(t, "teredo_relay", "address"), `address = "2001:db8::77"`, func(b *bench) {
			p := data(sixHost, someone.ip, 8)
			p[7] = 1
			b.ip(p)
			if len(b.out.IP) != 1 || packet.IPv6(b.out.IP[0]).Src() != netip.MustParseAddr("2001:db8::77") {
				b.t.Errorf("out comes %x", b.out.IP)
			}
		}},
		{configtest.InEffect(t, "teredo_relay", "max_peers"), `max_peers = 4`, func(b *bench) {
			for i := range byte(10) {
				p := clientOf("198.51.100.1", netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, 100 + i}), 40000).String())
				if b.ip(data(sixHost, p.ip, 8)) > 0 {
					b.udp(p, teredo.AppendBubble(nil, p.ip, b.source()))
				}
			}
			b.wants("peers", b.Sizes().Trusted, 4)
		}},
		{configtest.InEffect(t, "teredo_relay", "peer_timeout"), `peer_timeout = "60s"`, func(b *bench) {
			b.trust(someone)
			b.now = b.now.Add(45 * time.Second)
			b.ip(data(sixHost, someone.ip, 8))
			if b.source() != sixHost {
				b.t.Error("there is a bubble first")
			}
		}},
		{configtest.InEffect(t, "teredo_relay", "queue_packets"), `queue_packets = 2`, func(b *bench) {
			b.ip(data(sixHost, someone.ip, 8))
			to := b.source()
			for range 4 {
				b.ip(data(sixHost, someone.ip, 8))
			}
			b.udp(someone, teredo.AppendBubble(nil, someone.ip, to))
			b.wants("waited", len(b.out.UDP), 2)
		}},
		{configtest.InEffect(t, "teredo_relay", "queue_bytes"), `queue_bytes = 1400`, func(b *bench) {
			b.ip(data(sixHost, someone.ip, 1000))
			to := b.source()
			b.ip(data(sixHost, someone.ip, 1000))
			b.udp(someone, teredo.AppendBubble(nil, someone.ip, to))
			b.wants("waited", len(b.out.UDP), 1)
		}},
		{configtest.InEffect(t, "teredo_relay", "queue_total_bytes"), "queue_bytes = 1400\nqueue_total_bytes = 1400", func(b *bench) {
			b.ip(data(sixHost, someone.ip, 1000))
			b.ip(data(sixHost, another.ip, 1000))
			b.wants("bytes wait", b.Sizes().QueuedBytes, 1040)
		}},
		{configtest.InEffect(t, "teredo_relay", "bubble_rate"), `bubble_rate = 2`, func(b *bench) {
			sent := 0
			for i := range byte(10) {
				server := netip.AddrFrom4([4]byte{198, 51, 100, 1 + i}).String()
				sent += b.ip(data(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 7: i}), clientOf(server, "203.0.113.7:40000").ip, 8))
			}
			b.wants("bubbles", sent, 2)
		}},
		{configtest.InEffect(t, "teredo_relay", "icmp_rate"), `icmp_rate = 1`, func(b *bench) {
			p, errors := data(sixHost, someone.ip, 8), 0
			p[7] = 1
			for range 10 {
				b.ip(p)
				errors += len(b.out.IP)
			}
			b.wants("errors", errors, 1)
		}},
		{configtest.InEffect(t, "teredo_relay", "behind_nat"), `behind_nat = true`, func(b *bench) {
			b.wants("bubbles", b.ip(data(sixHost, someone.ip, 8)), 2)
		}},
		{configtest.InEffect(t, "teredo_relay", "echo_through_server"), `echo_through_server = false`, func(b *bench) {
			reply := packet.AppendICMPv6(nil, sixHost, someone.ip, 64, packet.ICMPv6EchoReply, 0, make([]byte, 4), make([]byte, teredo.EchoNonceLen))
			b.wants("datagrams", b.ip(reply), 1)
		}},
		{configtest.InEffect(t, "teredo_relay", "allow_private"), `allow_private = ["10.0.0.0/8"]`, func(b *bench) {
			b.wants("bubbles", b.ip(data(sixHost, clientOf("10.0.0.1", "10.0.0.7:40000").ip, 8)), 1)
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(benchOf(t, tt.lines)) })
	}
}

// TestKeysOfCarrying sees how many of ten packets from client to client are carried.
func TestKeysOfCarrying(t *testing.T) {
	for _, tt := range []struct {
		key, lines string
		want       int
	}{
		{configtest.InEffect(t, "teredo_relay", "carry_clients"), "carry_clients = true", 10},
		{configtest.InEffect(t, "teredo_relay", "carry_rate"), "carry_clients = true\ncarry_rate = 3", 3},
		{configtest.InEffect(t, "teredo_relay", "carry_client_rate"), "carry_clients = true\ncarry_client_rate = 4", 4},
	} {
		t.Run(tt.key, func(t *testing.T) {
			b := benchOf(t, tt.lines)
			b.bind(someone)
			b.bind(another)
			carried := 0
			for range 10 {
				b.udp(someone, data(someone.ip, another.ip, 8))
				carried += len(b.out.UDP)
			}
			b.wants("carried", carried, tt.want)
		})
	}
}

// TestKeysOnTheHost sees the sockets, the device and its routes.
func TestKeysOnTheHost(t *testing.T) {
	configtest.InEffect(t, "teredo_relay", "name", "bind", "interface", "mtu", "route", "workers", "announce")
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error { return teredotest.SetUp("lo", "203.0.113.3/32") })
	r, err := New(written(t, `
name = "house"
bind = "203.0.113.3:3600"
interface = "d0"
mtu = 1400
route = false
workers = 3
announce = true
fast_path = "off"
keep_state = false
max_peers = 1000
`), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, ns, r)
	if r.Name() != "house" || len(r.conns) != 3 || r.conns[0].LocalAddr() != netip.MustParseAddrPort("203.0.113.3:3600") || len(r.AnnouncedPrefixes()) != 1 {
		t.Errorf("%s has %d sockets at %s and announces %v", r.Name(), len(r.conns), r.conns[0].LocalAddr(), r.AnnouncedPrefixes())
	}
	ns.Do(t, func() error {
		d0, err := netlink.LinkByName("d0")
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(d0, netlink.FAMILY_V6)
		for _, to := range routes {
			if to.Dst.String() == teredo.Prefix.String() {
				t.Errorf("the route is %s", to)
			}
		}
		if mtu := d0.Attrs().MTU; mtu != 1400 {
			t.Errorf("the MTU is %d", mtu)
		}
		return err
	})
}
