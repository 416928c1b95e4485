// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
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
	r.stopServer = roletest.Start(t, r.router, r.server).Stop
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
