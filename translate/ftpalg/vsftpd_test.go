// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/translate/ftpalg"
	"github.com/isthmus-net/isthmus/translate/ftpalg/ftptest"
)

// relays stands for a translator: it carries connections to an IPv6 address to the
// same port of 127.0.0.1, and back those that are expected.
type relays struct {
	t        *testing.T
	ns       *testutil.Netns
	expected atomic.Int32
}

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	// Some clients want an address of the network's.
	loopback6 = netip.MustParseAddr("2001:db8:6::1")
)

const firstPassive, lastPassive = 30000, 30009

func (r *relays) Peer(from netip.AddrPort) (ftpalg.Peer, error) {
	return ftpalg.Peer{Client: from, Server: netip.AddrPortFrom(loopback4, 21)}, nil
}

func (r *relays) Dial(_ context.Context, p ftpalg.Peer) (*net.TCPConn, error) {
	return r.dial(p.Server)
}

func (r *relays) Announce(ftpalg.Peer, uint16) error { return nil }

// Expect opens a port by which the server reaches the client's once.
func (r *relays) Expect(p ftpalg.Peer, port uint16, _ time.Duration) (netip.AddrPort, error) {
	r.expected.Add(1)
	l, err := r.listen(netip.AddrPortFrom(loopback4, 0))
	if err != nil {
		return netip.AddrPort{}, err
	}
	go r.forward(l, netip.AddrPortFrom(p.Client.Addr(), port))
	return l.Addr().(*net.TCPAddr).AddrPort(), nil
}

func (r *relays) dial(to netip.AddrPort) (conn *net.TCPConn, err error) {
	r.ns.Do(r.t, func() error {
		conn, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
		return nil
	})
	return conn, err
}

func (r *relays) listen(at netip.AddrPort) (l *net.TCPListener, err error) {
	r.ns.Do(r.t, func() error {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return nil
	})
	if err == nil {
		r.t.Cleanup(func() { l.Close() })
	}
	return l, err
}

// forward carries the connections of a listener to an address.
func (r *relays) forward(l *net.TCPListener, to netip.AddrPort) {
	for {
		a, err := l.AcceptTCP()
		if err != nil {
			return
		}
		b, err := r.dial(to)
		if err != nil {
			a.Close()
			continue
		}
		go join(a, b)
	}
}

// join carries bytes both ways until both ends have closed.
func join(a, b *net.TCPConn) {
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		both.Go(func() {
			if _, err := io.Copy(way[0], way[1]); err == nil {
				_ = way[0].CloseWrite()
			}
		})
	}
	both.Wait()
	a.Close()
	b.Close()
}

// TestClientsAndVsftpd has clients of Debian that have IPv6 use vsftpd, which has IPv4.
func TestClientsAndVsftpd(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(loopback6.AsSlice()), Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
		testutil.AwaitLocal(t, loopback6)
		return nil
	})
	server := ftptest.Start(t, ns, peers.Vsftpd{Address: loopback4, PassiveMin: firstPassive, PassiveMax: lastPassive})
	r := &relays{t: t, ns: ns}
	for port := uint16(firstPassive); port <= lastPassive; port++ {
		l, err := r.listen(netip.AddrPortFrom(loopback6, port))
		if err != nil {
			t.Fatal(err)
		}
		go r.forward(l, netip.AddrPortFrom(loopback4, port))
	}
	proxy, err := ftpalg.New(ftpalg.Settings{}, r)
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.listen(netip.AddrPortFrom(loopback6, 0))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	count := func(name string) (n uint64) {
		for c, value := range proxy.Counters() {
			if c.String() == name {
				n = value
			}
		}
		return n
	}
	for _, x := range ftptest.Transfers() {
		t.Run(x.String(), func(t *testing.T) {
			passive, active, secret := count("epsv_translated"), count("eprt_translated"), count("auth_accepted")
			server.Try(t, ns, l.Addr().(*net.TCPAddr).AddrPort(), x)
			passive, active, secret = count("epsv_translated")-passive, count("eprt_translated")-active, count("auth_accepted")-secret
			switch {
			case x.TLS && (secret == 0 || passive+active != 0),
				!x.TLS && x.Active && (active < 2 || passive+secret != 0),
				!x.TLS && !x.Active && (passive < 2 || active+secret != 0):
				t.Errorf("EPSV was translated %d times, EPRT %d times, AUTH accepted %d times", passive, active, secret)
			}
		})
	}
	if n := int(r.expected.Load()); uint64(n) != count("eprt_translated") {
		t.Errorf("%d ports were made to lead to clients, for %d commands", n, count("eprt_translated"))
	}
}
