// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/lab"
)

// Addresses of the topology of the applications.
var (
	appHost6   = netip.MustParseAddr("2001:db8:1::2")
	appRouter6 = netip.MustParseAddr("2001:db8:1::1") // seen by host6
	appCore6   = netip.MustParseAddr("2001:db8:3::2") // seen by router6
	appBox6    = netip.MustParseAddr("2001:db8:2::2")
	appBox4    = netip.MustParseAddr("198.51.100.1")
	appRouter4 = netip.MustParseAddr("192.0.2.1")     // seen by host4
	appInner4  = netip.MustParseAddr("198.51.100.2")  // seen by the box
	taygaOwn4  = netip.MustParseAddr("203.0.113.254") // of a stateless translator's errors
	appHost4   = netip.MustParseAddr("192.0.2.9")
	appMapped  = netip.MustParseAddr("203.0.113.1") // stands for host6 in IPv4
	appPrefix  = netip.MustParsePrefix("2001:db8:64::/96")
	appRouters = netip.MustParsePrefix("203.0.113.64/29") // stand for IPv6 routers in IPv4
)

// Ports and the identifier by which hosts of the IPv4 side reach host6, by static
// bindings where the translator is stateful.
const (
	webPort      = 80
	fingerPort   = 79
	telnetPort   = 23
	nuttcpPort   = 5000
	nuttcpData   = 5001
	closedPort   = 33434 // UDP, with no one behind it
	sinkPort     = 33435 // UDP, where someone listens
	echoIdent    = 1998  // of pings
	traceIdent   = 1     // of traceroute's echo requests: its process id
	smallLink    = 1400  // MTU of the ways to the hosts
	reassembling = "1"   // seconds that hosts wait for fragments
)

// appNet is the topology of the applications and of the ICMP errors.
//
//	host6 ---- router6 ---- core6 ---- box ---- router4 ---- host4
//	  2001:db8:1::/64 :3::/64   :2::/64  198.51.100.0/28 192.0.2.0/24
//
// To host6 the IPv4 host is 2001:db8:64::192.0.2.9, to host4 the IPv6 host is
// 203.0.113.1.
type appNet struct {
	way                                        way
	env                                        *lab.Env
	lab                                        *lab.Lab
	host6, router6, core6, box, router4, host4 *lab.Node
	process                                    *lab.Proc
	translator                                 translator
	dir                                        string
}

// router6In4 holds the IPv4 address that errors of an IPv6 router have behind the
// translator: one of the pool of ours, tayga's own (RFC 6791).
func (n *appNet) router6In4() netip.Prefix {
	if n.way == wayTayga {
		return netip.PrefixFrom(taygaOwn4, 32)
	}
	return appRouters
}

// host4In6 is host4 as host6 sees it.
func host4In6() netip.Addr { return translated(appPrefix, appHost4) }

// newAppNet draws the topology and starts the translator.
func newAppNet(ctx context.Context, e *lab.Env, w way) (_ *appNet, err error) {
	l, err := e.New(ctx, naptApplicationsName+"-"+w.name)
	if err != nil {
		return nil, err
	}
	n := &appNet{env: e, way: w, lab: l}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	n.draw()
	if err := l.Err(); err != nil {
		return nil, err
	}
	if n.dir, err = l.TempDir(0o755); err != nil { // the web server is no one
		return nil, err
	}
	if w == wayXDP {
		// What is redirected as frames arrives only where someone takes frames.
		if err := errors.Join(n.core6.EnableGRO("box"), n.router4.EnableGRO("box")); err != nil {
			return nil, err
		}
	}
	n.translator = translator{
		way: w, name: "nat64", router: n.box, prefix: appPrefix, client: appHost6, mapped: appMapped,
		more: appStatics(),
	}
	if n.process, err = n.translator.start(ctx, e, n.dir); err != nil {
		return nil, err
	}
	return n, n.await(ctx)
}

// appStatics are the lines of the section for what must be reached from IPv4.
func appStatics() string {
	text := fmt.Sprintf("ftp = true\nrouter_pool4 = [%q]\nstatic = [\n", appRouters)
	line := func(transport string, port int) {
		text += fmt.Sprintf("  %q,\n", fmt.Sprintf("%s [%s]:%d %s:%d", transport, appHost6, port, appMapped, port))
	}
	for _, port := range []int{webPort, fingerPort, telnetPort, ftpPort, nuttcpPort, nuttcpData} {
		line("tcp", port)
	}
	line("udp", closedPort)
	line("udp", sinkPort)
	line("icmp", echoIdent)
	line("icmp", traceIdent)
	return text + "]\n"
}

func (n *appNet) draw() {
	l := n.lab
	n.host6, n.router6, n.core6 = l.Node("host6"), l.Node("router6"), l.Node("core6")
	n.box, n.router4, n.host4 = l.Node("box"), l.Node("router4"), l.Node("host4")
	l.Link(n.host6, "eth0", n.router6, "hosts")
	l.Link(n.router6, "core", n.core6, "edge")
	l.Link(n.core6, "box", n.box, "in6")
	l.Link(n.box, "out4", n.router4, "box")
	l.Link(n.router4, "hosts", n.host4, "eth0")
	n.router6.Forward(false, true).Addr("hosts", appRouter6.String()+"/64").Addr("core", "2001:db8:3::1/64").Route("default6", appCore6.String())
	n.core6.Forward(false, true).Addr("edge", appCore6.String()+"/64").Addr("box", "2001:db8:2::1/64")
	n.core6.Route("2001:db8:1::/64", "2001:db8:3::1").Route(appPrefix.String(), appBox6.String())
	n.host6.Addr("eth0", appHost6.String()+"/64").Route("default6", appRouter6.String())
	n.box.Forward(true, true).Addr("in6", appBox6.String()+"/64").Addr("out4", appBox4.String()+"/28")
	n.box.Route("2001:db8:1::/64", "2001:db8:2::1").Route("192.0.2.0/24", appInner4.String())
	n.router4.Forward(true, false).Addr("box", appInner4.String()+"/28").Addr("hosts", appRouter4.String()+"/24")
	n.router4.Route(appMapped.String()+"/32", appBox4.String())
	n.host4.Addr("eth0", appHost4.String()+"/24").Route("default", appRouter4.String())
	for _, node := range []*lab.Node{n.host6, n.router6, n.core6, n.box, n.router4, n.host4} {
		// Errors are caused one after the other; no one shall save them.
		node.Sysctl("net.ipv4.icmp_ratelimit", "0").Sysctl("net.ipv6.icmp.ratelimit", "0")
	}
	n.host4.Sysctl("net.ipv4.ipfrag_time", reassembling)
	n.host6.Sysctl("net.ipv6.ip6frag_time", reassembling)
}

// await waits until a ping comes through.
func (n *appNet) await(ctx context.Context) error {
	return awaitPing(ctx, n.way, n.process, naptReady, func() (bool, error) {
		r, err := n.host6.Ping(ctx, lab.Ping{To: host4In6(), Timeout: 100 * time.Millisecond})
		return r.Received() == 1, err
	})
}

// shrink makes the routers send less at once to the hosts. It is by their routes:
// what leaves a cable's end is not judged by the MTU of the other one then.
func (n *appNet) shrink() error {
	for _, end := range []struct {
		router *lab.Node
		host   netip.Addr
	}{{n.router6, appHost6}, {n.router4, appHost4}} {
		if err := narrow(end.router, "hosts", end.host, smallLink); err != nil {
			return err
		}
	}
	return nil
}

// narrow has a router send less at once to a host.
func narrow(router *lab.Node, iface string, host netip.Addr, mtu int) error {
	link, err := router.Kernel().LinkByName(iface)
	if err != nil {
		return err
	}
	to := &net.IPNet{IP: host.AsSlice(), Mask: net.CIDRMask(host.BitLen(), host.BitLen())}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, MTU: mtu, MTULock: true}
	if err := router.Kernel().RouteReplace(route); err != nil {
		return fmt.Errorf("the route to %v of node %s cannot be narrowed: %w", host, router.Name(), err)
	}
	return nil
}

// mac is the link address of an interface.
func mac(node *lab.Node, iface string) (net.HardwareAddr, error) {
	link, err := node.Kernel().LinkByName(iface)
	if err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, nil
}

// healthy reports whether the translator has ended.
func (n *appNet) healthy() error { return alive(n.way.title, n.process) }

func (n *appNet) close() { _ = n.lab.Close() }
