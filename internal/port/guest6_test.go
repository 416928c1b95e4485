// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

var (
	guestNet   = netip.MustParsePrefix("2001:db8:1::/64")
	guestAddr  = netip.MustParseAddr("2001:db8:1::99")
	guestOther = netip.MustParseAddr("2001:db8:1::98")
	guestPeer  = netip.MustParseAddr("2001:db8:1::1")
)

// guestLink joins two namespaces by a link that carries packets, and returns what the first one's link is.
func guestLink(t *testing.T) (here, there *testutil.Netns, link Uplink6) {
	t.Helper()
	here, there = testutil.NewNetns(t), testutil.NewNetns(t)
	here.AddressesAtOnce(t)
	there.AddressesAtOnce(t)
	here.Do(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "up0", PeerNamespace: netlink.NsFd(there.Handle())})
	})
	for ns, addr := range map[*testutil.Netns]string{here: "2001:db8:1::2/64", there: "2001:db8:1::1/64"} {
		ns.Do(t, func() error {
			l, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			a, err := netlink.ParseAddr(addr)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			return errors.Join(netlink.AddrAdd(l, a), netlink.LinkSetUp(l))
		})
	}
	here.AwaitLinks(t, "up0")
	there.AwaitLinks(t, "up0")
	here.Do(t, func() error {
		h, err := OpenHost()
		if err != nil {
			return err
		}
		link, err = h.Uplink6("up0", "clat", netip.Prefix{})
		return errors.Join(err, h.Close())
	})
	return here, there, link
}

// openGuest opens a guest there, and closes it with the test.
func openGuest(t *testing.T, ns *testutil.Netns, link Uplink6) (g *Guest6) {
	t.Helper()
	ns.Do(t, func() (err error) { g, err = OpenGuest6(link, guestAddr); return err })
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// guestNeighbour tells a namespace the link address of one of the other.
func guestNeighbour(t *testing.T, ns *testutil.Netns, addr netip.Addr, mac net.HardwareAddr) {
	t.Helper()
	ns.Do(t, func() error {
		l, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: unix.NUD_PERMANENT})
	})
}

// send sends a UDP packet of that size from a namespace.
func send(t *testing.T, ns *testutil.Netns, to netip.Addr, payload []byte) {
	t.Helper()
	ns.Do(t, func() error {
		conn, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(payload)
		return err
	})
}

// nextOf is the next packet that the guest takes, without Neighbor Discovery.
func nextOf(t *testing.T, g *Guest6) packet.IPv6 {
	t.Helper()
	stop := time.AfterFunc(testutil.Patience, func() { _ = g.Close() })
	defer stop.Stop()
	for {
		pkts := make([][]byte, 1)
		if _, err := g.ReadBatch(pkts); err != nil {
			t.Fatal(err)
		}
		p, _, ok := packet.ParseIPv6(pkts[0])
		if !ok {
			t.Fatalf("took %x", pkts[0])
		}
		if p.NextHeader() != packet.ProtoICMPv6 {
			return p
		}
	}
}

func TestUplink6(t *testing.T) {
	_, _, link := guestLink(t)
	if link.Name != "up0" || link.Subnet != guestNet || link.MTU != 1500 || len(link.MAC) != 6 {
		t.Errorf("the uplink is %+v", link)
	}
}

// TestGuestTakes has packets for the guest, for others, and from the host itself.
func TestGuestTakes(t *testing.T) {
	here, there, link := guestLink(t)
	g := openGuest(t, here, link)
	guestNeighbour(t, there, guestAddr, link.MAC)
	guestNeighbour(t, there, guestOther, link.MAC)
	guestNeighbour(t, here, guestAddr, link.MAC)
	send(t, there, guestOther, []byte("for another"))
	send(t, here, guestAddr, []byte("by the host itself"))
	for _, size := range []int{1, 1452} {
		payload := bytes.Repeat([]byte{7}, size)
		send(t, there, guestAddr, payload)
		p := nextOf(t, g)
		if p.Src() != guestPeer || p.Dst() != guestAddr || !bytes.HasSuffix(p, payload) || len(p) != 48+size {
			t.Errorf("took %x", []byte(p))
		}
		src, dst := p.Src().As16(), p.Dst().As16()
		if got := packet.Checksum(&src, &dst, packet.ProtoUDP, p[packet.IPv6HeaderLen:]); got != 0 {
			t.Errorf("the checksum of %d bytes is off by %04x: the sender left it to its card", size, got)
		}
	}
	if st := g.Stats(); st.ReadPackets < 2 || st.ReadMalformed+st.ReadTruncated > 0 {
		t.Errorf("counted %+v", st)
	}
}

// TestGuestHearsSolicitations is asked who has the address: the group was joined.
func TestGuestHearsSolicitations(t *testing.T) {
	here, there, link := guestLink(t)
	g := openGuest(t, here, link)
	send(t, there, guestAddr, []byte("who has it?"))
	stop := time.AfterFunc(testutil.Patience, func() { _ = g.Close() })
	defer stop.Stop()
	pkts := make([][]byte, 1)
	if _, err := g.ReadBatch(pkts); err != nil {
		t.Fatal(err)
	}
	p, _, ok := packet.ParseIPv6(pkts[0])
	m, icmp := p.ICMPv6()
	if !ok || !icmp || p.Dst() != packet.SolicitedNode(guestAddr) || m[0] != packet.ICMPv6NeighborSolicitation {
		t.Errorf("heard %x", pkts[0])
	}
}

// TestGuestSends has a packet leave with the guest's source.
func TestGuestSends(t *testing.T) {
	here, there, link := guestLink(t)
	g := openGuest(t, here, link)
	var conn *net.UDPConn
	there.Do(t, func() (err error) {
		conn, err = net.ListenUDP("udp6", &net.UDPAddr{Port: 9})
		return err
	})
	defer conn.Close()
	udp := append([]byte{0, 5, 0, 9, 0, 13, 0, 0}, "hello"...)
	src, dst := guestAddr.As16(), guestPeer.As16()
	binary.BigEndian.PutUint16(udp[6:], packet.Checksum(&src, &dst, packet.ProtoUDP, udp))
	out := append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, len(udp), guestAddr, guestPeer), udp...)
	if err := g.WriteBatch([][]byte{out}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 64)
	n, from, err := conn.ReadFromUDPAddrPort(got)
	if err != nil || string(got[:n]) != "hello" || from.Addr() != guestAddr {
		t.Errorf("received %q from %v: %v", got[:n], from, err)
	}
}

func TestGuestCloses(t *testing.T) {
	here, _, link := guestLink(t)
	g := openGuest(t, here, link)
	ended := make(chan error, 1)
	go func() {
		_, err := g.ReadBatch(make([][]byte, 1))
		ended <- err
	}()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("a waiting read ended with %v", err)
	}
	if _, err := g.ReadBatch(make([][]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("a read afterwards: %v", err)
	}
}

// TestGuestWithoutLink names a link that is not there.
func TestGuestWithoutLink(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		if g, err := OpenGuest6(Uplink6{Name: "gone0", Index: 99, MTU: 1500}, guestAddr); err == nil {
			_ = g.Close()
			t.Error("opened")
		}
		return nil
	})
}
