// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil_test

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// The first datagram between two namespaces arrives once their devices are ready.
func TestLinksAreReady(t *testing.T) {
	a, b := testutil.NewNetns(t), testutil.NewNetns(t)
	for _, n := range []*testutil.Netns{a, b} {
		n.AddressesAtOnce(t)
	}
	address := func(ip string) {
		t.Helper()
		link, err := netlink.LinkByName("wire")
		if err != nil {
			t.Error(err)
			return
		}
		addr, _ := netlink.ParseAddr(ip)
		if err := netlink.AddrAdd(link, addr); err != nil {
			t.Error(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Error(err)
		}
	}
	a.Do(t, func() error {
		defer address("2001:db8::1/64")
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "wire"}, PeerName: "wire", PeerNamespace: netlink.NsFd(b.Handle()),
		})
	})
	b.Do(t, func() error { address("2001:db8::2/64"); return nil })
	a.AwaitLinks(t, "wire")
	b.AwaitLinks(t, "wire")
	var to, from net.Conn
	b.Do(t, func() (err error) {
		to, err = net.ListenUDP("udp6", &net.UDPAddr{IP: net.ParseIP("2001:db8::2"), Port: 7})
		return err
	})
	defer to.Close()
	a.Do(t, func() (err error) {
		from, err = net.Dial("udp6", "[2001:db8::2]:7")
		return err
	})
	defer from.Close()
	if _, err := from.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := to.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := to.Read(make([]byte, 10)); n != 5 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}
