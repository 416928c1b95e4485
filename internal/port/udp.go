// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultBuffer is what a socket may hold each way: about 60 ms of 300,000
// small packets a second, as the kernel accounts for them.
const defaultBuffer = 16 << 20

// UDPConfig says how to open a UDP socket.
type UDPConfig struct {
	// Addr to bind, IPv4; port 0 lets the kernel choose. With 0.0.0.0 the
	// kernel also chooses the source address of what is sent.
	Addr netip.AddrPort
	// Device, if set, is the interface that all datagrams leave and come by.
	Device string
	// Buffer is the size of the kernel's receive and send buffers in bytes; 0
	// means 16 MiB. Without privilege the system's limit holds.
	Buffer int
	// Small makes a socket for few datagrams of at most 2 KiB: it takes a
	// hundredth of the memory for receiving, and the kernel merges nothing.
	Small bool
}

// Of a small socket.
const (
	smallDatagram = 2048
	smallBuffer   = 256 << 10
)

// UDP is a UDP socket over IPv4 that sends and receives in batches.
type UDP struct {
	counters
	guard guard
	local netip.AddrPort
	in    receiver
	out   pool[sender]
	// merges reports that the kernel can merge datagrams for the reader.
	merges bool
	// onRefusal is told of ports that no program has.
	onRefusal func(to netip.AddrPort)
	// noSegments is set when the kernel or the device has shown that it cannot
	// segment trains of datagrams.
	noSegments atomic.Bool
}

// ListenUDP4 opens a socket in the calling thread's network namespace. The
// outer packets it sends carry no DF bit (RFC 4380 section 5.1.2).
func ListenUDP4(cfg UDPConfig) (*UDP, error) { return listenUDP4(cfg, false) }

func listenUDP4(cfg UDPConfig, shared bool) (*UDP, error) {
	if !cfg.Addr.Addr().Is4() {
		return nil, fmt.Errorf("cannot listen on %s: an IPv4 address is needed", cfg.Addr)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot create a UDP socket: %w", err)
	}
	u := &UDP{guard: guard{fd: fd}}
	u.out.make = newSender
	if err := u.setUp(cfg, shared); err != nil {
		u.guard.release()
		return nil, err
	}
	return u, nil
}

// ListenUDP4Group opens n sockets on one address, among which the kernel divides
// what comes by sender, so that each sender's datagrams stay in order.
func ListenUDP4Group(cfg UDPConfig, n int) ([]*UDP, error) {
	// The first is bound alone, so that an address in use is still an error, and
	// shares its address only then.
	first, err := ListenUDP4(cfg)
	if err != nil {
		return nil, err
	}
	group := []*UDP{first}
	if n > 1 {
		err = share(first.guard.fd)
	}
	cfg.Addr = first.local
	for len(group) < n && err == nil {
		var u *UDP
		if u, err = listenUDP4(cfg, true); err == nil {
			group = append(group, u)
		}
	}
	if err != nil {
		for _, u := range group {
			_ = u.Close()
		}
		return nil, err
	}
	return group, nil
}

// share lets a socket share its address with others of this user.
func share(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fmt.Errorf("cannot share a UDP address among several sockets: %w", err)
	}
	return nil
}

// setUp sets the socket's options and binds it.
func (u *UDP) setUp(cfg UDPConfig, shared bool) error {
	fd := u.guard.fd
	if shared {
		if err := share(fd); err != nil {
			return err
		}
	}
	if cfg.Buffer == 0 {
		cfg.Buffer = defaultBuffer
		if cfg.Small {
			cfg.Buffer = smallBuffer
		}
	}
	setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, cfg.Buffer)
	setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, cfg.Buffer)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT); err != nil {
		return fmt.Errorf("cannot switch off path MTU discovery: %w", err)
	}
	if cfg.Device != "" {
		if err := unix.BindToDevice(fd, cfg.Device); err != nil {
			return fmt.Errorf("cannot use the interface %s: look with `ip link` whether it is there: %w", cfg.Device, err)
		}
	}
	wildcard := cfg.Addr.Addr().IsUnspecified()
	if wildcard {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1); err != nil {
			return fmt.Errorf("cannot ask for the local address of datagrams: %w", err)
		}
	}
	// Kernels before 5.0 lack it; then every datagram comes by itself.
	gro := !cfg.Small && unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil
	if cfg.Addr.Addr().IsMulticast() {
		// Each program of a host that listens to a group gets its datagrams.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("cannot share %s with other programs: %w", cfg.Addr, err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(cfg.Addr.Port()), Addr: cfg.Addr.Addr().As4()}); err != nil {
		return bindError(cfg.Addr, err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("cannot read the socket's own address: %w", err)
	}
	local, ok := sa.(*unix.SockaddrInet4)
	if !ok {
		return errors.New("the UDP socket is not bound to an IPv4 address")
	}
	u.local = netip.AddrPortFrom(netip.AddrFrom4(local.Addr), uint16(local.Port))
	size, stride := maxTrain, trainStride
	if cfg.Small {
		size, stride = smallDatagram, smallDatagram
	}
	u.merges = gro
	u.in.init(u.local.Addr(), wildcard, gro, size, stride)
	return nil
}

// WidenReadBuffer has the kernel keep bursts for a socket of package net, as it does for
// those of this package.
func WidenReadBuffer(c syscall.Conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) { setBuffer(int(fd), unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, defaultBuffer) })
}

// setBuffer sets a buffer size beyond the system's limit, or up to it where
// the privilege is missing. Failure only costs burst tolerance.
func setBuffer(fd, force, plain, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size)
	}
}

// bindError says in words why an address cannot be bound.
func bindError(addr netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("UDP %s is in use by another program: stop it or choose another port: %w", addr, err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("this host has no address %s: choose one that `ip -4 address` lists: %w", addr.Addr(), err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("no permission to bind UDP %s: run as root or with CAP_NET_BIND_SERVICE: %w", addr, err)
	}
	return fmt.Errorf("cannot bind UDP %s: %w", addr, err)
}

// Merge says whether the kernel may hand over datagrams of one flow in one piece, as
// it may from the start where it can. It merges them before a fast path at tc sees
// them, which takes them only one by one.
func (u *UDP) Merge(on bool) {
	if !u.merges || !u.guard.enter() {
		return
	}
	defer u.guard.leave()
	value := 0
	if on {
		value = 1
	}
	_ = unix.SetsockoptInt(u.guard.fd, unix.IPPROTO_UDP, unix.UDP_GRO, value) // which it took before
}

// LocalAddr implements [UDPConn].
func (u *UDP) LocalAddr() netip.AddrPort { return u.local }

// Close implements [UDPConn].
func (u *UDP) Close() error {
	// Shutting down an unconnected socket reports ENOTCONN, and wakes readers
	// all the same.
	u.guard.close(func() { unix.Shutdown(u.guard.fd, unix.SHUT_RDWR) })
	return nil
}
