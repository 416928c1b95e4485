// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestRelayColdStartAndBothWays(t *testing.T) {
	r := newRig(t, ModeRelay, byEngine)
	began := time.Now()
	for _, s := range []string{"one", "two", "three"} {
		r.hostSends(t, s)
	}
	b := r.bubbleArrives(t)
	send(t, r.client, teredo.AppendBubble(nil, relayClientIP, b.Src()), relayAt)
	// In order, and one hop taken off by the whole box.
	for _, s := range []string{"one", "two", "three"} {
		wantText(t, "the client got", clientReceives(t, r.client), s+" hop 63")
	}
	r.hostSends(t, "four")
	wantText(t, "the client got", clientReceives(t, r.client), "four hop 63")
	send(t, r.client, clientUDP("hello"), relayAt)
	from := netip.AddrPortFrom(relayClientIP, relayClientPort)
	wantText(t, "the host got", r.hostReceives(t), fmt.Sprintf("hello from %s hop 63", from))

	peers, total := r.relay.Peers(10)
	if total != 1 || len(peers) != 1 || peers[0].Address != relayClientIP || peers[0].Mapped != relayClient || !peers[0].Trusted || peers[0].LastReceived.IsZero() {
		t.Errorf("%d peers: %+v", total, peers)
	}
	want := Status{
		State: "serving", Mode: ModeRelay, Listen: netip.MustParseAddrPort("0.0.0.0:3545"), Interface: "teredo", Workers: 2,
		Prefixes: []netip.Prefix{teredo.Prefix}, Serve: []netip.Prefix{netip.MustParsePrefix("2000::/3")},
		Address: netip.MustParseAddr("2001:db8:1::1"), Forwarding: true, Peers: 1, Trusted: 1,
		FastPath: driver.Status{Mode: fastpath.ModeOff, Path: "engine", Keeps: "peers", Why: "it is switched off in the configuration"},
	}
	if diff := cmp.Diff(want, r.relay.Status(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	counted := map[string]float64{}
	r.relay.Collect(func(m role.Metric) { counted[m.Name+"/"+m.Reason] = m.Value })
	for name, want := range map[string]float64{
		"to_clients_total/": 4, "to_ipv6_total/": 1, "bubbles_received_total/": 1,
		"trusted_peers/": 1, "dropped_total/queue_full": 0, "dropped_total/tun_send_failed": 0,
	} {
		if got, ok := counted[name]; !ok || got != want {
			t.Errorf("metric %s is %v, want %v", name, got, want)
		}
	}
	r.fewBubbles(t, time.Since(began))
}

func TestRelayServesSymmetricClient(t *testing.T) {
	r := newRig(t, ModeRelay)
	r.hostSends(t, "one")
	b := r.bubbleArrives(t)
	send(t, r.foreign, teredo.AppendBubble(nil, relayClientIP, b.Src()), relayAt)
	wantText(t, "the client got", clientReceives(t, r.foreign), "one hop 63")
	send(t, r.foreign, clientUDP("hello"), relayAt)
	wantText(t, "the host got", r.hostReceives(t), fmt.Sprintf("hello from [%s]:%d hop 63", relayClientIP, relayClientPort))
}

func TestRelayHostSpecific(t *testing.T) {
	r := newRig(t, ModeHost)
	// The client may speak first, and no hop is taken.
	send(t, r.client, clientUDP("hello"), relayAt)
	wantText(t, "the host got", r.hostReceives(t), fmt.Sprintf("hello from [%s]:%d hop 64", relayClientIP, relayClientPort))
	r.hostSends(t, "answer")
	wantText(t, "the client got", clientReceives(t, r.client), "answer hop 64")
}

// The only test that waits for the timers of RFC 4380 in real time: the error must
// get through the kernel to the program that sent.
func TestRelayTellsSendersOfSilentClient(t *testing.T) {
	for _, mode := range []Mode{ModeRelay, ModeHost} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, mode)
			var conn *net.UDPConn
			r.hostNS.Do(t, func() (err error) {
				conn, err = net.DialUDP("udp6", nil, &net.UDPAddr{IP: relayClientIP.AsSlice(), Port: relayClientPort})
				return err
			})
			defer conn.Close()
			raw, err := conn.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			// Without it Linux keeps this error, which may pass, to itself.
			var setErr error
			if err := raw.Control(func(fd uintptr) {
				setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
			}); err != nil || setErr != nil {
				t.Fatal(err, setErr)
			}
			if _, err := conn.Write([]byte("is anybody there?")); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.EHOSTUNREACH) {
				t.Errorf("the sender got %v, want %v", err, unix.EHOSTUNREACH)
			}
		})
	}
}

func TestRelayUndoesAndStartsAgain(t *testing.T) {
	r := newRig(t, ModeRelay)
	if err := r.stop(); err != nil {
		t.Fatalf("the relay ended with %v", err)
	}
	r.relayNS.Do(t, func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		if slices.ContainsFunc(links, func(l net.Interface) bool { return l.Name == "teredo" }) {
			t.Error("the device is still there")
		}
		routes, err := testutil.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V6) })
		for _, route := range routes {
			if route.Dst != nil && route.Dst.String() == "2001::/32" {
				t.Errorf("the route is still there: %v", route)
			}
		}
		return err
	})
	r.start(t, ModeRelay)
	r.hostSends(t, "one")
	r.bubbleArrives(t)
}

func TestRelayFollowsAddresses(t *testing.T) {
	r := newRig(t, ModeRelay)
	r.relayNS.Do(t, func() error { return teredotest.SetUp("v6", "2001:db8:1::/64") })
	want := netip.MustParseAddr("2001:db8:1::")
	for deadline := time.Now().Add(testutil.Patience); r.relay.Status().(Status).Address != want; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("the source of errors is %v, want %v", r.relay.Status().(Status).Address, want)
		}
	}
}

// NATs of clients let in nothing from another address than the one that they know: when it
// goes from a relay that is bound to none, all are asked again. One that none knows may go.
func TestRelayForgetsPeersWithItsAddress(t *testing.T) {
	r := newRig(t, ModeRelay)
	r.establish(t)
	await := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(testutil.Patience); !done(); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	comesAndGoes := func(a string) {
		t.Helper()
		knows := func() bool {
			r.relay.mu.Lock()
			defer r.relay.mu.Unlock()
			return slices.Contains(r.relay.local.own, netip.MustParsePrefix(a).Addr())
		}
		r.relayNS.Do(t, func() error { return teredotest.SetUp("lo", a) })
		await("the relay does not know of "+a, knows)
		r.relayNS.Do(t, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			return netlink.AddrDel(lo, addr)
		})
		await("the relay still knows of "+a, func() bool { return !knows() })
	}
	trusted := func() int { return r.relay.Status().(Status).Trusted }
	comesAndGoes("172.17.0.1/32")
	if n := trusted(); n != 1 {
		t.Errorf("a private address has gone, and %d peers are left", n)
	}
	comesAndGoes("198.51.100.9/32")
	await("peers are not forgotten", func() bool { return trusted() == 0 })
	r.hostSends(t, "second")
	r.bubbleArrives(t)
}

// The kernel drops the routes of a device that is set down.
func TestRelaySetsRoutesAgain(t *testing.T) {
	r := newRig(t, ModeRelay)
	r.relayNS.Do(t, func() error {
		device, err := netlink.LinkByName("teredo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetDown(device), netlink.LinkSetUp(device))
	})
	for deadline := time.Now().Add(testutil.Patience); ; runtime.Gosched() {
		back := false
		r.relayNS.Do(t, func() error {
			routes, err := testutil.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V6) })
			back = slices.ContainsFunc(routes, func(route netlink.Route) bool {
				return route.Dst != nil && route.Dst.String() == "2001::/32"
			})
			return err
		})
		if back {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the route is not set again")
		}
	}
	r.hostSends(t, "one")
	r.bubbleArrives(t)
}

func TestRelayReload(t *testing.T) {
	r := newRig(t, ModeRelay)
	cfg := r.config(ModeRelay)
	cfg.Serve = []netip.Prefix{netip.MustParsePrefix("2001:db8:2::/48")}
	cfg.Bind = netip.MustParseAddrPort("0.0.0.0:4000")
	cfg.MaxPeers, cfg.Workers = 10, 3
	cfg.KeepState, cfg.StateFile = false, ""
	waits, err := roletest.Reload(Role, r.relay, r.relay.cfg, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bind", "max_peers", "workers", "keep_state", "state_file"}, waits); diff != "" {
		t.Errorf("keys that wait (-want +got):\n%s", diff)
	}
	st := r.relay.Status().(Status)
	if st.Serve[0] != cfg.Serve[0] || st.Listen.Port() != relayAt.Port() {
		t.Errorf("after the reload: %+v", st)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := roletest.Reload(Role, r.relay, r.relay.cfg, cfg); err == nil {
		t.Error("a relay that has ended was reloaded")
	}
}

// A reload, and any number of them, keeps peers: the next packet needs no bubble.
func TestRelayReloadKeepsPeers(t *testing.T) {
	r := newRig(t, ModeRelay)
	began := time.Now()
	r.hostSends(t, "one")
	bubble := r.bubbleArrives(t)
	send(t, r.client, teredo.AppendBubble(nil, relayClientIP, bubble.Src()), relayAt)
	wantText(t, "the client got", clientReceives(t, r.client), "one hop 63")
	r.fewBubbles(t, time.Since(began))
	before := r.bubblesSent()
	for range 5 {
		cfg := rigSettings(ModeRelay)
		cfg.QueuePackets, cfg.BubbleRate = 3, 5
		if _, err := roletest.Reload(Role, r.relay, r.relay.cfg, cfg); err != nil {
			t.Fatal(err)
		}
	}
	r.hostSends(t, "two")
	wantText(t, "the client got", clientReceives(t, r.client), "two hop 63")
	if st := r.relay.Status().(Status); st.Trusted != 1 || r.bubblesSent() != before {
		t.Errorf("%v bubbles after %v, %d trusted peers", r.bubblesSent(), before, st.Trusted)
	}
}

func TestRelayPortInUse(t *testing.T) {
	r := newRig(t, ModeRelay)
	cfg := rigSettings(ModeRelay)
	cfg.Interface = "second"
	second, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.relayNS.Do(t, func() error {
		if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("error %v", err)
		}
		return nil
	})
}

func TestRelayRefusesConfiguration(t *testing.T) {
	cfg := rigSettings(ModeRelay)
	cfg.Prefixes = nil
	if _, err := New(cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a relay without prefixes was made")
	}
}
