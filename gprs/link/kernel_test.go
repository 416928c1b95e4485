// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestLinux has the kernel of a namespace as the terminal, with no more than its interface
// identifier:
//
//	kernel  ue0 (TUN) ---- Router
//
// It solicits, takes address, default route, MTU and name servers from the answer, and
// hears the router's echo.
func TestLinux(t *testing.T) {
	r := router(t)
	n, _, news, verdicts := kernelTerminal(t, r)
	options := serversOf(t, news)
	if want := r.advertisement[advertisedOptions+32+8:][:40]; !bytes.Equal(options, want) {
		t.Errorf("name servers %x, want %x", options, want)
	}
	if verdicts.of(Advertised) == 0 {
		t.Error("the kernel did not solicit")
	}
	n.Do(t, func() error { takenOver(t); return nil })
	n.Do(t, func() error { return echo(t) })
	if verdicts.of(EchoReplied) == 0 {
		t.Error("the kernel's echo request did not come")
	}
}

// TestLinuxRenumbered has that kernel renumbered: of the new prefix it makes an address for all that begins,
// and that of the former stays, deprecated, until its end.
func TestLinuxRenumbered(t *testing.T) {
	r := router(t)
	n, device, news, _ := kernelTerminal(t, r)
	serversOf(t, news)
	l := terminal
	l.Prefix, l.Former = terminal.Prefix+0x10000, []Former{{Prefix: terminal.Prefix, Valid: 3 * time.Hour}}
	var s State
	first, _ := r.Advertise(nil, l, &s, 0, time.Now())
	if err := device.WriteBatch([][]byte{first, r.AdvertiseFormer(nil, l, l.Former[0], 0, packet.AllNodes)}); err != nil {
		t.Fatal(err)
	}
	n.Do(t, func() error {
		ue, err := netlink.LinkByName("ue0")
		if err != nil {
			return err
		}
		var list []netlink.Addr
		for end := time.Now().Add(testutil.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if list, err = netlink.AddrList(ue, netlink.FAMILY_V6); err != nil {
				return err
			}
			has := map[netip.Addr]netlink.Addr{}
			for _, a := range list {
				ip, _ := netip.AddrFromSlice(a.IP)
				has[ip] = a
			}
			now, former := has[address(l.Prefix, l.ID)], has[address(terminal.Prefix, l.ID)]
			if now.IPNet != nil && now.Flags&(unix.IFA_F_DEPRECATED|unix.IFA_F_TENTATIVE) == 0 && former.IPNet != nil && former.Flags&unix.IFA_F_DEPRECATED != 0 && former.PreferedLft == 0 && former.ValidLft > 10000 && former.ValidLft <= 10800 {
				return nil
			}
		}
		t.Errorf("the kernel has %+v", list)
		return nil
	})
	n.Do(t, func() error { // what begins now takes the new one
		conn, err := net.Dial("udp6", "[2001:db8:99::1]:9")
		if err != nil {
			return err
		}
		defer conn.Close()
		if from := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr(); from != address(l.Prefix, l.ID) {
			t.Errorf("a packet leaves from %v", from)
		}
		return nil
	})
}

// kernelTerminal makes the kernel of a namespace a terminal of a router; news tells of name servers.
func kernelTerminal(t *testing.T, r *Router) (n *testutil.Netns, device *port.TUN, news *nl.NetlinkSocket, verdicts *counted) {
	n, verdicts = testutil.NewNetns(t), new(counted)
	n.Do(t, func() (err error) {
		const namesOfServers = 20 // RTNLGRP_ND_USEROPT of <linux/rtnetlink.h>
		if news, err = nl.Subscribe(unix.NETLINK_ROUTE, namesOfServers); err != nil {
			return err
		}
		device, err = port.OpenTUN(port.TUNConfig{Name: "ue0", MTU: 1500})
		return err
	})
	t.Cleanup(func() { news.Close() })
	done := make(chan struct{})
	go func() { defer close(done); serve(device, r, verdicts) }()
	t.Cleanup(func() { device.Close(); <-done })

	n.Do(t, func() error {
		link, err := netlink.LinkByName("ue0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: terminal.Address().AsSlice(), Mask: net.CIDRMask(64, 128)}})
	})
	return n, device, news, verdicts
}

// counted are verdicts by how often they were given.
type counted struct {
	sync.Mutex
	had [NumVerdicts]int
}

func (c *counted) of(v Verdict) int {
	c.Lock()
	defer c.Unlock()
	return c.had[v]
}

// serve answers packets of a device until it is closed.
func serve(device *port.TUN, r *Router, verdicts *counted) {
	var s State
	packets := make([][]byte, 16)
	for {
		n, err := device.ReadBatch(packets)
		if err != nil {
			return
		}
		for _, b := range packets[:n] {
			p, _, ok := packet.ParseIPv6(b)
			if !ok {
				continue
			}
			answer, v := r.Answer(nil, terminal, &s, p, time.Now())
			verdicts.Lock()
			verdicts.had[v]++
			verdicts.Unlock()
			if v.Answered() {
				_ = device.WriteBatch([][]byte{answer}) // lost like any packet: the test would wait
			}
		}
	}
}

// serversOf waits until the kernel tells programs of the name servers of an advertisement.
func serversOf(t *testing.T, news *nl.NetlinkSocket) []byte {
	t.Helper()
	if err := news.SetReceiveTimeout(&unix.Timeval{Sec: 20}); err != nil {
		t.Fatal(err)
	}
	for {
		messages, _, err := news.Receive()
		if err != nil {
			t.Fatal("no advertisement was taken: ", err)
		}
		const header = 16 // struct nduseroptmsg of <linux/rtnetlink.h>
		for _, m := range messages {
			if b := m.Data; len(b) > header+8 && b[header] == packet.NDResolvers && len(b) >= header+8*int(b[header+1]) {
				return b[header : header+8*int(b[header+1])]
			}
		}
	}
}

// takenOver compares what the kernel has made of the advertisement.
func takenOver(t *testing.T) {
	link, err := netlink.LinkByName("ue0")
	if err != nil {
		t.Fatal(err)
	}
	list, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, a := range list {
		ip, _ := netip.AddrFromSlice(a.IP)
		if ip == address(terminal.Prefix, terminal.ID) {
			found = true
			if a.ValidLft != 0 && uint32(a.ValidLft) != packet.Infinite {
				t.Errorf("the address ends in %d s", a.ValidLft)
			}
		}
	}
	if !found {
		t.Errorf("no address of the prefix among %v", list)
	}
	if mtu, err := os.ReadFile("/proc/sys/net/ipv6/conf/ue0/mtu"); err != nil || strings.TrimSpace(string(mtu)) != "1400" {
		t.Errorf("MTU %q, %v", mtu, err)
	}
	if limit, err := os.ReadFile("/proc/sys/net/ipv6/conf/ue0/hop_limit"); err != nil || strings.TrimSpace(string(limit)) != "64" {
		t.Errorf("hop limit %q, %v", limit, err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	byRouter := false
	for _, route := range routes {
		gateway, _ := netip.AddrFromSlice(route.Gw)
		byRouter = byRouter || gateway == RouterAddress && (route.Dst == nil || route.Dst.String() == "::/0")
		if route.Dst != nil && route.Dst.String() == terminal.prefix().String() {
			t.Errorf("the prefix is on the link: %v", route)
		}
	}
	if !byRouter {
		t.Errorf("no default route by the router among %v", routes)
	}
}

// echo sends an echo request to the router and waits for the reply.
func echo(t *testing.T) error {
	conn, err := net.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return err
	}
	defer conn.Close()
	request := []byte{packet.ICMPv6EchoRequest, 0, 0, 0, 7, 7, 0, 1, 'h', 'i'}
	if _, err := conn.WriteTo(request, &net.IPAddr{IP: RouterAddress.AsSlice(), Zone: "ue0"}); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	b := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(b)
		if err != nil {
			return err
		}
		if b[0] == packet.ICMPv6EchoReply {
			if !bytes.Equal(b[4:n], request[4:]) {
				t.Errorf("echo of %x", b[:n])
			}
			return nil
		}
	}
}
