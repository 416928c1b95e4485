// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxDatagram is how much is read of one: media has some 200 octets.
const maxDatagram = 2048

// expedited is the service class of voice, as the octet of IP has it (RFC 4594 section 4.1).
const expedited = 46 << 2

// socket is a UDP socket at one local address. It sends without ever waiting: what a full
// device does not take is lost, as in a network.
type socket struct {
	conn  *net.UDPConn
	raw   syscall.RawConn
	local netip.AddrPort
	// Of the packet that is sent: the function is made once, so that none is for each.
	send  func(fd uintptr) bool
	to4   unix.SockaddrInet4
	to6   unix.SockaddrInet6
	bytes []byte
	err   error
}

// listen opens a socket. Port 0 lets the kernel choose.
func listen(at netip.AddrPort, device string) (*socket, error) {
	network := "udp4"
	if at.Addr().Is6() {
		network = "udp6"
	}
	var failed error
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		err := c.Control(func(fd uintptr) { failed = prepare(int(fd), at.Addr().Is6(), device) })
		return errors.Join(err, failed)
	}}
	conn, err := config.ListenPacket(context.Background(), network, at.String())
	if err != nil {
		return nil, fmt.Errorf("cannot open a socket for media at %s: %w", at, err)
	}
	s := &socket{conn: conn.(*net.UDPConn)}
	if s.raw, err = s.conn.SyscallConn(); err != nil {
		_ = s.conn.Close()
		return nil, err
	}
	s.local = s.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s.local = netip.AddrPortFrom(s.local.Addr().Unmap(), s.local.Port())
	s.send = s.sendNow
	return s, nil
}

// prepare marks what the socket will send as voice, and keeps it to a device.
func prepare(fd int, v6 bool, device string) error {
	level, option := unix.IPPROTO_IP, unix.IP_TOS
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	if err := unix.SetsockoptInt(fd, level, option, expedited); err != nil {
		return fmt.Errorf("cannot mark media as voice: %w", err)
	}
	if device == "" {
		return nil
	}
	if err := unix.BindToDevice(fd, device); err != nil {
		return fmt.Errorf("cannot use the interface %s: look with `ip link` whether it is there: %w", device, err)
	}
	return nil
}

// write sends a packet, and returns why it did not.
func (s *socket) write(b []byte, to netip.AddrPort) error {
	if to.Addr().Is4() != s.local.Addr().Is4() {
		return unix.EAFNOSUPPORT
	}
	s.bytes = b
	if to.Addr().Is4() {
		s.to4.Port, s.to4.Addr = int(to.Port()), to.Addr().As4()
	} else {
		s.to6.Port, s.to6.Addr = int(to.Port()), to.Addr().As16()
	}
	if err := s.raw.Write(s.send); err != nil {
		return err
	}
	return s.err
}

func (s *socket) sendNow(fd uintptr) bool {
	var to unix.Sockaddr = &s.to6
	if s.local.Addr().Is4() {
		to = &s.to4
	}
	s.err = unix.Sendto(int(fd), s.bytes, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, to)
	return true // whatever came of it: nobody waits
}

// pair is the sockets of a path: RTP at an even port, RTCP at the next (RFC 3550 section 11).
type pair struct {
	rtp, rtcp  *socket
	path, slot int // its number, and that of the stream
}

// tries is how many pairs of ports are tried.
const tries = 200

// openPair opens the sockets of a path, at ports of a range, from a place in it on; 0, 0: at
// ports of the kernel's choice.
func openPair(l Local, low, high uint16, place uint32) (*pair, error) {
	if l.Address.Zone() != "" || !l.Address.IsValid() || l.Address.IsUnspecified() {
		return nil, errors.New("media needs an address of its own, without a zone")
	}
	l.Address = l.Address.Unmap()
	first := uint32(low) + uint32(low&1)
	pairs := (uint32(high) + 1 - min(first, uint32(high)+1)) / 2
	if high != 0 && pairs == 0 {
		return nil, fmt.Errorf("no pair of ports is between %d and %d", low, high)
	}
	var last error
	for i := range uint32(tries) {
		var port uint16
		if high != 0 {
			if i >= pairs {
				break
			}
			port = uint16(first + (place+i)%pairs*2)
		}
		p, err := tryPair(netip.AddrPortFrom(l.Address, port), l.Device)
		if err == nil {
			return p, nil
		}
		if last = err; !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, last
}

// tryPair opens two sockets at neighbouring ports.
func tryPair(at netip.AddrPort, device string) (*pair, error) {
	rtp, err := listen(at, device)
	if err != nil {
		return nil, err
	}
	if rtp.local.Port()&1 != 0 { // the kernel chose an odd one: take the even one below
		_ = rtp.conn.Close()
		return tryPair(netip.AddrPortFrom(at.Addr(), rtp.local.Port()-1), device)
	}
	rtcp, err := listen(netip.AddrPortFrom(at.Addr(), rtp.local.Port()+1), device)
	if err != nil {
		_ = rtp.conn.Close()
		return nil, err
	}
	return &pair{rtp: rtp, rtcp: rtcp}, nil
}

// reaches reports whether an address is of the family of the path.
func (p *pair) reaches(a netip.Addr) bool { return p.rtp.local.Addr().Is4() == a.Unmap().Is4() }

func (p *pair) close() {
	_ = p.rtp.conn.Close()
	_ = p.rtcp.conn.Close()
}
