// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
)

// bridgeName is the bridge device inside a bridge node.
const bridgeName = "br0"

// quietSysctls make a fresh namespace predictable: addresses are usable at
// once, no one solicits routers, and the reverse path is not filtered, since
// several topologies are asymmetric on purpose. TCP controls congestion as every
// kernel can (RFC 5681), not as the host has chosen: BBR, for one, sends a segment
// a second for minutes after a time of loss.
var quietSysctls = [][2]string{
	{"net.ipv6.conf.all.accept_dad", "0"},
	{"net.ipv6.conf.default.accept_dad", "0"},
	{"net.ipv6.conf.default.dad_transmits", "0"},
	{"net.ipv6.conf.default.router_solicitations", "0"},
	{"net.ipv4.conf.all.rp_filter", "0"},
	{"net.ipv4.conf.default.rp_filter", "0"},
	{"net.ipv4.ip_forward", "0"},
	{"net.ipv4.tcp_congestion_control", "reno"},
}

// Node is a host of the topology: one network namespace.
type Node struct {
	lab    *Lab
	name   string
	kernel Kernel
	bridge bool
	ports  int  // ports of a bridge named so far
	inner  bool // the middle of a wire: no IP, and nothing for people
}

// Node makes a node, with its loopback interface up.
func (l *Lab) Node(name string) *Node { return l.node(name, false) }

func (l *Lab) node(name string, inner bool) *Node {
	n := &Node{lab: l, name: name, inner: inner}
	if l.begin() == nil {
		defer l.steps.Done()
		l.fail(n.create())
	}
	return n
}

// Bridge makes a node that is a switch: Link joins it to others by ports.
// Addresses, if any, go on its interface br0.
func (l *Lab) Bridge(name string) *Node {
	n := l.Node(name)
	n.bridge = true
	n.draw("bridge", func() error {
		// Snooping delays neighbour discovery, which is multicast.
		off := false
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName, HardwareAddr: l.nextMAC()}, MulticastSnooping: &off}
		if err := n.kernel.LinkAdd(br); err != nil {
			return err
		}
		return n.kernel.LinkSetUp(br)
	})
	return n
}

func (n *Node) create() error {
	l := n.lab
	if !isName(n.name) {
		return fmt.Errorf("%q is no name for a node: use a to z, 0 to 9 and -", n.name)
	}
	l.mu.Lock()
	taken := l.nodes[n.name] != nil
	if !taken {
		l.nodes[n.name] = n
	}
	l.mu.Unlock()
	if taken {
		return fmt.Errorf("two nodes are named %s", n.name)
	}
	ns, err := createNamespace(n.Namespace())
	if err != nil {
		return err
	}
	if err := n.kernel.open(ns); err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	l.mu.Lock()
	if n.inner {
		l.state.Inner = append(l.state.Inner, n.name)
	} else {
		l.state.Nodes = append(l.state.Nodes, n.name)
	}
	err = l.state.write(l.dir)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	for _, s := range quietSysctls {
		if err := n.sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return n.setUp("lo")
}

// draw runs one step of drawing, unless an earlier one failed.
func (n *Node) draw(what string, step func() error) *Node {
	if n.lab.begin() != nil {
		return n
	}
	defer n.lab.steps.Done()
	if err := step(); err != nil {
		n.lab.fail(fmt.Errorf("node %s: %s: %w", n.name, what, err))
	}
	return n
}

// Name is the name given to the node.
func (n *Node) Name() string { return n.name }

// SetControl tells where the control socket of the Isthmus in this node is, so
// that isthmus status finds it in a shell there.
func (n *Node) SetControl(socket string) error {
	l := n.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Controls == nil {
		l.state.Controls = map[string]string{}
	}
	l.state.Controls[n.name] = socket
	return l.state.write(l.dir)
}

// Lab is the run the node belongs to.
func (n *Node) Lab() *Lab { return n.lab }

// Namespace is the path of the node's network namespace.
func (n *Node) Namespace() string { return filepath.Join(n.lab.dir, namespaceDir, n.name) }

// Kernel is for what the methods here do not offer of links, addresses and routes in the node's
// namespace. Once the lab is closed all it does is an error.
func (n *Node) Kernel() *Kernel { return &n.kernel }

// Addr gives an interface addresses with their prefix lengths, for example
// "192.0.2.1/24". IPv6 addresses are usable at once.
func (n *Node) Addr(iface string, prefixes ...string) *Node {
	for _, p := range prefixes {
		n.draw("address "+p+" on "+iface, func() error {
			link, addr, err := n.linkAddr(iface, p)
			if err != nil {
				return err
			}
			if err := n.kernel.AddrAdd(link, addr); err != nil {
				return err
			}
			return n.awaitAddress(link, addr)
		})
	}
	return n
}

// RemoveAddr takes addresses from an interface.
func (n *Node) RemoveAddr(iface string, prefixes ...string) *Node {
	for _, p := range prefixes {
		n.draw("removal of address "+p+" from "+iface, func() error {
			link, addr, err := n.linkAddr(iface, p)
			if err != nil {
				return err
			}
			return n.kernel.AddrDel(link, addr)
		})
	}
	return n
}

func (n *Node) linkAddr(iface, prefix string) (netlink.Link, *netlink.Addr, error) {
	link, err := n.kernel.LinkByName(iface)
	if err != nil {
		return nil, nil, err
	}
	addr, err := netlink.ParseAddr(prefix)
	return link, addr, err
}

// Route adds a route. The destination is a prefix, "default" (of the family
// of via) or "default6"; via is a gateway's address, with %IFACE if it is
// link-local, or the name of an interface.
func (n *Node) Route(destination, via string) *Node {
	return n.draw("route "+destination+" via "+via, func() error {
		r, err := n.parseRoute(destination, via)
		if err != nil {
			return err
		}
		return n.kernel.RouteReplace(r)
	})
}

// RemoveRoute takes away a route that Route added.
func (n *Node) RemoveRoute(destination, via string) *Node {
	return n.draw("removal of route "+destination+" via "+via, func() error {
		r, err := n.parseRoute(destination, via)
		if err != nil {
			return err
		}
		return n.kernel.RouteDel(r)
	})
}

func (n *Node) parseRoute(destination, via string) (*netlink.Route, error) {
	r := &netlink.Route{}
	iface := via
	gateway, gatewayErr := netip.ParseAddr(via)
	if gatewayErr == nil {
		iface = gateway.Zone()
		r.Gw = gateway.WithZone("").AsSlice()
	}
	if iface != "" {
		link, err := n.kernel.LinkByName(iface)
		if err != nil {
			return nil, err
		}
		r.LinkIndex = link.Attrs().Index
	}
	text := destination
	switch {
	case destination == "default6", destination == "default" && gateway.Is6():
		text = "::/0"
	case destination == "default":
		text = "0.0.0.0/0"
	}
	dst, err := netlink.ParseIPNet(text)
	if err != nil {
		return nil, err
	}
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		dst.IP = p.Masked().Addr().AsSlice()
	}
	r.Dst = dst
	return r, nil
}

// Know enters a neighbour at an interface for good, be it there or not.
func (n *Node) Know(iface string, addr netip.Addr, mac net.HardwareAddr) error {
	link, err := n.kernel.LinkByName(iface)
	if err != nil {
		return err
	}
	return n.kernel.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
	})
}

// Meet enters an address of another node, at whose interface of the same name it is, as a neighbour for good.
func (n *Node) Meet(iface string, addr netip.Addr, other *Node) error {
	theirs, err := other.kernel.LinkByName(iface)
	if err != nil {
		return err
	}
	return n.Know(iface, addr, theirs.Attrs().HardwareAddr)
}

// Forward switches forwarding on or off.
func (n *Node) Forward(v4, v6 bool) *Node {
	return n.Sysctl("net.ipv4.ip_forward", digit(v4)).Sysctl("net.ipv6.conf.all.forwarding", digit(v6))
}

func digit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// Sysctl sets a kernel variable of the node's namespace, written with dots.
func (n *Node) Sysctl(key, value string) *Node {
	return n.draw("sysctl", func() error { return n.sysctl(key, value) })
}

func (n *Node) sysctl(key, value string) error {
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	err := n.inside(func() error { return os.WriteFile(path, []byte(value), 0) })
	if err != nil {
		return fmt.Errorf("cannot set %s to %s: %w", key, value, err)
	}
	return nil
}

// Up switches an interface on.
func (n *Node) Up(iface string) *Node {
	return n.draw("interface "+iface+" up", func() error { return n.setUp(iface) })
}

// Down switches an interface off; the other end of its link loses its carrier.
func (n *Node) Down(iface string) *Node {
	return n.draw("interface "+iface+" down", func() error {
		link, err := n.kernel.LinkByName(iface)
		if err != nil {
			return err
		}
		return n.kernel.LinkSetDown(link)
	})
}

func (n *Node) setUp(iface string) error {
	link, err := n.kernel.LinkByName(iface)
	if err != nil {
		return err
	}
	return n.kernel.LinkSetUp(link)
}

// Do runs f on a thread inside the node. Sockets that f opens stay there;
// f must not leave work to other goroutines that opens more.
func (n *Node) Do(f func() error) error {
	if err := n.ready(); err != nil {
		return err
	}
	return n.inside(f)
}

// ready reports why the node cannot be used, if so.
func (n *Node) ready() error {
	if err := n.lab.Err(); err != nil {
		return err
	}
	if !n.kernel.there() {
		return errNoNode
	}
	return nil
}

// inside runs f on a thread inside the node, which stays there although the lab is closed.
func (n *Node) inside(f func() error) error {
	ns, err := n.kernel.namespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	return inNamespace(ns, f)
}
