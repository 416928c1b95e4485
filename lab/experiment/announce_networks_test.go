// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// TestNetworksAnnounced has BIRD, configured as docs/ggsn.md says, read the tables of two networks in which the
// same pool has a route, and tell the router of each: it has the prefix as long as its own network has, whatever
// becomes of the other.
//
//	        +-- 192.0.2.0/30, 2001:db8:0:1::/64 -- red
//	gateway +-- 192.0.2.4/30, 2001:db8:0:2::/64 -- blue
func TestNetworksAnnounced(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	l, err := e.New(ctx, fmt.Sprintf("networks-%d", time.Now().UnixNano()%1e9))
	if err != nil {
		t.Fatal(err)
	}
	n := &speakerNet{t: t, ctx: ctx, daemons: &daemons{env: e, dir: l.Dir(), ctx: ctx}}
	t.Cleanup(func() {
		if err := errors.Join(n.daemons.healthy(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	gateway := l.Node("gateway").Forward(true, true)
	told := peers.Bird{Name: "gateway", RouterID: netip.MustParseAddr("192.0.2.1"), AS: announceAS}
	pools := []netip.Prefix{netip.MustParsePrefix("10.45.0.0/16"), netip.MustParsePrefix("2001:db8:6000::/44")}
	routers, tables := map[string]*lab.Node{}, map[string]int{"red": 100, "blue": 101}
	for i, name := range []string{"red", "blue"} {
		router := l.Node(name)
		routers[name] = router
		l.Link(router, "eth0", gateway, "to-"+name)
		here, there := netip.AddrFrom4([4]byte{192, 0, 2, byte(4*i + 1)}), netip.AddrFrom4([4]byte{192, 0, 2, byte(4*i + 2)})
		gateway.Addr("to-"+name, here.String()+"/30", fmt.Sprintf("2001:db8:0:%d::1/64", i+1))
		router.Addr("eth0", there.String()+"/30", fmt.Sprintf("2001:db8:0:%d::2/64", i+1))
		told.Sessions = append(told.Sessions, peers.BirdSession{Name: name, Local: here, Neighbor: there, AS: routerAS, Network: tables[name]})
		hears := peers.BirdSession{Name: "isthmus", Local: there, Neighbor: here, AS: announceAS, Passive: true}
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		n.startBird(router, peers.Bird{Name: name, RouterID: there, AS: routerAS, Sessions: []peers.BirdSession{hears}})
	}
	route := func(name string, p netip.Prefix, change func(*netlink.Route) error) {
		t.Helper()
		device, err := gateway.Netlink().LinkByName("to-" + name)
		if err != nil {
			t.Fatal(err)
		}
		to := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		r := &netlink.Route{Dst: to, LinkIndex: device.Attrs().Index, Table: tables[name], Protocol: port.RouteProtocol, Scope: unix.RT_SCOPE_UNIVERSE}
		if err := change(r); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(name string, p netip.Prefix, want bool) {
		t.Helper()
		for deadline := time.Now().Add(announceWait); knows(routers[name], p) != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				says, err := peers.AskBird(told.Socket(n.daemons.dir), "show route all table all")
				t.Fatalf("%s has %s: %t; BIRD of the gateway: %s %v", name, p, !want, says, err)
			}
		}
	}
	for name := range tables {
		for _, p := range pools {
			route(name, p, gateway.Netlink().RouteAdd)
		}
	}
	n.startBird(gateway, told)
	for _, p := range pools {
		hears("red", p, true)
		hears("blue", p, true)
		route("red", p, gateway.Netlink().RouteDel)
		hears("red", p, false)
		if !knows(routers["blue"], p) {
			t.Errorf("%s went in the other network, too", p)
		}
	}
}

// knows reports whether a router has a route to a prefix.
func knows(router *lab.Node, p netip.Prefix) bool {
	family := netlink.FAMILY_V6
	if p.Addr().Is4() {
		family = netlink.FAMILY_V4
	}
	to := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	routes, err := router.Netlink().RouteListFiltered(family, &netlink.Route{Dst: to}, netlink.RT_FILTER_DST)
	return err == nil && len(routes) > 0
}
