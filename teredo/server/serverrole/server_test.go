// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// rig is a running server between Teredo clients and an IPv6 host:
//
//	client 203.0.113.7 -- 203.0.113.1, .2 server 2001:db8::1 -- 2001:db8::2 host
type rig struct {
	server             *Server
	clientNS, serverNS *testutil.Netns
	client             *net.UDPConn     // at 203.0.113.7:40000
	host               *ipv6.PacketConn // receives ICMPv6
	stop               func() error
	log                strings.Builder // to be read after stop
}

var (
	serverPrimary   = netip.MustParseAddrPort("203.0.113.1:3544")
	serverSecondary = netip.MustParseAddrPort("203.0.113.2:3544")
	serverClient    = netip.MustParseAddrPort("203.0.113.7:40000")
	serverClientIP6 = teredo.Addr{Prefix: teredo.Prefix, Server: serverPrimary.Addr(), Mapped: serverClient}.IP()
	serverHost      = netip.MustParseAddr("2001:db8::2")
)

func rigSettings() Settings {
	cfg := defaults()
	cfg.Address, cfg.Secondary = serverPrimary.Addr(), serverSecondary.Addr()
	cfg.Advertise, cfg.AdvertiseSecondary = cfg.Address, cfg.Secondary
	return cfg
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{clientNS: testutil.NewNetns(t), serverNS: testutil.NewNetns(t)}
	hostNS := testutil.NewNetns(t)
	teredotest.Link(t, r.serverNS, r.clientNS, "v4", []string{"203.0.113.1/24", "203.0.113.2/24"}, "203.0.113.7/24")
	teredotest.Link(t, r.serverNS, hostNS, "v6", []string{"2001:db8::1/64"}, "2001:db8::2/64")

	r.clientNS.Do(t, func() (err error) {
		r.client, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(serverClient))
		return err
	})
	t.Cleanup(func() { r.client.Close() })
	hostNS.Do(t, func() error {
		conn, err := net.ListenPacket("ip6:ipv6-icmp", serverHost.String())
		if err != nil {
			return err
		}
		r.host = ipv6.NewPacketConn(conn)
		t.Cleanup(func() { conn.Close() })
		return r.host.SetControlMessage(ipv6.FlagHopLimit, true)
	})
	r.start(t)
	return r
}

// start runs the server in its namespace and waits until it serves.
func (r *rig) start(t *testing.T) {
	t.Helper()
	var err error
	if r.server, err = New(rigSettings(), slog.New(slog.NewTextHandler(&r.log, nil))); err != nil {
		t.Fatal(err)
	}
	r.stop = roletest.Start(t, r.serverNS, r.server).Stop
}

// ask sends a payload from the client and returns what comes back, and from where.
func (r *rig) ask(t *testing.T, to netip.AddrPort, payload []byte) (teredo.Packet, netip.AddrPort) {
	t.Helper()
	if _, err := r.client.WriteToUDPAddrPort(payload, to); err != nil {
		t.Fatal(err)
	}
	return teredotest.Receive(t, r.client)
}

func TestServerQualification(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name     string
		flags    teredo.Flags
		to, from netip.AddrPort
	}{
		{"primary answers", 0, serverPrimary, serverPrimary},
		{"secondary answers", 0, serverSecondary, serverSecondary},
		{"cone bit: the other answers", teredo.FlagCone, serverPrimary, serverSecondary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			link := teredo.LinkLocal(tt.flags, serverClient)
			p, from := r.ask(t, tt.to, teredo.AppendRouterSolicitation(nil, link))
			if from != tt.from || p.Origin != serverClient {
				t.Errorf("answer from %v with origin %v, want %v and %v", from, p.Origin, tt.from, serverClient)
			}
			ra, err := teredo.ParseRouterAdvertisement(p.IPv6)
			if err != nil {
				t.Fatal(err)
			}
			want := netip.MustParsePrefix("2001:0:cb00:7101::/64")
			if ra.Prefix != want || ra.Dst != link || ra.MTU != teredo.MTU {
				t.Errorf("advertised %v with MTU %d to %v, want %v with %d to %v", ra.Prefix, ra.MTU, ra.Dst, want, teredo.MTU, link)
			}
		})
	}
}

func TestServerEchoToNativeHost(t *testing.T) {
	r := newRig(t)
	nonce := [teredo.EchoNonceLen]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	if _, err := r.client.WriteToUDPAddrPort(teredo.AppendEchoTest(nil, serverClientIP6, serverHost, &nonce), serverPrimary); err != nil {
		t.Fatal(err)
	}
	if err := r.host.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for {
		n, cm, src, err := r.host.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 || buf[0] != packet.ICMPv6EchoRequest { // the rest is Neighbor Discovery
			continue
		}
		if src.String() != serverClientIP6.String() {
			t.Errorf("echo request from %v, want %v", src, serverClientIP6)
		}
		if cm.HopLimit != teredo.EchoTestHopLimit-1 {
			t.Errorf("hop limit %d, want %d", cm.HopLimit, teredo.EchoTestHopLimit-1)
		}
		if got := [teredo.EchoNonceLen]byte(buf[8:n]); got != nonce {
			t.Errorf("nonce %x, want %x", got, nonce)
		}
		return
	}
}

func TestServerBubble(t *testing.T) {
	r := newRig(t)
	relay := netip.MustParseAddrPort("203.0.113.7:3545")
	var conn *net.UDPConn
	r.clientNS.Do(t, func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(relay))
		return err
	})
	defer conn.Close()

	trailers := teredo.Trailers{HasNonce: true, Nonce: 0x11223344}
	bubble := trailers.AppendTo(teredo.AppendBubble(nil, serverHost, serverClientIP6))
	if _, err := conn.WriteToUDPAddrPort(bubble, serverPrimary); err != nil {
		t.Fatal(err)
	}
	p, from := teredotest.Receive(t, r.client)
	if from != serverPrimary || p.Origin != relay || !teredo.IsBubble(p.IPv6) || p.IPv6.Src() != serverHost {
		t.Errorf("got %d bytes of %v from %v with origin %v, want a bubble of %v from %v with %v",
			len(p.IPv6), p.IPv6.Src(), from, p.Origin, serverHost, serverPrimary, relay)
	}
	got, err := teredo.ParseTrailers(p.Trailers)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(trailers, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("trailers (-want +got):\n%s", diff)
	}
}

// serverMetrics returns the values that are not zero.
func metrics(s *Server) map[string]float64 {
	values := map[string]float64{}
	s.Collect(func(m role.Metric) {
		if m.Value != 0 {
			values[strings.TrimSuffix(m.Name+":"+m.Reason, ":")] += m.Value
		}
	})
	return values
}

func TestServerCountersAndReload(t *testing.T) {
	r := newRig(t)
	rs := teredo.AppendRouterSolicitation(nil, teredo.LinkLocal(0, serverClient))
	r.ask(t, serverPrimary, rs)
	// Garbage before a second solicitation on the same socket: the answer shows
	// that it has been dealt with.
	if _, err := r.client.WriteToUDPAddrPort([]byte("hello"), serverPrimary); err != nil {
		t.Fatal(err)
	}
	r.ask(t, serverPrimary, rs)
	want := map[string]float64{"received_total": 3, "advertisements_total": 2, "dropped_total:truncated": 1}
	if diff := cmp.Diff(want, metrics(r.server)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}

	next := rigSettings()
	next.MTU, next.Port = 1400, 3545
	keys, err := roletest.Reload(Role, r.server, r.server.cfg, next)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"port"}, keys); diff != "" {
		t.Errorf("keys that wait for a restart (-want +got):\n%s", diff)
	}
	p, _ := r.ask(t, serverPrimary, rs)
	if ra, err := teredo.ParseRouterAdvertisement(p.IPv6); err != nil || ra.MTU != 1400 {
		t.Errorf("advertisement with MTU %d (%v) after the reload, want 1400", ra.MTU, err)
	}
	wantStatus := Status{
		State:     "serving",
		Listen:    []netip.AddrPort{serverPrimary, serverSecondary},
		Advertise: []netip.Addr{serverPrimary.Addr(), serverSecondary.Addr()},
		Prefixes:  []netip.Prefix{teredo.Prefix},
		MTU:       1400,
	}
	if diff := cmp.Diff(wantStatus, r.server.Status(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if err := r.stop(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// A directed broadcast address of the host's own subnet is no client.
func TestServerKnowsBroadcasts(t *testing.T) {
	r := newRig(t)
	broadcast := teredo.Addr{
		Prefix: teredo.Prefix, Server: serverPrimary.Addr(), Mapped: netip.MustParseAddrPort("203.0.113.255:40000"),
	}.IP()
	if _, err := r.client.WriteToUDPAddrPort(teredo.AppendBubble(nil, serverClientIP6, broadcast), serverPrimary); err != nil {
		t.Fatal(err)
	}
	r.ask(t, serverPrimary, teredo.AppendRouterSolicitation(nil, teredo.LinkLocal(0, serverClient)))
	if got := metrics(r.server)["dropped_total:mapped_not_global"]; got != 1 {
		t.Errorf("%v drops as mapped_not_global, want 1; all: %v", got, metrics(r.server))
	}
}

func TestServerStartErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setUp func() error // on the server's thread, in a namespace with loopback only
		want  string
	}{
		{"address of another host", func() error { return nil }, "has no address 203.0.113.1"},
		{"port in use", func() error {
			if err := teredotest.SetUp("lo", "203.0.113.1/32", "203.0.113.2/32"); err != nil {
				return err
			}
			conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(serverSecondary))
			if err == nil {
				t.Cleanup(func() { conn.Close() })
			}
			return err
		}, "203.0.113.2:3544 is in use by another program"},
		{"no right to raw sockets", dropRawCapability, "CAP_NET_RAW"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := testutil.NewNetns(t)
			s, err := New(rigSettings(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			var got error
			ns.Do(t, func() error {
				if err := tt.setUp(); err != nil {
					return err
				}
				got = s.Run(t.Context())
				return nil
			})
			if got == nil || !strings.Contains(got.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", got, tt.want)
			}
		})
	}
}

// dropRawCapability takes CAP_NET_RAW from the calling thread.
func dropRawCapability() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_NET_RAW
	return unix.Capset(&header, &data[0])
}

func TestNewServerRefuses(t *testing.T) {
	cfg := rigSettings()
	cfg.Advertise = netip.MustParseAddr("10.0.0.1")
	if _, err := New(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "10.0.0.1 is not a global IPv4 address") {
		t.Errorf("error %v", err)
	}
}

func TestServerReloadBeforeStart(t *testing.T) {
	s, err := New(rigSettings(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := roletest.Reload(Role, s, s.cfg, rigSettings()); err == nil {
		t.Error("a server that does not run has taken a configuration")
	}
}

// A server can be told to stop between its start and its first words.
func TestServerAnnounceAfterStop(t *testing.T) {
	s, err := New(rigSettings(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	s.announce()
}

// An address that leaves the host is told once, and served again when it is back.
func TestServerAddressComesAndGoes(t *testing.T) {
	r := newRig(t)
	secondary := netlink.Addr{IPNet: &net.IPNet{IP: serverSecondary.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}}
	change := func(f func(netlink.Link, *netlink.Addr) error) {
		t.Helper()
		r.serverNS.Do(t, func() error {
			link, err := netlink.LinkByName("v4")
			if err != nil {
				return err
			}
			return f(link, &secondary)
		})
	}
	await := func(state string, missing ...netip.Addr) {
		t.Helper()
		for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
			st := r.server.Status().(Status)
			if st.State == state && slices.Equal(st.Missing, missing) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("status %+v, want state %s and missing %v", st, state, missing)
			}
		}
	}
	change(netlink.AddrDel)
	await("address_missing", serverSecondary.Addr())
	r.ask(t, serverPrimary, teredo.AppendRouterSolicitation(nil, teredo.LinkLocal(0, serverClient)))
	change(netlink.AddrAdd)
	await("serving")
	r.ask(t, serverSecondary, teredo.AppendRouterSolicitation(nil, teredo.LinkLocal(0, serverClient)))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"has gone from this host": 1, "is back": 1} {
		if got := strings.Count(r.log.String(), text); got != want {
			t.Errorf("%q stands %d times in the log, want %d:\n%s", text, got, want, r.log.String())
		}
	}
}
