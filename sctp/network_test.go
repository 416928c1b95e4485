// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// testNetwork is a client in two networks, and a server behind a router:
//
//	client a ---- 192.0.2.0/24, 2001:db8:a::/64 ------ a router s ---- 203.0.113.0/24, 2001:db8:c::/64 ---- s server
//	       b ---- 198.51.100.0/24, 2001:db8:b::/64 --- b
//
// The client and the server are 1 in each network, the router is fe or 254. The client sends by the network of the
// source address.
type testNetwork struct {
	t                      testing.TB
	client, router, server *testutil.Netns
}

// Addresses of the hosts.
const (
	clientA4, clientB4, server4 = "192.0.2.1", "198.51.100.1", "203.0.113.1"
	clientA6, clientB6, server6 = "2001:db8:a::1", "2001:db8:b::1", "2001:db8:c::1"
)

func newTestNetwork(t testing.TB) *testNetwork {
	n := &testNetwork{t, testutil.NewNetns(t), testutil.NewNetns(t), testutil.NewNetns(t)}
	for _, host := range []*testutil.Netns{n.client, n.router, n.server} {
		host.Do(t, func() error { return sysctl("ipv6/conf/default/accept_dad", "0") }) // addresses work at once
	}
	n.router.Do(t, func() error {
		if err := errors.Join(sysctl("ipv4/conf/all/forwarding", "1"), sysctl("ipv6/conf/all/forwarding", "1")); err != nil {
			return err
		}
		for name, to := range map[string]*testutil.Netns{"a": n.client, "b": n.client, "s": n.server} {
			veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(to.Handle())}
			if err := netlink.LinkAdd(veth); err != nil {
				return err
			}
		}
		return nil
	})
	n.router.Do(t, func() error {
		return hosts(map[string][]string{
			"a": {"192.0.2.254/24", "2001:db8:a::fe/64"}, "b": {"198.51.100.254/24", "2001:db8:b::fe/64"},
			"s": {"203.0.113.254/24", "2001:db8:c::fe/64"},
		})
	})
	n.server.Do(t, func() error {
		if err := hosts(map[string][]string{"s": {server4 + "/24", server6 + "/64"}}); err != nil {
			return err
		}
		return routes("s", unix.RT_TABLE_MAIN, "203.0.113.254", "2001:db8:c::fe")
	})
	n.client.Do(t, func() error {
		if err := hosts(map[string][]string{"a": {clientA4 + "/24", clientA6 + "/64"}, "b": {clientB4 + "/24", clientB6 + "/64"}}); err != nil {
			return err
		}
		if err := routes("a", unix.RT_TABLE_MAIN, "192.0.2.254", "2001:db8:a::fe"); err != nil {
			return err
		}
		if err := sourceRoutes(101, "192.0.2.0/24", "2001:db8:a::/64"); err != nil {
			return err
		}
		if err := sourceRoutes(102, "198.51.100.0/24", "2001:db8:b::/64"); err != nil {
			return err
		}
		if err := routes("a", 101, "192.0.2.254", "2001:db8:a::fe"); err != nil {
			return err
		}
		return routes("b", 102, "198.51.100.254", "2001:db8:b::fe")
	})
	n.client.Do(t, func() error { return carries("a", "b") })
	n.router.Do(t, func() error { return carries("a", "b", "s") })
	n.server.Do(t, func() error { return carries("s") })
	return n
}

// carries waits until the kernel has noticed the carrier of links: it drops in silence what they are to send before.
func carries(links ...string) error {
	for _, name := range links {
		for try := 0; ; try++ {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if link.Attrs().OperState == netlink.OperUp {
				break
			}
			if try == 3000 {
				return fmt.Errorf("link %s does not come up: %v", name, link.Attrs().OperState)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

func sysctl(key, value string) error { return os.WriteFile("/proc/sys/net/"+key, []byte(value), 0) }

// hosts gives links their addresses, and brings them up.
func hosts(of map[string][]string) error {
	for name, list := range of {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		for _, one := range list {
			if err := address(name, one, netlink.AddrAdd); err != nil {
				return err
			}
		}
	}
	return nil
}

// address adds an address to a link, or removes it.
func address(name, prefix string, do func(netlink.Link, *netlink.Addr) error) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD
	}
	return do(link, addr)
}

// routes adds default routes to a table.
func routes(name string, table int, gateways ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, gateway := range gateways {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway), Table: table}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route by %s: %w", gateway, err)
		}
	}
	return nil
}

// sourceRoutes has what comes from some networks looked up in a table.
func sourceRoutes(table int, from ...string) error {
	for _, prefix := range from {
		rule := netlink.NewRule()
		rule.Table, rule.Src = table, mustNet(prefix)
		if rule.Family = unix.AF_INET; netip.MustParsePrefix(prefix).Addr().Is6() {
			rule.Family = unix.AF_INET6
		}
		if err := netlink.RuleAdd(rule); err != nil {
			return fmt.Errorf("rule for %s: %w", prefix, err)
		}
	}
	return nil
}

func mustNet(prefix string) *net.IPNet {
	_, n, err := net.ParseCIDR(prefix)
	if err != nil {
		panic(err)
	}
	return n
}

// cutTable of the router has a hole.
const cutTable = 66

// mend undoes cut.
func (n *testNetwork) mend() {
	n.router.Do(n.t, func() error {
		return errors.Join(
			netlink.RouteDel(&netlink.Route{Dst: mustNet("0.0.0.0/0"), Table: cutTable, Type: unix.RTN_BLACKHOLE, Family: unix.AF_INET}),
			netlink.RouteDel(&netlink.Route{Dst: mustNet("::/0"), Table: cutTable, Type: unix.RTN_BLACKHOLE, Family: unix.AF_INET6}))
	})
}

// cut has the router drop, without a word, what goes between the client's network a and the server.
func (n *testNetwork) cut() {
	n.router.Do(n.t, func() error {
		for _, prefix := range []string{"192.0.2.0/24", "2001:db8:a::/64"} {
			family, all := unix.AF_INET, "0.0.0.0/0"
			if netip.MustParsePrefix(prefix).Addr().Is6() {
				family, all = unix.AF_INET6, "::/0"
			}
			hole := &netlink.Route{Dst: mustNet(all), Table: cutTable, Type: unix.RTN_BLACKHOLE, Family: family}
			if err := netlink.RouteAdd(hole); err != nil {
				return fmt.Errorf("hole: %w", err)
			}
			for _, to := range []bool{false, true} {
				rule := netlink.NewRule()
				rule.Table, rule.Family, rule.Priority = cutTable, family, 10
				if rule.Src = mustNet(prefix); to {
					rule.Src, rule.Dst = nil, rule.Src
				}
				if err := netlink.RuleAdd(rule); err != nil {
					return fmt.Errorf("rule: %w", err)
				}
			}
		}
		return nil
	})
}

// link sets a link of the client up or down.
func (n *testNetwork) link(name string, up bool) {
	n.client.Do(n.t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	})
}

// connect sets up an association from the client to the server.
func (n *testNetwork) connect(c *Config, network, to string) (client, server *Conn) {
	n.t.Helper()
	var l *Listener
	n.server.Do(n.t, func() (err error) {
		l, err = c.Listen(context.Background(), network, ":5000")
		return err
	})
	n.t.Cleanup(func() { l.Close() })
	n.client.Do(n.t, func() (err error) {
		client, err = c.Dial(context.Background(), network, to)
		return err
	})
	server, err := l.AcceptSCTP(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		client.Abort("the test is over")
		server.Abort("the test is over")
	})
	return client, server
}
