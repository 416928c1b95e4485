// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/teredo"
)

// Addresses that the mobile node adds to the Teredo topology.
const (
	mobileEth, mobileEthGateway   = "192.168.101.2", "192.168.101.1"
	mobileEthOther                = "192.168.101.9" // after a change in the LAN
	mobileWLAN, mobileWLANGateway = "192.168.102.2", "192.168.102.1"
	natOther                      = "203.0.113.11" // after a change outside
)

// server2Addr is the second server, for when the first one dies.
var server2Addr = netip.MustParseAddr("203.0.113.7")

// mobileNet is the Teredo topology with a node that has two ways out and a second
// server:
//
//	 IPv4 Internet 203.0.113.0/24 -- server2 203.0.113.7
//	     | .10              | .20
//	 +------+           +------+
//	 | nat1 |           | nat2 |
//	 +------+           +------+
//	     | 192.168.101.1    | 192.168.102.1
//	     |                  |
//	eth0 | .2         wlan0 | .2
//	  +-------------------------+
//	  |         mobile          |
//	  +-------------------------+
type mobileNet struct {
	*teredoNet
	mobile    *teredoClient
	nat, nat2 *lab.Node
	server2   *lab.Node
	first     *lab.Proc // the first server
}

// mobilePlan says how the topology is used.
type mobilePlan struct {
	Delay      time.Duration // of each IPv4 link outside, one way
	Interfaces bool          // the client keeps both interfaces qualified
	Servers    bool          // the client knows both servers
}

// drawMobile draws the topology and starts everything but traffic.
func drawMobile(ctx context.Context, e *lab.Env, name string, who maker, plan mobilePlan) (*mobileNet, error) {
	n, err := drawTeredo(ctx, e, name, teredoPlan{NATs: []lab.NATKind{tourKind, tourKind}, Delay: plan.Delay})
	if err != nil {
		return nil, err
	}
	m := &mobileNet{teredoNet: n, nat: n.clients[0].nat, nat2: n.clients[1].nat}
	m.drawNode(plan)
	if plan.Servers {
		m.drawServer2()
	}
	err = n.lab.Err()
	if err == nil {
		err = m.start(ctx, who, plan)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return m, nil
}

// drawNode draws the mobile node.
func (m *mobileNet) drawNode(plan mobilePlan) {
	l := m.lab
	node := l.Node("mobile")
	l.Link(node, "eth0", m.nat, "l2")
	m.nat.Addr("l2", mobileEthGateway+"/24")
	node.Addr("eth0", mobileEth+"/24")
	m.mobile = &teredoClient{net: m.teredoNet, node: node, nat: m.nat, kind: tourKind, name: "mobile"}
	if plan.Interfaces {
		l.Link(node, "wlan0", m.nat2, "l2")
		m.nat2.Addr("l2", mobileWLANGateway+"/24")
		node.Addr("wlan0", mobileWLAN+"/24")
		m.mobile.interfaces = []string{"eth0", "wlan0"}
		if err := m.route("wlan0", mobileWLANGateway, 200); err != nil {
			return
		}
	}
	_ = m.route("eth0", mobileEthGateway, 100)
}

// drawServer2 draws the second server.
func (m *mobileNet) drawServer2() {
	l := m.lab
	m.server2 = l.Node("server2")
	l.Link(m.server2, "v4", l.Lookup("ipv4"), "")
	l.Link(m.server2, "v6", l.Lookup("ipv6"), "")
	m.server2.Addr("v4", server2Addr.String()+"/24").Addr("v6", "2001:db8::7/64").Route("2001::/32", "2001:db8::3").Forward(false, true)
	m.mobile.servers = []netip.Addr{server2Addr}
}

// start starts servers, relay and the client, and waits for its address.
func (m *mobileNet) start(ctx context.Context, who maker, plan mobilePlan) error {
	if err := m.startCore(ctx, who, who); err != nil {
		return err
	}
	m.first = m.daemons.run[0]
	if plan.Servers {
		p, err := m.daemons.startIsthmus(ctx, m.server2, "server", fmt.Sprintf("address = %q\n", server2Addr))
		if err != nil {
			return err
		}
		if err := serving(ctx, m.server2, p, teredo.Port); err != nil {
			return err
		}
	}
	if err := m.mobile.start(ctx, who); err != nil {
		return err
	}
	_, err := m.mobile.await(ctx)
	return err
}

// route sets the default route by an interface; the smallest metric wins.
func (m *mobileNet) route(iface, gateway string, metric int) error {
	return m.setRoute((*lab.Kernel).RouteReplace, iface, gateway, metric)
}

// unroute takes a default route away.
func (m *mobileNet) unroute(iface, gateway string, metric int) error {
	return m.setRoute((*lab.Kernel).RouteDel, iface, gateway, metric)
}

func (m *mobileNet) setRoute(set setRoute, iface, gateway string, metric int) error {
	return set.byDefault(m.mobile.node, iface, gateway, metric)
}

// setRoute is a change of a route, such as RouteReplace.
type setRoute func(*lab.Kernel, *netlink.Route) error

// byDefault changes a default route of a node, of the gateway's family.
func (set setRoute) byDefault(node *lab.Node, iface, gateway string, metric int) error {
	if err := node.Lab().Err(); err != nil {
		return err
	}
	h := node.Kernel()
	link, err := h.LinkByName(iface)
	if err != nil {
		return err
	}
	err = set(h, &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway), Priority: metric})
	if err != nil {
		err = fmt.Errorf("default route of node %s by %s: %w", node.Name(), iface, err)
	}
	return err
}

// awaitPaths waits until the client's paths are in these states, written like
// "eth0 in_use, wlan0 standing_by".
func (m *mobileNet) awaitPaths(ctx context.Context, want string) error {
	got := ""
	err := poll(ctx, addressWait, 10*time.Millisecond, func(ctx context.Context) (bool, error) {
		var state struct {
			Paths []struct{ Interface, State string } `json:"paths"`
		}
		err := m.mobile.isthmus().state(ctx, &state)
		var words []string
		for _, p := range state.Paths {
			words = append(words, p.Interface+" "+p.State)
		}
		got = strings.Join(words, ", ")
		return got == want, err
	})
	if err != nil {
		return fmt.Errorf("the client's paths are %q, want %q: %w", got, want, err)
	}
	return nil
}
