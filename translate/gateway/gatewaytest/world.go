// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// World is a gateway between an IPv6 host and an IPv4 host:
//
//	six 2001:db8:6::2 -- v6 -- 2001:db8:6::1 gateway 192.0.2.1 -- v4 -- 192.0.2.2 four
type World struct {
	Gateway, Six, Four *testutil.Netns
	Stop, Leave        func() error
}

var (
	SixAddr  = netip.MustParseAddr("2001:db8:6::2")
	FourAddr = netip.MustParseAddr("192.0.2.2")
	Gateway4 = netip.MustParseAddr("192.0.2.1")
)

func NewWorld(t *testing.T) *World {
	t.Helper()
	w := &World{Gateway: testutil.NewNetns(t), Six: testutil.NewNetns(t), Four: testutil.NewNetns(t)}
	for _, ns := range []*testutil.Netns{w.Gateway, w.Six, w.Four} {
		ns.AddressesAtOnce(t)
	}
	w.Six.Show(t) // old kernels tell nothing of a device whose far end is hidden
	w.Four.Show(t)
	connect(t, w.Gateway, w.Six, "v6", "2001:db8:6::1/64", "2001:db8:6::2/64")
	connect(t, w.Gateway, w.Four, "v4", "192.0.2.1/24", "192.0.2.2/24")
	w.Gateway.Do(t, func() error {
		return errors.Join(
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0))
	})
	w.Six.Do(t, func() error { return DefaultRoute("2001:db8:6::1") })
	w.Four.Do(t, func() error { return DefaultRoute("192.0.2.1") })
	return w
}

func DefaultRoute(gateway string) error {
	return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)})
}

// connect joins two namespaces by a veth pair whose ends have one name, and which carries
// packets then.
func connect(t *testing.T, a, b *testutil.Netns, name, addrA, addrB string) {
	t.Helper()
	a.Do(t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(b.Handle())}
		return errors.Join(netlink.LinkAdd(veth), Address(name, addrA))
	})
	b.Do(t, func() error { return errors.Join(Address(name, addrB), testutil.ReceiveByNAPI(name, true)) })
	a.AwaitLinks(t, name)
	b.AwaitLinks(t, name)
}

// Address gives a link an address and brings it up.
func Address(link, addr string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	a.Flags = unix.IFA_F_NODAD
	return errors.Join(netlink.AddrAdd(l, a), netlink.LinkSetUp(l))
}

// Start runs an instance in the gateway and waits until it serves.
func (w *World) Start(t *testing.T, i role.Instance) {
	t.Helper()
	r := roletest.Start(t, w.Gateway, i)
	w.Stop, w.Leave = r.Stop, r.Leave
}

// Socket is a UDP socket that tells the hop limits of what it receives.
type Socket struct {
	Conn *net.UDPConn
	six  *ipv6.PacketConn
	four *ipv4.PacketConn
}

// Open opens a UDP socket in a namespace.
func Open(t *testing.T, ns *testutil.Netns, at netip.AddrPort) *Socket {
	t.Helper()
	s := new(Socket)
	ns.Do(t, func() (err error) {
		if s.Conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
			return err
		}
		if at.Addr().Is6() {
			s.six = ipv6.NewPacketConn(s.Conn)
			return s.six.SetControlMessage(ipv6.FlagHopLimit, true)
		}
		s.four = ipv4.NewPacketConn(s.Conn)
		return s.four.SetControlMessage(ipv4.FlagTTL, true)
	})
	t.Cleanup(func() { s.Conn.Close() })
	return s
}

func (s *Socket) Send(t *testing.T, to netip.AddrPort, text string) {
	t.Helper()
	if _, err := s.Conn.WriteToUDPAddrPort([]byte(text), to); err != nil {
		t.Fatal(err)
	}
}

// Receive returns what comes next, its sender, and its hop limit.
func (s *Socket) Receive(t *testing.T) (text string, from netip.AddrPort, hops int) {
	t.Helper()
	if err := s.Conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 65536)
	var n int
	var src net.Addr
	var err error
	if s.six != nil {
		var cm *ipv6.ControlMessage
		if n, cm, src, err = s.six.ReadFrom(buf); err == nil {
			hops = cm.HopLimit
		}
	} else {
		var cm *ipv4.ControlMessage
		if n, cm, src, err = s.four.ReadFrom(buf); err == nil {
			hops = cm.TTL
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	at := src.(*net.UDPAddr).AddrPort()
	return string(buf[:n]), netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), hops
}

// Wants receives and compares the text and the hop limit, and returns the sender.
func (s *Socket) Wants(t *testing.T, text string, hops int) netip.AddrPort {
	t.Helper()
	got, from, n := s.Receive(t)
	if got != text || n != hops {
		t.Errorf("received %q with %d hops, want %q with %d", got, n, text, hops)
	}
	return from
}

// Transfer opens a TCP connection, sends so many bytes each way at once, and returns
// the address that the server saw.
func Transfer(t *testing.T, from, to *testutil.Netns, listen, dial netip.AddrPort, size int) netip.AddrPort {
	t.Helper()
	var listener net.Listener
	to.Do(t, func() (err error) {
		listener, err = net.Listen("tcp", listen.String())
		return err
	})
	defer listener.Close()
	served := make(chan error, 1)
	var peer netip.AddrPort
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			peer = conn.RemoteAddr().(*net.TCPAddr).AddrPort()
			err = exchange(conn, size)
		}
		served <- err
	}()
	var conn net.Conn
	from.Do(t, func() (err error) {
		conn, err = net.DialTimeout("tcp", dial.String(), testutil.Patience)
		return err
	})
	if err := errors.Join(exchange(conn, size), <-served); err != nil {
		t.Error(err)
	}
	return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
}

// exchange sends and receives so many bytes.
func exchange(conn net.Conn, size int) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testutil.Patience)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte(strings.Repeat("0123456789abcdef", size/16)))
		sent <- errors.Join(err, conn.(*net.TCPConn).CloseWrite())
	}()
	n, err := io.Copy(io.Discard, conn)
	if err == nil && int(n) != size/16*16 {
		err = fmt.Errorf("received %d bytes, want %d", n, size)
	}
	return errors.Join(<-sent, err)
}

// Clean fails if the gateway has a TUN device, a route or a proxy of ours.
func (w *World) Clean(t *testing.T) {
	t.Helper()
	w.Gateway.Do(t, func() error {
		links, err := testutil.Whole(func() ([]netlink.Link, error) { return netlink.LinkList() })
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Type() == "tuntap" {
				t.Errorf("the device %s is left", l.Attrs().Name)
			}
			proxies, err := netlink.NeighProxyList(l.Attrs().Index, netlink.FAMILY_ALL)
			if err != nil {
				return err
			}
			for _, p := range proxies {
				t.Errorf("the proxy for %s on %s is left", p.IP, l.Attrs().Name)
			}
		}
		routes, err := testutil.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: port.RouteProtocol}, netlink.RT_FILTER_PROTOCOL)
		})
		for _, r := range routes {
			t.Errorf("the route %s is left", r)
		}
		return err
	})
}

// At is where a socket is bound.
func (s *Socket) At() netip.AddrPort { return s.Conn.LocalAddr().(*net.UDPAddr).AddrPort() }
