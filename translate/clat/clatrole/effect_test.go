// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// written are the settings of a section.
func written(t *testing.T, lines string) *Settings {
	t.Helper()
	return configtest.One(t, Role.Section, "[[clat]]\n"+lines).(*Settings)
}

// TestKeysOnTheHost sees on a host with two uplinks, and IPv4 of its own, what keys do.
func TestKeysOnTheHost(t *testing.T) {
	configtest.InEffect(t, "clat", "name", "interface", "uplink", "prefixes", "lan", "route_metric", "native")
	t.Parallel()
	w := newWorld(t)
	connect(t, w.net, w.host, "up1", "2001:db8:2::1/64", "2001:db8:2::2/64")
	w.host.Do(t, func() error {
		up1, err := netlink.LinkByName("up1")
		if err != nil {
			return err
		}
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		return errors.Join(
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8:2::1"), Priority: 5000}),
			netlink.RouteAdd(&netlink.Route{Dst: all, LinkIndex: up1.Attrs().Index, Scope: unix.RT_SCOPE_LINK, Priority: 5000}))
	})
	var err error
	if w.clat, err = New(*written(t, `
		name = "house"
		interface = "v4"
		uplink = "up1"
		prefixes = ["2001:db8:64::/96"]
		lan = "2001:db8:1:46::/96"
		route_metric = 777
		native = "ignore"
		`), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, w.host, w.clat)
	if st := w.await(t, "serving"); st.Uplink != "up1" || !netip.MustParsePrefix("2001:db8:2::/64").Contains(st.Address6) {
		t.Errorf("status %+v", st)
	}
	if w.clat.Name() != "house" {
		t.Errorf("the name is %s", w.clat.Name())
	}
	w.transfer(t, 1<<10)
	w.host.Do(t, func() error {
		v4, err := netlink.LinkByName("v4")
		if err != nil {
			return err
		}
		found := map[string]int{}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteList(v4, family)
			if err != nil {
				return err
			}
			for _, r := range routes {
				found[r.Dst.String()] = r.Priority
			}
		}
		if found["0.0.0.0/0"] != 777 {
			t.Errorf("routes with their metrics: %v", found)
		}
		if _, there := found["2001:db8:1:46::/96"]; !there {
			t.Errorf("no route of the LAN: %v", found)
		}
		return nil
	})
}

// TestResolverTells has a name server, of which nothing but the key tells, know the prefix.
func TestResolverTells(t *testing.T) {
	configtest.InEffect(t, "clat", "resolvers")
	testutil.NeedRoot(t)
	t.Parallel()
	conn, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(knowsPrefix)}
	go func() { _ = server.ActivateAndServe() }()
	defer conn.Close()
	f := &finder{cfg: written(t, fmt.Sprintf("resolvers = [%q]", conn.LocalAddr())), log: slog.New(slog.DiscardHandler)}
	defer f.stop()
	if _, err := f.follow(t.Context(), port.Uplink6{Name: "lo", Index: 1}, true); err != nil {
		t.Fatal(err)
	}
	select {
	case set := <-f.sets:
		if len(set.Prefixes) != 1 || set.Prefixes[0] != pool6 {
			t.Errorf("it has found %v", set.Prefixes)
		}
	case <-time.After(patience):
		t.Error("it finds nothing")
	}
}
