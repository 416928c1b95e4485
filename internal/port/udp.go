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
	// Addr to bind, of either family; port 0 lets the kernel choose. With 0.0.0.0
	// or :: the kernel also chooses the source address of what is sent.
	Addr netip.AddrPort
	// Device, if set, is the interface that all datagrams leave and come by.
	Device string
	// Buffer is the size of the kernel's receive and send buffers in bytes; 0
	// means 16 MiB. Without privilege the system's limit holds.
	Buffer int
	// Small makes a socket for few datagrams of at most 2 KiB: it takes a
	// hundredth of the memory for receiving, and the kernel merges nothing.
	Small bool
	// Class has the traffic class of what comes told.
	Class bool

	buffers int  // to read into; 0 is MaxBatch
	grows   bool // they are small until there is need of large ones
	raw     bool // it is a raw socket
}

// Of a small socket.
const (
	smallDatagram = 2048
	smallBuffer   = 256 << 10
)

// UDP is a UDP socket over IPv4, or over IPv6 alone, that sends and receives in batches.
type UDP struct {
	counters
	overflow overflow
	guard    guard
	local    netip.AddrPort
	in       receiver
	out      pool[sender]
	// merges reports that the kernel can merge datagrams for the reader.
	merges bool
	// grows says that the buffers to read into are small ones yet.
	grows bool
	// onRefusal is told of ports that no program has.
	onRefusal func(to netip.AddrPort)
	// onError, if set, takes what is in the error queue.
	onError func()
	poller  *poller // nil if reads wait in the kernel
	// noSegments is set when the kernel or the device has shown that it cannot
	// segment trains of datagrams.
	noSegments atomic.Bool
}

// ListenUDP opens a socket in the calling thread's network namespace. The outer packets
// that it sends over IPv4 carry no DF bit (RFC 4380 section 5.1.2); of IPv6 they are cut
// by what the kernel knows of the path (RFC 8201).
func ListenUDP(cfg UDPConfig) (*UDP, error) { return listenUDP(cfg, false) }

func listenUDP(cfg UDPConfig, shared bool) (*UDP, error) {
	addr := cfg.Addr.Addr()
	if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" {
		return nil, fmt.Errorf("cannot listen on %s: an IPv4 or IPv6 address is needed", cfg.Addr)
	}
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot create a UDP socket: %w", err)
	}
	u := &UDP{guard: guard{fd: fd}}
	u.out.make = func() *sender { return newSender(addr.Is6()) }
	if err := u.setUp(cfg, shared); err != nil {
		u.guard.release()
		return nil, err
	}
	return u, nil
}

// ListenUDPGroup opens n sockets on one address, among which the kernel divides
// what comes by sender, so that each sender's datagrams stay in order.
func ListenUDPGroup(cfg UDPConfig, n int) ([]*UDP, error) {
	// The first is bound alone, so that an address in use is still an error, and
	// shares its address only then.
	first, err := ListenUDP(cfg)
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
		if u, err = listenUDP(cfg, true); err == nil {
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
	wildcard := cfg.Addr.Addr().IsUnspecified()
	if err := setFamily(fd, cfg.Addr.Addr().Is6(), wildcard, cfg.raw); err != nil {
		return err
	}
	if cfg.Class {
		if err := tellClass(fd, cfg.Addr.Addr().Is6()); err != nil {
			return err
		}
	}
	if cfg.Device != "" {
		if err := unix.BindToDevice(fd, cfg.Device); err != nil {
			return fmt.Errorf("cannot use the interface %s: look with `ip link` whether it is there: %w", cfg.Device, err)
		}
	}
	// Kernels before 5.0 lack it; then every datagram comes by itself.
	small := cfg.Small || cfg.grows
	gro := !small && unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil
	if cfg.Addr.Addr().IsMulticast() {
		// Each program of a host that listens to a group gets its datagrams.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("cannot share %s with other programs: %w", cfg.Addr, err)
		}
	}
	if err := unix.Bind(fd, sockaddrOf(cfg.Addr)); err != nil {
		return bindError(cfg.Addr, err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("cannot read the socket's own address: %w", err)
	}
	var ok bool
	if u.local, ok = addrPortOf(sa); !ok {
		return errors.New("the UDP socket is not bound to an IP address")
	}
	size, stride := maxTrain, trainStride
	if small {
		size, stride = smallDatagram, smallDatagram
	}
	u.merges, u.grows, u.in.classes = gro, cfg.grows, cfg.Class
	buffers := cfg.buffers
	if buffers == 0 {
		buffers = MaxBatch
	}
	u.in.init(u.local.Addr(), wildcard, gro, buffers, size, stride)
	return nil
}

// setFamily sets the options that the families name differently.
func setFamily(fd int, v6, wildcard, raw bool) error {
	level, info := unix.IPPROTO_IP, unix.IP_PKTINFO
	if v6 {
		level, info = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
		if err := unix.SetsockoptInt(fd, level, unix.IPV6_V6ONLY, 1); err != nil && !raw { // a raw socket is of one family anyway
			return fmt.Errorf("cannot keep a UDP socket to IPv6: %w", err)
		}
	} else if err := unix.SetsockoptInt(fd, level, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT); err != nil {
		return fmt.Errorf("cannot switch off path MTU discovery: %w", err)
	}
	if !wildcard {
		return nil
	}
	if err := unix.SetsockoptInt(fd, level, info, 1); err != nil {
		return fmt.Errorf("cannot ask for the local address of datagrams: %w", err)
	}
	return nil
}

// tellClass has the kernel tell the traffic class of what comes.
func tellClass(fd int, v6 bool) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVTOS
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("cannot ask for the traffic class of datagrams: %w", err)
	}
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
		return fmt.Errorf("this host has no address %s: choose one that `ip address` lists: %w", addr.Addr(), err)
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

// Stats returns the counters.
func (u *UDP) Stats() Stats {
	s := u.counters.Stats()
	s.ReadFull = u.overflow.of(&u.guard)
	return s
}

// LocalAddr implements [UDPConn].
func (u *UDP) LocalAddr() netip.AddrPort { return u.local }

// Close implements [UDPConn].
func (u *UDP) Close() error {
	u.overflow.of(&u.guard) // for the last time
	// Shutting down an unconnected socket reports ENOTCONN, and wakes readers
	// all the same.
	u.guard.close(func() { unix.Shutdown(u.guard.fd, unix.SHUT_RDWR) })
	return nil
}
