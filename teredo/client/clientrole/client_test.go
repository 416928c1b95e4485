// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/server/serverrole"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// rig is two hosts with clients and a router with a server between them:
//
//	a 198.51.100.2 -- .1 router, server 203.0.113.1, .2 -- 192.0.2.1 -- 192.0.2.2 b
type rig struct {
	a, b, router *testutil.Netns
	server       *serverrole.Server
	serverCfg    serverrole.Settings
	stopServer   func() error
}

func newRig(t *testing.T, change ...func(*serverrole.Settings)) *rig {
	t.Helper()
	r := &rig{a: testutil.NewNetns(t), b: testutil.NewNetns(t), router: testutil.NewNetns(t)}
	teredotest.Link(t, r.router, r.a, "a", []string{"198.51.100.1/24", "203.0.113.1/32", "203.0.113.2/32"}, "198.51.100.2/24")
	teredotest.Link(t, r.router, r.b, "b", []string{"192.0.2.1/24"}, "192.0.2.2/24")
	r.router.Do(t, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	r.a.Do(t, func() error { return defaultRoute("198.51.100.1") })
	r.b.Do(t, func() error { return defaultRoute("192.0.2.1") })
	cfg := *configtest.One(t, serverrole.Role.Section, serverrole.Role.Section.Smallest()).(*serverrole.Settings)
	cfg.Address, cfg.Secondary = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	for _, f := range change {
		f(&cfg)
	}
	r.serverCfg = cfg
	var err error
	if r.server, err = serverrole.New(cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	r.stopServer = teredotest.Start(t, r.router, r.server).Stop
	return r
}

func defaultRoute(gateway string) error {
	return netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP(gateway)})
}

func rigSettings() Settings {
	cfg := defaults()
	cfg.Servers = []Host{{Addr: netip.MustParseAddr("203.0.113.1")}}
	return cfg
}

// newClient makes a client, with its log in the returned text.
func newClient(t *testing.T, change ...func(*Settings)) (*Client, *strings.Builder) {
	t.Helper()
	cfg := rigSettings()
	for _, f := range change {
		f(&cfg)
	}
	var log strings.Builder
	c, err := NewClient(cfg, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.dev.lastRestore = testutil.LastRestore
	return c, &log
}

// await waits until the state of a client fits.
func await(t *testing.T, c *Client, what string, fits func(Status) bool) Status {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); ; {
		s := c.Status().(Status)
		if fits(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("not %s within %v: %+v", what, testutil.Patience, s)
		}
		time.Sleep(time.Millisecond)
	}
}

func qualified(s Status) bool { return s.State == "qualified" }

// device lists the addresses and routes of the Teredo device, or says that it is
// not there.
func deviceNow(t *testing.T, ns *testutil.Netns) (list []string) {
	t.Helper()
	ns.Do(t, func() error {
		link, err := netlink.LinkByName("teredo")
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			list = append(list, "no device")
			return nil
		}
		if err != nil {
			return err
		}
		addrs, err := testutil.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V6) })
		if err != nil {
			return err
		}
		for _, a := range addrs {
			list = append(list, "address "+a.IPNet.String())
		}
		routes, err := testutil.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF)
		})
		for _, r := range routes {
			list = append(list, fmt.Sprintf("route %s metric %d mtu %d", r.Dst, r.Priority, link.Attrs().MTU))
		}
		return err
	})
	return list
}

// awaitDevice waits until the device is as wanted: the kernel is told behind the
// engine's back.
func awaitDevice(t *testing.T, ns *testutil.Netns, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); ; {
		diff := cmp.Diff(want, deviceNow(t, ns))
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("device (-want +got):\n%s", diff)
		}
		time.Sleep(time.Millisecond)
	}
}

func deviceWith(address netip.Addr) []string {
	return []string{"address " + address.String() + "/32", "route 2001::/32 metric 256 mtu 1280", "route ::/0 metric 4096 mtu 1280"}
}

func TestClientSetsUpAndUndoes(t *testing.T) {
	r := newRig(t)
	c, log := newClient(t)
	stop := teredotest.Start(t, r.a, c).Stop
	s := await(t, c, "qualified", qualified)
	if want := netip.MustParseAddrPort("198.51.100.2:0").Addr(); s.Mapped.Addr() != want || s.Mapped != s.Local {
		t.Errorf("mapped %s, local %s", s.Mapped, s.Local)
	}
	if s.NAT != "no NAT" {
		t.Errorf("NAT is %q", s.NAT)
	}
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	if err := stop(); err != nil {
		t.Error(err)
	}
	awaitDevice(t, r.a, "no device")
	if !strings.Contains(log.String(), `unsolicited = \"established\"`) {
		t.Errorf("the policy is not stated at the start: %s", log)
	}
}

// Two clients talk over their kernels' UDP, by bubbles through the server.
func TestClientToClient(t *testing.T) {
	r := newRig(t)
	a, _ := newClient(t)
	b, _ := newClient(t, func(c *Settings) { c.Unsolicited = UnsolicitedAllow })
	teredotest.Start(t, r.a, a)
	teredotest.Start(t, r.b, b)
	sa, sb := await(t, a, "qualified", qualified), await(t, b, "qualified", qualified)
	awaitDevice(t, r.a, deviceWith(sa.Address)...)
	awaitDevice(t, r.b, deviceWith(sb.Address)...)
	var from, to *net.UDPConn
	r.b.Do(t, func() (err error) {
		to, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(sb.Address, 7)))
		return err
	})
	defer to.Close()
	r.a.Do(t, func() (err error) {
		from, err = net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(sb.Address, 7)))
		return err
	})
	defer from.Close()
	const words = "across the isthmus"
	if _, err := from.Write([]byte(words)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	_ = to.SetReadDeadline(time.Now().Add(testutil.Patience))
	n, back, err := to.ReadFromUDPAddrPort(buf)
	if err != nil || string(buf[:n]) != words || back.Addr() != sa.Address {
		t.Fatalf("got %q from %s, %v", buf[:n], back, err)
	}
	if _, err := to.WriteToUDPAddrPort([]byte("back"), back); err != nil {
		t.Fatal(err)
	}
	_ = from.SetReadDeadline(time.Now().Add(testutil.Patience))
	if n, err := from.Read(buf); err != nil || string(buf[:n]) != "back" {
		t.Fatalf("answer %q, %v", buf[:n], err)
	}
	peers, total := a.Peers(10)
	if total != 1 || peers[0].Address != sb.Address || !peers[0].Trusted || peers[0].Mapped != sb.Mapped {
		t.Errorf("peers %+v of %d", peers, total)
	}
}

func TestClientFollowsAddressChange(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t)
	teredotest.Start(t, r.a, c)
	old := await(t, c, "qualified", qualified)
	awaitDevice(t, r.a, deviceWith(old.Address)...)
	began := time.Now()
	r.a.Do(t, func() error {
		if err := teredotest.SetUp("a", "198.51.100.9/24"); err != nil {
			return err
		}
		link, err := netlink.LinkByName("a")
		if err != nil {
			return err
		}
		gone, err := netlink.ParseAddr("198.51.100.2/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrDel(link, gone); err != nil {
			return err
		}
		// The kernel takes the second address of a network with the first.
		if err := teredotest.SetUp("a", "198.51.100.9/24"); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return defaultRoute("198.51.100.1")
	})
	s := await(t, c, "at the new address", func(s Status) bool {
		return qualified(s) && s.Mapped.Addr() == netip.MustParseAddr("198.51.100.9")
	})
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	t.Logf("from the change to the new address on the device: %v", time.Since(began))
}

func TestClientStepsAside(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t)
	teredotest.Start(t, r.a, c)
	await(t, c, "qualified", qualified)
	var route *netlink.Route
	r.a.Do(t, func() error {
		if err := teredotest.SetUp("a", "2001:db8::2/64"); err != nil {
			return err
		}
		route = &netlink.Route{Gw: net.ParseIP("2001:db8::1")}
		return netlink.RouteAdd(route)
	})
	await(t, c, "dormant", func(s Status) bool { return s.State == "dormant" })
	awaitDevice(t, r.a)
	r.a.Do(t, func() error { return netlink.RouteDel(route) })
	s := await(t, c, "qualified again", qualified)
	awaitDevice(t, r.a, deviceWith(s.Address)...)
}

// The kernel drops addresses and routes of a device that is set down.
func TestClientEquipsDeviceAgain(t *testing.T) {
	r := newRig(t)
	c, log := newClient(t)
	stop := teredotest.Start(t, r.a, c).Stop
	s := await(t, c, "qualified", qualified)
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	change := func(steps ...func(netlink.Link) error) {
		t.Helper()
		r.a.Do(t, func() error {
			link, err := netlink.LinkByName("teredo")
			for _, step := range steps {
				err = errors.Join(err, step(link))
			}
			return err
		})
	}
	change(netlink.LinkSetDown, netlink.LinkSetUp) // at once, before it can be heard of
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	change(netlink.LinkSetDown)
	await(t, c, "down", func(s Status) bool { return s.DeviceDown })
	awaitDevice(t, r.a)
	change(netlink.LinkSetUp)
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	await(t, c, "up", func(s Status) bool { return !s.DeviceDown })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the device is down", "the device is up again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// A client that gets its address while its device is down has it afterwards.
func TestClientQualifiesWhileDeviceIsDown(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t, func(c *Settings) { c.Servers = []Host{{Name: "teredo.example.net"}} })
	found := make(chan struct{})
	c.lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
		select {
		case <-found:
			return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	teredotest.Start(t, r.a, c)
	change := func(f func(netlink.Link) error) {
		t.Helper()
		r.a.Do(t, func() error {
			link, err := netlink.LinkByName("teredo")
			if err != nil {
				return err
			}
			return f(link)
		})
	}
	change(netlink.LinkSetDown)
	close(found)
	s := await(t, c, "addressed", func(s Status) bool { return s.State == "device_down" && s.Address.IsValid() })
	change(netlink.LinkSetUp)
	awaitDevice(t, r.a, deviceWith(s.Address)...)
}

func TestClientIgnoresNative(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "native")
	r := newRig(t)
	r.a.Do(t, func() error {
		if err := teredotest.SetUp("a", "2001:db8::2/64"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8::1")})
	})
	c, _ := newClient(t, func(c *Settings) { c.Native = NativeIgnore })
	teredotest.Start(t, r.a, c)
	await(t, c, "qualified", qualified)
}

// A server given by name is looked up, again while that fails.
func TestClientLooksUpServer(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t, func(c *Settings) { c.Servers = []Host{{Name: "teredo.example.net"}} })
	var asked atomic.Int32
	c.lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
		if asked.Add(1) == 1 {
			return nil, errors.New("no answer")
		}
		return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil
	}
	teredotest.Start(t, r.a, c)
	await(t, c, "qualified", qualified)
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2", n)
	}
}

func TestClientReload(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t, func(c *Settings) {
		c.Servers = []Host{{Addr: netip.MustParseAddr("203.0.113.77")}}
	})
	teredotest.Start(t, r.a, c)
	await(t, c, "starting", func(s Status) bool { return s.State == "starting" })
	want := rigSettings()
	want.Port = 3555
	restart, err := teredotest.Reload(Role, c, c.cfg, want)
	if diff := cmp.Diff([]string{"port"}, restart); diff != "" || err != nil {
		t.Errorf("keys that wait for a restart (-want +got):\n%s\n%v", diff, err)
	}
	await(t, c, "qualified", qualified)
}

func TestClientNameInUse(t *testing.T) {
	r := newRig(t)
	first, _ := newClient(t)
	teredotest.Start(t, r.a, first)
	second, _ := newClient(t)
	var err error
	r.a.Do(t, func() error { err = second.Run(t.Context()); return nil })
	if err == nil || !strings.Contains(err.Error(), "teredo") {
		t.Errorf("error %v", err)
	}
}

// Every counter has a help text and a name of its own.
func TestClientMetrics(t *testing.T) {
	c, _ := newClient(t)
	seen := map[string]bool{}
	c.Collect(func(m role.Metric) {
		if id := m.Name + " " + m.Reason; m.Help == "" || seen[id] {
			t.Errorf("metric %q: help %q, seen before: %v", id, m.Help, seen[id])
		} else {
			seen[id] = true
		}
	})
	if len(seen) < 40 {
		t.Errorf("only %d metrics", len(seen))
	}
}

// The stop may find no device to close yet: whoever opens it then closes it.
func TestClientStoppedBeforeItsDevice(t *testing.T) {
	ns := testutil.NewNetns(t)
	c, _ := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ns.Do(t, func() error {
		if err := c.openSocket(); err != nil {
			return err
		}
		c.endReads()
		return c.openDevice(ctx, new(errgroup.Group))
	})
	ended := make(chan error, 1)
	go func() { ended <- c.loop.ReadTun(c.dev.tun.Queues[0], c.engine.HandleIP) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testutil.Patience):
		t.Error("the device is still read")
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// A client can be told to stop at any time of its start.
func TestClientStoppedAtStart(t *testing.T) {
	ns := testutil.NewNetns(t)
	for _, wait := range []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
		c, log := newClient(t)
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		ended := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if err := unix.Setns(ns.Handle(), unix.CLONE_NEWNET); err != nil {
				ended <- err
				return
			}
			ended <- c.Run(ctx)
		}()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("stopped after %v: %v\n%s", wait, err, log)
			}
		case <-time.After(testutil.Patience):
			t.Fatalf("stopped after %v, it does not end", wait)
		}
		cancel()
	}
}

// A client that cannot start leaves nothing open behind.
func TestClientThatFailsClosesAll(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		taken, err := port.ListenUDP(port.UDPConfig{Addr: netip.MustParseAddrPort("0.0.0.0:3550")})
		if err != nil {
			return err
		}
		defer taken.Close()
		c, _ := newClient(t, func(c *Settings) { c.Port = 3550 })
		before := openFiles(t)
		if err := c.Run(t.Context()); err == nil {
			t.Error("a port in use was taken")
		}
		for deadline := time.Now().Add(testutil.Patience); openFiles(t) > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%d files are open, %d were before", openFiles(t), before)
				break
			}
		}
		return nil
	})
}

// openFiles counts the files that the process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A client that starts before its server has its address long before a time-out.
func TestClientStartsBeforeItsServer(t *testing.T) {
	r := newRig(t)
	if err := r.stopServer(); err != nil {
		t.Fatal(err)
	}
	c, _ := newClient(t, func(c *Settings) { c.QualificationTimeout = time.Hour })
	teredotest.Start(t, r.a, c)
	await(t, c, "asking", func(s Status) bool { return s.State == "starting" })
	next, err := serverrole.New(r.serverCfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	teredotest.Start(t, r.router, next)
	await(t, c, "qualified", qualified)
}
