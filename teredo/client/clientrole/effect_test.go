// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/server/serverrole"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// TestKeysOfServers sees what a client sends to its server, and when.
func TestKeysOfServers(t *testing.T) {
	for _, tt := range []struct {
		key, lines string
		play       func(b *bench)
	}{
		{configtest.InEffect(t, "teredo_client", "prefixes"), `prefixes = ["2400:db8::/32"]`, func(b *bench) {
			if a := b.qualified().Snapshot().Address; !netip.MustParsePrefix("2400:db8::/32").Contains(a) {
				b.t.Errorf("the address is %s", a)
			}
		}},
		{configtest.InEffect(t, "teredo_client", "qualification_timeout"), "qualification_timeout = \"10s\"\nprobe_after = \"0s\"", func(b *bench) {
			b.deaf = true
			b.start()
			b.pass(9 * time.Second)
			b.wants("solicitations", b.asked, 1)
		}},
		{configtest.InEffect(t, "teredo_client", "qualification_attempts"), "qualification_attempts = 5\nprobe_after = \"0s\"", func(b *bench) {
			b.deaf = true
			b.start()
			for range 100 {
				if b.pass(time.Second); b.silent > 0 {
					break
				}
			}
			b.wants("solicitations", b.asked, 5)
		}},
		{configtest.InEffect(t, "teredo_client", "refresh_interval"), `refresh_interval = "2m"`, func(b *bench) {
			b.qualified().pass(time.Minute)
			b.wants("solicitations", b.asked, 0)
		}},
		{configtest.InEffect(t, "teredo_client", "probe_after"), `probe_after = "0s"`, func(b *bench) {
			b.qualified().say(benchHost, 8)
			b.pass(5 * time.Second)
			b.say(benchHost, 8)
			b.pass(5 * time.Second)
			b.wants("solicitations", b.asked, 0)
		}},
		{configtest.InEffect(t, "teredo_client", "refresh_search"), `refresh_search = true`, func(b *bench) {
			b.qualified().pass(2 * time.Minute)
			if b.sockets == 0 {
				b.t.Error("there is no second port")
			}
		}},
		{configtest.InEffect(t, "teredo_client", "local_discovery"), `local_discovery = true`, func(b *bench) {
			b.do(func(now time.Time, out *client.Out) {
				b.SubnetChanged(netip.MustParsePrefix("192.168.1.0/24"), now, out)
			})
			b.qualified().pass(20 * time.Minute)
			if b.to(netip.AddrPortFrom(teredo.DiscoveryAddress, teredo.Port), nil) == 0 {
				b.t.Error("nothing is sent to the link")
			}
		}},
		{configtest.InEffect(t, "teredo_client", "fallback"), `fallback = "203.0.113.3:3545"`, func(b *bench) {
			b.qualified().say(benchPeer, 8)
			b.pass(20 * time.Second)
			if b.to(benchRelay, nil) == 0 {
				b.t.Error("nothing is sent to the relay")
			}
		}},
		{configtest.InEffect(t, "teredo_client", "random_ports"), "random_ports = 0\nsecondary = \"203.0.113.9\"", func(b *bench) {
			b.symmetric = true
			b.qualified().say(benchPeer, 8)
			b.pass(10 * time.Second)
			b.wants("sockets", b.sockets, 0)
		}},
		{configtest.InEffect(t, "teredo_client", "secondary"), `secondary = "203.0.113.9"`, func(b *bench) {
			b.symmetric = true
			if nat := b.qualified().Snapshot().NAT; !nat.Symmetric() {
				b.t.Errorf("the NAT is taken for %s", nat)
			}
		}},
		{"random ports by default", "secondary = \"203.0.113.9\"", func(b *bench) {
			b.symmetric = true
			b.qualified().say(benchPeer, 8)
			b.pass(10 * time.Second)
			b.wants("sockets", b.sockets, 1)
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(benchOf(t, tt.lines)) })
	}
}

// TestKeysOfPeers sees what a client does with packets from and to peers.
func TestKeysOfPeers(t *testing.T) {
	peerServer := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), teredo.Port)
	throughServer := func(b *bench, alternate string) {
		t := teredo.Trailers{HasNonce: true, Nonce: 7, NumAlt: 1}
		t.Alternates[0] = netip.MustParseAddrPort(alternate)
		bubble := t.AppendTo(teredo.AppendBubble(nil, benchPeer, b.Snapshot().Address))
		b.hear(netip.AddrPortFrom(benchServer[0], teredo.Port), append(teredo.AppendOrigin(nil, benchPeerAt), bubble...))
	}
	tellsAlternate := func(d packet.Datagram) bool {
		p, err := teredo.Parse(d.Payload)
		if err != nil {
			return false
		}
		t, err := teredo.ParseTrailers(p.Trailers)
		return err == nil && t.NumAlt > 0
	}
	for _, tt := range []struct {
		key, lines string
		play       func(b *bench)
	}{
		{configtest.InEffect(t, "teredo_client", "unsolicited"), `unsolicited = "allow"`, func(b *bench) {
			b.qualified().hear(benchRelay, append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, 8, benchHost, b.Snapshot().Address), make([]byte, 8)...))
			b.wants("packets", len(b.ip), 1)
		}},
		{configtest.InEffect(t, "teredo_client", "allow_private"), `allow_private = ["10.0.0.0/8"]`, func(b *bench) {
			b.qualified().say(clientOf("10.0.0.1", netip.MustParseAddrPort("10.0.0.7:41000")), 8)
			if b.to(netip.MustParseAddrPort("10.0.0.1:3544"), nil) == 0 {
				b.t.Error("its server is not asked")
			}
		}},
		{configtest.InEffect(t, "teredo_client", "max_peers"), `max_peers = 8`, func(b *bench) {
			b.qualified()
			for i := range byte(20) {
				b.say(clientOf("192.0.2.1", netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 100 + i}), 41000)), 8)
			}
			b.wants("peers", b.Snapshot().Peers, 2) // a quarter may be untrusted
		}},
		{configtest.InEffect(t, "teredo_client", "queue_packets"), `queue_packets = 2`, func(b *bench) {
			b.qualified()
			for range 5 {
				b.say(benchPeer, 600)
			}
			b.met()
			b.wants("waited", b.to(benchPeerAt, big), 2)
		}},
		{configtest.InEffect(t, "teredo_client", "queue_bytes"), `queue_bytes = 1300`, func(b *bench) {
			b.qualified()
			for range 5 {
				b.say(benchPeer, 1000)
			}
			b.met()
			b.wants("waited", b.to(benchPeerAt, big), 1)
		}},
		{configtest.InEffect(t, "teredo_client", "queue_total_bytes"), "queue_bytes = 1300\nqueue_total_bytes = 1300", func(b *bench) {
			b.qualified().say(benchPeer, 1000)
			b.say(clientOf("192.0.2.1", netip.MustParseAddrPort("192.0.2.77:41000")), 1000)
			if n := b.Snapshot().Queued; n > 1300 {
				b.t.Errorf("%d bytes wait", n)
			}
		}},
		{"an alternate address by default", "", func(b *bench) {
			b.qualified().say(benchPeer, 8)
			b.wants("tell the local address", min(b.to(peerServer, tellsAlternate), 1), 1)
		}},
		{configtest.InEffect(t, "teredo_client", "hairpin"), `hairpin = false`, func(b *bench) {
			b.qualified().say(benchPeer, 8)
			b.wants("tell the local address", b.to(peerServer, tellsAlternate), 0)
		}},
		{configtest.InEffect(t, "teredo_client", "hairpin_allow"), `hairpin_allow = ["10.1.0.0/16"]`, func(b *bench) {
			b.qualified().say(benchPeer, 8)
			throughServer(b, "10.1.2.3:3550")
			if b.to(netip.MustParseAddrPort("10.1.2.3:3550"), nil) == 0 {
				b.t.Error("the local address is not tried")
			}
		}},
		{configtest.InEffect(t, "teredo_client", "load_reduction"), `load_reduction = false`, func(b *bench) {
			b.qualified().say(benchPeer, 8)
			b.met()
			b.pass(40 * time.Second)
			b.sent = nil
			b.say(benchPeer, 8)
			if b.to(peerServer, nil) == 0 {
				b.t.Error("its server is not asked")
			}
		}},
		{configtest.InEffect(t, "teredo_client", "opening_ttl"), `opening_ttl = 5`, func(b *bench) {
			b.qualified().say(benchPeer, 8)
			if b.to(benchPeerAt, func(d packet.Datagram) bool { return d.TTL == 5 }) == 0 {
				b.t.Errorf("sent %+v", b.sent)
			}
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(benchOf(t, tt.lines)) })
	}
}

// TestKeysOnTheHost sees the socket, the device and its routes.
func TestKeysOnTheHost(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "name", "server", "port", "bind", "interface", "route_metric")
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		return teredotest.SetUp("lo", "203.0.113.1/32", "198.51.100.2/32", "198.51.100.3/32")
	})
	cfg := *configtest.One(t, serverrole.Role.Section, "[[teredo_server]]\naddress = \"203.0.113.1\"\n").(*serverrole.Settings)
	s, err := serverrole.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, ns, s)
	c, err := NewClient(settingsOf(t, `
name = "house"
port = 3601
bind = "198.51.100.3"
interface = "d0"
route_metric = 777
fast_path = "off"
`), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, ns, c)
	st := await(t, c, "qualified", qualified)
	if c.Name() != "house" || st.Mapped != netip.MustParseAddrPort("198.51.100.3:3601") {
		t.Errorf("%s: %+v", c.Name(), st)
	}
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		var metrics []int
		ns.Do(t, func() error {
			d0, err := netlink.LinkByName("d0")
			if err != nil {
				return err
			}
			routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{LinkIndex: d0.Attrs().Index}, netlink.RT_FILTER_OIF)
			for _, r := range routes {
				if ones, _ := r.Dst.Mask.Size(); ones == 0 {
					metrics = append(metrics, r.Priority)
				}
			}
			return err
		})
		if len(metrics) == 1 && metrics[0] == 777 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("default routes have the metrics %v", metrics)
		}
	}
}

// TestHookTime has a program run for longer than it may.
func TestHookTime(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "on_change_timeout")
	var log strings.Builder
	c, err := NewClient(settingsOf(t, `
on_change = ["/bin/sleep", "5"]
on_change_timeout = "100ms"
`), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.hook.call(t.Context(), event.AddressChange{})
	if !strings.Contains(log.String(), "killed") {
		t.Errorf("the log is %q", log.String())
	}
}
