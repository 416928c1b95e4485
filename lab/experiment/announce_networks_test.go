// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
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

// networksNet is a gateway with BIRD, configured as docs/ggsn.md says, between two networks, each with a router that has
// BIRD, too:
//
//	        +-- red
//	gateway +
//	        +-- blue
type networksNet struct {
	*speakerNet // its BIRD is that of the gateway
	gateway     *lab.Node
	routers     map[string]*lab.Node
}

// networkTables are the routing tables of the networks.
var networkTables = map[string]int{"red": 100, "blue": 101}

// networkPools are the prefixes that each network has.
var networkPools = []netip.Prefix{netip.MustParsePrefix("10.45.0.0/16"), netip.MustParsePrefix("2001:db8:6000::/44")}

// networkEnd is an end of the link between the gateway and a network.
type networkEnd struct{ four, six netip.Prefix }

// drawNetworks draws the topology and starts BIRD on the routers. Networks are VRFs if so wanted.
func drawNetworks(t *testing.T, name string, vrfs bool, ends func(network int) (here, there networkEnd)) *networksNet {
	t.Helper()
	empty, l := emptySpeakerNet(t, name)
	n := &networksNet{speakerNet: empty, gateway: l.Node("gateway").Forward(true, true), routers: map[string]*lab.Node{}}
	n.bird = peers.Bird{Name: "gateway", AS: announceAS}
	for i, name := range []string{"red", "blue"} {
		router := l.Node(name)
		n.routers[name] = router
		here, there := ends(i)
		to := peers.BirdSession{Name: name, Local: here.four.Addr(), Neighbor: there.four.Addr(), AS: routerAS, Network: networkTables[name]}
		l.Link(router, "eth0", n.gateway, "to-"+name)
		if vrfs {
			to.VRF = name
			joinVRF(t, n.gateway, "to-"+name, name, networkTables[name])
		}
		n.gateway.Addr("to-"+name, here.four.String(), here.six.String())
		router.Addr("eth0", there.four.String(), there.six.String())
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		n.bird.RouterID = here.four.Addr()
		n.bird.Sessions = append(n.bird.Sessions, to)
		from := peers.BirdSession{Name: "isthmus", Local: to.Neighbor, Neighbor: to.Local, AS: announceAS, Passive: true}
		n.startBird(router, peers.Bird{Name: name, RouterID: to.Neighbor, AS: routerAS, Sessions: []peers.BirdSession{from}})
	}
	return n
}

// hears waits until the router of a network has a prefix, or has it no more.
func (n *networksNet) hears(name string, p netip.Prefix, want bool) {
	n.t.Helper()
	for deadline := time.Now().Add(announceWait); knows(n.routers[name], p) != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			routes, err := peers.AskBird(n.bird.Socket(n.daemons.dir), "show route all table all")
			sessions, _ := peers.AskBird(n.bird.Socket(n.daemons.dir), "show protocols all")
			n.t.Fatalf("%s has %s: %t; BIRD of the gateway: %s %v\n%s", name, p, !want, routes, err, sessions)
		}
	}
}

// route changes the route to a prefix in a network.
func (n *networksNet) route(name string, p netip.Prefix, change func(*netlink.Route) error) {
	n.t.Helper()
	device, err := n.gateway.Kernel().LinkByName("to-" + name)
	if err != nil {
		n.t.Fatal(err)
	}
	to := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	r := &netlink.Route{Dst: to, LinkIndex: device.Attrs().Index, Table: networkTables[name], Protocol: port.RouteProtocol, Scope: unix.RT_SCOPE_UNIVERSE}
	if err := change(r); err != nil {
		n.t.Fatal(err)
	}
}

// TestNetworksAnnounced has BIRD read the tables of two networks in which the same pool has a route, and tell the router
// of each: it has the prefix as long as its own network has, whatever becomes of the other.
//
//	        +-- 192.0.2.0/30, 2001:db8:0:1::/64 -- red
//	gateway +-- 192.0.2.4/30, 2001:db8:0:2::/64 -- blue
func TestNetworksAnnounced(t *testing.T) {
	t.Parallel()
	n := drawNetworks(t, "networks", false, func(network int) (here, there networkEnd) {
		end := func(number int) networkEnd {
			return networkEnd{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(4*network + number)}), 30),
				netip.MustParsePrefix(fmt.Sprintf("2001:db8:0:%d::%d/64", network+1, number)),
			}
		}
		return end(1), end(2)
	})
	for name := range networkTables {
		for _, p := range networkPools {
			n.route(name, p, n.gateway.Kernel().RouteAdd)
		}
	}
	n.startBird(n.gateway, n.bird)
	for _, p := range networkPools {
		n.hears("red", p, true)
		n.hears("blue", p, true)
		n.route("red", p, n.gateway.Kernel().RouteDel)
		n.hears("red", p, false)
		if !knows(n.routers["blue"], p) {
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
	routes, err := router.Kernel().RouteListFiltered(family, &netlink.Route{Dst: to}, netlink.RT_FILTER_DST)
	return err == nil && len(routes) > 0
}
