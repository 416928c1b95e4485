// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/sctp"
)

// Protocol carries traffic.
type Protocol string

// The protocols.
const (
	UDP   Protocol = "udp"
	TCP   Protocol = "tcp"
	SCTP  Protocol = "sctp" // of package sctp, in IP
	MPTCP Protocol = "mptcp"
)

// Options are those of sockets.
type Options struct {
	// Congestion is the control of TCP and MPTCP, such as cubic; the system's own if empty.
	Congestion string
	// NoDelay switches Nagle's algorithm off in TCP and MPTCP, which D-ITG leaves on.
	NoDelay bool
	// SCTP is the configuration of associations.
	SCTP sctp.Config
}

// ErrNoMPTCP says that the kernel has no MPTCP.
var ErrNoMPTCP = errors.New("this kernel has no MPTCP: it needs CONFIG_MPTCP, and net.mptcp.enabled = 1 in this network namespace")

// hasMPTCP tries a socket, since Go's own falls back to TCP in silence.
func hasMPTCP() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrNoMPTCP, err)
	}
	return unix.Close(fd)
}

// CongestionError says that the kernel does not have, or allow, a congestion control.
type CongestionError struct {
	Name string
	Err  error
}

func (e *CongestionError) Error() string {
	return fmt.Sprintf("congestion control %q cannot be used: write one that sysctl net.ipv4.tcp_available_congestion_control lists, or load it by modprobe tcp_%s (%v)", e.Name, e.Name, e.Err)
}

func (e *CongestionError) Unwrap() error { return e.Err }

// congestion sets the control of a socket of TCP before it connects.
func (o *Options) congestion(_, _ string, c syscall.RawConn) error {
	if o.Congestion == "" {
		return nil
	}
	var err error
	e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.Congestion)
	})
	if err != nil {
		err = &CongestionError{o.Congestion, err}
	}
	return errors.Join(e, err)
}

// Congestion is the name of the control that a connection of TCP or MPTCP has, "" of others.
func Congestion(c net.Conn) string {
	raw, ok := c.(syscall.Conn)
	if _, udp := c.(*net.UDPConn); !ok || udp {
		return ""
	}
	name := ""
	if r, err := raw.SyscallConn(); err == nil {
		_ = r.Control(func(fd uintptr) { name, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
	}
	return name
}

// setUpTime is how long an association may take to be set up: two INITs that are lost, and some.
const setUpTime = 10 * time.Second

// Dial connects to a receiver, from the network namespace of the calling thread.
func Dial(ctx context.Context, p Protocol, address string, o Options) (net.Conn, error) {
	switch p {
	case SCTP:
		ctx, cancel := context.WithTimeout(ctx, setUpTime)
		defer cancel()
		c, err := o.SCTP.Dial(ctx, "sctp", address)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("nobody at %s has answered for %v: start isthmus lab traffic receive --protocol sctp there", address, setUpTime)
		}
		if err != nil {
			return nil, err
		}
		return c, nil
	case UDP:
		return new(net.Dialer).DialContext(ctx, "udp", address)
	case MPTCP:
		if err := hasMPTCP(); err != nil {
			return nil, err
		}
	case TCP:
	default:
		return nil, fmt.Errorf("there is no protocol %q: write udp, tcp, sctp or mptcp", p)
	}
	d := net.Dialer{Control: o.congestion}
	d.SetMultipathTCP(p == MPTCP)
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp := c.(*net.TCPConn)
	if multipath, err := tcp.MultipathTCP(); err == nil && p == MPTCP && !multipath {
		err = errors.New("the connection has fallen back to TCP: the peer, or something on the way, has no MPTCP")
		return nil, errors.Join(err, c.Close())
	}
	return c, tcp.SetNoDelay(o.NoDelay)
}

// Finish closes a connection once all that was written is delivered, or ctx ends: an association of package sctp ends
// with its program, a connection of TCP does not.
func Finish(ctx context.Context, c net.Conn) error {
	if a, ok := c.(*sctp.Conn); ok {
		return a.Shutdown(ctx)
	}
	return c.Close()
}

// Receiver receives flows.
type Receiver struct {
	Addr     netip.AddrPort // it listens at
	datagram *net.UDPConn
	listener net.Listener
	mu       sync.Mutex
	strange  int
}

// Listen opens a receiver, in the network namespace of the calling thread. Port 0 is one that is free.
func Listen(ctx context.Context, p Protocol, address string, o Options) (r *Receiver, err error) {
	r = &Receiver{}
	switch p {
	case UDP:
		at, err := net.ResolveUDPAddr("udp", address)
		if err != nil {
			return nil, err
		}
		if r.datagram, err = net.ListenUDP("udp", at); err != nil {
			return nil, err
		}
		_ = r.datagram.SetReadBuffer(4 << 20) // as much as the system allows
		r.Addr = r.datagram.LocalAddr().(*net.UDPAddr).AddrPort()
		return r, nil
	case SCTP:
		r.listener, err = o.SCTP.Listen(ctx, "sctp", address)
	case MPTCP, TCP:
		if p == MPTCP {
			if err := hasMPTCP(); err != nil {
				return nil, err
			}
		}
		var c net.ListenConfig
		c.SetMultipathTCP(p == MPTCP)
		r.listener, err = c.Listen(ctx, "tcp", address)
	default:
		return nil, fmt.Errorf("there is no protocol %q: write udp, tcp, sctp or mptcp", p)
	}
	if err != nil {
		return nil, err
	}
	r.Addr = addrPort(r.listener.Addr())
	return r, nil
}

// addrPort is the first host of an address, with its port.
func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.UDPAddr:
		return unmapped(a.AddrPort())
	case *net.TCPAddr:
		return unmapped(a.AddrPort())
	case *sctp.Addr:
		host := netip.IPv6Unspecified()
		if len(a.Hosts) > 0 {
			host = a.Hosts[0]
		}
		return netip.AddrPortFrom(host, a.Port)
	}
	return netip.AddrPort{}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// Close ends Run.
func (r *Receiver) Close() error {
	if r.datagram != nil {
		return r.datagram.Close()
	}
	return r.listener.Close()
}

// SCTPStats is what the endpoint of a receiver of SCTP has counted.
func (r *Receiver) SCTPStats() sctp.Stats {
	if l, ok := r.listener.(*sctp.Listener); ok {
		return l.Endpoint().Stats()
	}
	return sctp.Stats{}
}

// Strange is how many datagrams and connections came that are none of a generator.
func (r *Receiver) Strange() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.strange
}

// Sink takes what comes, one call at a time. Got is a message; Ended says that a flow has, with the number of its
// messages.
type Sink interface {
	Got(*Record)
	Ended(flow uint32, from, to netip.AddrPort, sent uint32)
}

// Run gives all that comes to the sink until ctx ends or the receiver is closed.
func (r *Receiver) Run(ctx context.Context, to Sink) error {
	defer context.AfterFunc(ctx, func() { _ = r.Close() })()
	if r.datagram != nil {
		return closed(r.datagrams(to))
	}
	var running sync.WaitGroup
	defer running.Wait()
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return closed(err)
		}
		running.Go(func() {
			defer finishSoon(c)
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			r.Serve(c, to)
		})
	}
}

// finishSoon closes a connection that nothing is written to.
func finishSoon(c net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = Finish(ctx, c) // the peer may have ended it
}

func closed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (r *Receiver) datagrams(to Sink) error {
	b := make([]byte, 64<<10)
	at := unmapped(r.Addr)
	for {
		n, from, err := r.datagram.ReadFromUDPAddrPort(b)
		if err != nil {
			return err
		}
		r.take(b[:n], n, unmapped(from), at, to)
	}
}

// Serve gives what comes by one connection to the sink until that ends: Run does so with those that it accepts. A zero
// Receiver serves connections that somebody else has set up.
func (r *Receiver) Serve(c net.Conn, to Sink) {
	// A stream of octets is cut into messages.
	from, at := addrPort(c.RemoteAddr()), addrPort(c.LocalAddr())
	in := bufio.NewReaderSize(c, 2*MaxSize)
	for {
		head, err := in.Peek(HeaderSize)
		if err != nil {
			return
		}
		h, err := parseHeader(head)
		if err != nil {
			r.take(head, HeaderSize, from, at, to)
			return
		}
		message, err := in.Peek(int(h.size))
		if err != nil {
			return
		}
		r.take(message, len(message), from, at, to)
		_, _ = in.Discard(len(message))
	}
}

// take passes a whole message on.
func (r *Receiver) take(b []byte, size int, from, at netip.AddrPort, to Sink) {
	now := time.Now()
	h, err := parseHeader(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil || int(h.size) != size:
		r.strange++
	case h.kind == kindEnd:
		to.Ended(h.flow, from, at, h.number)
	default:
		to.Got(&Record{Flow: h.flow, Number: h.number, From: from, To: at, Sent: time.Unix(0, h.sent), Received: now.Round(0), Size: size})
	}
}

var _ io.Closer = (*Receiver)(nil)
