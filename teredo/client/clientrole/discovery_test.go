// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/server/serverrole"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// neighbourRig is two hosts on one link behind a NAT that does not hairpin:
//
//	a 192.168.1.2 --+-- 192.168.1.1 nat 198.51.100.2 -- 198.51.100.1 server 203.0.113.1, .2
//	b 192.168.1.3 --+
type neighbourRig struct{ a, b *testutil.Netns }

func newNeighbourRig(t *testing.T) *neighbourRig {
	t.Helper()
	r := &neighbourRig{a: testutil.NewNetns(t), b: testutil.NewNetns(t)}
	nat, router := testutil.NewNetns(t), testutil.NewNetns(t)
	teredotest.Link(t, router, nat, "out", []string{"198.51.100.1/24", "203.0.113.1/32", "203.0.113.2/32"}, "198.51.100.2/24")
	teredotest.Link(t, nat, r.a, "a", nil, "192.168.1.2/24")
	teredotest.Link(t, nat, r.b, "b", nil, "192.168.1.3/24")
	nat.Do(t, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		for _, name := range []string{"a", "b"} {
			port, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(port, bridge); err != nil {
				return err
			}
		}
		if err := teredotest.SetUp("br", "192.168.1.1/24"); err != nil {
			return err
		}
		if err := defaultRoute("198.51.100.1"); err != nil {
			return err
		}
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(`table ip nat_box {
			chain in { type filter hook input priority 0; iifname "out" meta l4proto udp drop; }
			chain post { type nat hook postrouting priority 100; oifname "out" masquerade; }
		}`)
		if text, err := nft.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, text)
		}
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	})
	for _, ns := range []*testutil.Netns{r.a, r.b} {
		ns.Do(t, func() error { return defaultRoute("192.168.1.1") })
	}
	cfg := *configtest.One(t, serverrole.Role.Section, serverrole.Role.Section.Smallest()).(*serverrole.Settings)
	cfg.Address, cfg.Secondary = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	server, err := serverrole.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, router, server)
	return r
}

// Two neighbours find each other by multicast alone, and data stays on the link.
func TestClientDiscoversNeighbour(t *testing.T) {
	r := newNeighbourRig(t)
	discover := func(c *Settings) {
		c.LocalDiscovery, c.Hairpin, c.Unsolicited = true, false, UnsolicitedAllow
	}
	a, logA := newClient(t, discover)
	b, _ := newClient(t, discover)
	roletest.Start(t, r.a, a)
	roletest.Start(t, r.b, b)
	sa, sb := await(t, a, "qualified", qualified), await(t, b, "qualified", qualified)
	awaitDevice(t, r.a, deviceWith(sa.Address)...)
	awaitDevice(t, r.b, deviceWith(sb.Address)...)
	var from, to *net.UDPConn
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(sb.Address, 7))
	r.b.Do(t, func() (err error) { to, err = net.ListenUDP("udp6", at); return err })
	defer to.Close()
	r.a.Do(t, func() (err error) { from, err = net.DialUDP("udp6", nil, at); return err })
	defer from.Close()
	began := time.Now()
	if _, err := from.Write([]byte("next door")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	_ = to.SetReadDeadline(time.Now().Add(testutil.Patience))
	if n, _, err := to.ReadFromUDPAddrPort(buf); err != nil || string(buf[:n]) != "next door" {
		t.Fatalf("got %q, %v\n%s", buf[:n], err, logA)
	}
	t.Logf("the first packet took %v", time.Since(began))
	peers, total := a.Peers(10)
	if total != 1 || peers[0].Mapped.Addr() != netip.MustParseAddr("192.168.1.3") {
		t.Errorf("peers %+v of %d", peers, total)
	}
}
