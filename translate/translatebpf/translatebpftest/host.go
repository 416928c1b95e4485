// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpftest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
)

// The host of a NAT64, with two devices on either side and gateways that never fail.
var (
	ClientAddr  = netip.MustParseAddr("2001:db8:1::5")   // X'
	SlimClient  = netip.MustParseAddr("2001:db8:2::5")   // behind a link of 1280
	PoolAddr    = netip.MustParseAddr("192.0.2.130")     // T
	OwnAddr     = netip.MustParseAddr("192.0.2.1")       // T, and the host's
	ServerAddr  = netip.MustParseAddr("198.51.100.7")    // Z
	GlobalAddr  = netip.MustParseAddr("198.41.0.4")      // Z that the well-known prefix may represent
	SlimServer  = netip.MustParseAddr("203.0.113.7")     // behind a link of 1000
	LostServer  = netip.MustParseAddr("203.0.113.200")   // no route
	RouterAddr4 = netip.MustParseAddr("198.51.100.1")    // says that Z cannot be reached
	RouterAddr6 = netip.MustParseAddr("2001:db8:f:1::9") // the same of X'
)

const (
	ClientPort = 40001 // x
	PoolPort   = 50003 // t
	OwnPort    = 20005 // t, at the host's address
	ServerPort = 443   // z
)

// Port is one Ethernet device of the host.
type Port struct {
	name  string
	MAC   net.HardwareAddr
	mtu   int
	addrs []string
	Index int
}

func MAC(n byte) net.HardwareAddr { return net.HardwareAddr{0x02, 0, 0x5e, 0, 0x20, n} }

// Way is a route of the host.
type Way struct {
	To, Gateway string
	MAC         net.HardwareAddr
	Port        int
}

var Ways = []Way{
	{"198.51.100.0/24", "192.0.2.2", MAC(101), 0},
	{"198.41.0.0/24", "192.0.2.2", MAC(101), 0},
	{"203.0.113.0/25", "192.0.2.66", MAC(102), 1},
	{"2001:db8:1::/48", "2001:db8:f:1::2", MAC(103), 2},
	{"2001:db8:3::/48", "2001:db8:f:1::2", MAC(103), 2},
	{"2001:db8:2::/48", "2001:db8:f:2::2", MAC(104), 3},
	{"2001:db8:64::c000:2b0/124", "2001:db8:f:1::2", MAC(103), 2}, // hosts whose addresses are made by a prefix
}

// Host is a host with routes, of a translator whose programs run by the kernel's test
// Run.
type Host struct {
	NS    *testutil.Netns
	Ports []*Port

	counts runtest.Counts
}

// NewHost makes the host.
func NewHost(t testing.TB) Host {
	t.Helper()
	h := Host{NS: testutil.NewNetns(t), Ports: []*Port{
		{name: "four0", MAC: MAC(1), mtu: 1500, addrs: []string{"192.0.2.1/26"}},
		{name: "four1", MAC: MAC(2), mtu: 1000, addrs: []string{"192.0.2.65/26"}},
		{name: "six0", MAC: MAC(3), mtu: 1500, addrs: []string{"2001:db8:f:1::1/64"}},
		{name: "six1", MAC: MAC(4), mtu: 1280, addrs: []string{"2001:db8:f:2::1/64"}},
		{name: "tun", MAC: MAC(5), mtu: 1500},
	}}
	h.NS.Do(t, h.build)
	return h
}

// build makes devices, routes and neighbours in the thread's namespace.
func (h *Host) build() error {
	for _, p := range h.Ports {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.MTU = p.name, p.MAC, p.mtu
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: p.name + "p"}); err != nil {
			return fmt.Errorf("cannot make %s: %w", p.name, err)
		}
		for _, name := range []string{p.name, p.name + "p"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
			if name != p.name {
				continue
			}
			p.Index = link.Attrs().Index
			for _, a := range p.addrs {
				addr, err := netlink.ParseAddr(a)
				if err != nil {
					return err
				}
				addr.Flags = 0x02 // IFA_F_NODAD
				if err := netlink.AddrAdd(link, addr); err != nil {
					return err
				}
			}
		}
	}
	for _, name := range []string{"ipv6/conf/all", "ipv4/conf/tun"} {
		if err := os.WriteFile("/proc/sys/net/"+name+"/forwarding", []byte("1"), 0); err != nil {
			return err
		}
	}
	for _, r := range Ways {
		to, err := netlink.ParseIPNet(r.To)
		if err != nil {
			return err
		}
		at := h.Ports[r.Port].Index
		n := netlink.Neigh{LinkIndex: at, IP: net.ParseIP(r.Gateway), HardwareAddr: r.MAC, State: netlink.NUD_PERMANENT}
		if err := netlink.NeighSet(&n); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(r.Gateway), LinkIndex: at}); err != nil {
			return fmt.Errorf("cannot route %s: %w", r.To, err)
		}
	}
	return nil
}

// Pool6 are the prefixes, of all lengths.
var Pool6 = []netip.Prefix{
	netip.MustParsePrefix("2001:db8:64::/96"), translate.WellKnownPrefix,
	netip.MustParsePrefix("3fff:100::/32"), netip.MustParsePrefix("3fff:200:100::/40"),
	netip.MustParsePrefix("3fff:300:1::/48"), netip.MustParsePrefix("3fff:400:1:100::/56"),
	netip.MustParsePrefix("3fff:500:1:1::/64"),
}
