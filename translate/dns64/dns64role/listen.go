// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"syscall"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

// maxQuery bounds a query over UDP: a name, a type and a few options.
const maxQuery = 4096

// socket is one address that is listened on.
type socket struct {
	udp *net.UDPConn
	tcp *net.TCPListener
}

type socketList []socket

// open listens on all addresses, or on none.
func open(listen []netip.AddrPort) (opened socketList, err error) {
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	for n, at := range listen {
		var s socket
		family := ""
		if at.Addr().Is4() { // or 0.0.0.0 would stand for IPv6, too
			family = "4"
		}
		if s.udp, err = net.ListenUDP("udp"+family, net.UDPAddrFromAddrPort(at)); err != nil {
			if twice := takenBy(listen[:n], at); twice != nil && errors.Is(err, syscall.EADDRINUSE) {
				return opened, twice
			}
			return opened, explain("UDP", "-u", at, err)
		}
		opened = append(opened, s)
		port.WidenReadBuffer(s.udp) // one client's burst must not cost another's query
		if err = tellDestinations(s.udp); err != nil {
			return opened, err
		}
		if s.tcp, err = net.ListenTCP("tcp"+family, net.TCPAddrFromAddrPort(at)); err != nil {
			return opened, explain("TCP", "-t", at, err)
		}
		opened[len(opened)-1] = s
	}
	return opened, nil
}

// takenBy says which address of the list leaves no room for at, if one does. A socket for
// all addresses of IPv6 is one for all of IPv4, too.
func takenBy(before []netip.AddrPort, at netip.AddrPort) error {
	for _, b := range before {
		if b == at {
			return fmt.Errorf("%s stands twice under listen: leave one of them out", at)
		}
		all, one := b.Addr(), at.Addr()
		if one.IsUnspecified() && (one.Is6() || !all.IsUnspecified()) {
			all, one = one, all
		}
		if b.Port() == at.Port() && all.IsUnspecified() && (all.Is6() || one.Is4()) {
			return fmt.Errorf("%s and %s under listen take the same port, since %s stands for all addresses: leave one of them out", b, at, all)
		}
	}
	return nil
}

// asksItself refuses an upstream whose address this host has, where the DNS64 listens: each
// query would come back.
func asksItself(cfg Settings) error {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("cannot list the addresses of this host: %w", err)
	}
	own := func(a netip.Addr) bool {
		return slices.ContainsFunc(addrs, func(has net.Addr) bool {
			p, err := netip.ParsePrefix(has.String())
			return err == nil && p.Addr().Unmap() == a.Unmap()
		})
	}
	for _, u := range cfg.Upstreams {
		if cfg.reaches(u, own) {
			return fmt.Errorf("the upstream %s is this DNS64 itself: name another recursive name server, or its port, or the addresses to listen on", u)
		}
	}
	return nil
}

func (l socketList) close() {
	for _, s := range l {
		_ = s.udp.Close()
		if s.tcp != nil {
			_ = s.tcp.Close()
		}
	}
}

// tellDestinations has the kernel say to which address a query came, so that the answer
// comes from it.
func tellDestinations(conn *net.UDPConn) error {
	const flags6, flags4 = ipv6.FlagDst | ipv6.FlagInterface, ipv4.FlagDst | ipv4.FlagInterface
	err6 := ipv6.NewPacketConn(conn).SetControlMessage(flags6, true)
	if err4 := ipv4.NewPacketConn(conn).SetControlMessage(flags4, true); err6 != nil && err4 != nil {
		return fmt.Errorf("cannot learn to which address queries are sent: %w", err4)
	}
	return nil
}

// explain says in one sentence why an address cannot be listened on.
func explain(protocol, option string, at netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s port %d on %s is in use by another program: stop it (ss -lnp %s shows it), or choose other addresses under listen", protocol, at.Port(), at.Addr(), option)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this host: write one that ip address shows, or add it to an interface", at.Addr())
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this user may not use %s port %d: run isthmus as root (sudo), or choose a port above 1023", protocol, at.Port())
	}
	return fmt.Errorf("cannot use %s %s: %w", protocol, at, err)
}

// serve starts what answers on one address.
func (i *Instance) serve(ctx context.Context, group *errgroup.Group, s socket) {
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error { return i.serveUDP(ctx, s.udp) })
	}
	group.Go(func() error { return i.serveTCP(ctx, s.tcp) })
}

// serveUDP answers datagrams until the socket is closed.
func (i *Instance) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	buffer := make([]byte, maxQuery)
	for {
		n, session, err := dns.ReadFromSessionUDP(conn, buffer)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if temporary(err) {
				continue
			}
			return fmt.Errorf("cannot receive on %s: %w", conn.LocalAddr(), err)
		}
		i.counters.udp.Add(1)
		from := session.RemoteAddr().(*net.UDPAddr).AddrPort()
		send := func(b []byte) {
			if _, err := dns.WriteToSessionUDP(conn, b, session); err != nil {
				i.counters.unsent.Add(1)
			}
		}
		// What waits for an upstream is bounded by the number of questions there.
		i.handle(ctx, buffer[:n], from, false, send, i.background)
	}
}

// passing are errors of one datagram or connection, which an ICMP message or a shortage has
// brought, and not of the socket.
var passing = []syscall.Errno{
	syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	syscall.ENOMEM, syscall.ENOBUFS, syscall.EMFILE, syscall.ENFILE,
}

func temporary(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) && slices.Contains(passing, number)
}

// answer is what a client is told.
type answer struct {
	msg       *dns.Msg
	explained []*dns.EDNS0_EDE
}

// answer packs and sends.
func (i *Instance) answer(q *dns64.Query, a answer, send func([]byte)) {
	short := a.msg.Truncated // of itself
	wire, err := q.Pack(a.msg, a.explained)
	if err != nil {
		i.counters.drop(dns64.ReasonUnpackable)
		if q.Msg == nil {
			return
		}
		if wire, err = q.Pack(q.Failure(), nil); err != nil {
			return
		}
	}
	if a.msg.Truncated && !short {
		i.counters.truncated.Add(1)
	}
	send(wire)
}
