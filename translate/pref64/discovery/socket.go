// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// socket sends and receives messages of Neighbor Discovery on one link.
type socket struct {
	conn *ipv6.PacketConn
	raw  syscall.RawConn // the same
	link *net.Interface
}

// listen opens a socket that receives messages of the given types on one link.
func listen(link string, groups []netip.Addr, types ...ipv6.ICMPType) (*socket, error) {
	ifi, err := net.InterfaceByName(link)
	if err != nil {
		return nil, fmt.Errorf("there is no interface %s on this host: name one that ip link shows", link)
	}
	conn, err := net.ListenIP("ip6:ipv6-icmp", &net.IPAddr{IP: net.IPv6unspecified})
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, errors.New("this user may not send and receive ICMPv6: run isthmus as root (sudo), or give it the capability CAP_NET_RAW")
		}
		return nil, fmt.Errorf("cannot open a socket for ICMPv6: %w", err)
	}
	s := &socket{conn: ipv6.NewPacketConn(conn), link: ifi}
	if s.raw, err = conn.SyscallConn(); err == nil {
		err = s.prepare(groups, types)
	}
	if err != nil {
		_ = s.close()
		return nil, fmt.Errorf("cannot listen to router messages on %s: %w", link, err)
	}
	return s, nil
}

func (s *socket) prepare(groups []netip.Addr, types []ipv6.ICMPType) error {
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	for _, t := range types {
		filter.Accept(t)
	}
	errs := []error{
		s.conn.SetICMPFilter(&filter),
		s.conn.SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagInterface|ipv6.FlagSrc, true),
		s.conn.SetMulticastInterface(s.link),
		s.conn.SetMulticastHopLimit(packet.NDHopLimit),
		s.conn.SetHopLimit(packet.NDHopLimit),
		s.conn.SetMulticastLoopback(false),
	}
	for _, g := range groups {
		errs = append(errs, s.conn.JoinGroup(s.link, &net.UDPAddr{IP: g.AsSlice()}))
	}
	return errors.Join(errs...)
}

// assume makes a link-local address an anycast address of the link (RFC 4291 section 2.6),
// so that messages may come from it: the kernel answers Neighbor Solicitations for it, no
// list of the link's addresses has it, and it ends with the socket, however that ends. An
// address that is assumed already is assumed anew.
func (s *socket) assume(address netip.Addr) error {
	request := &unix.IPv6Mreq{Multiaddr: address.As16(), Interface: uint32(s.link.Index)}
	var failed error
	err := s.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_LEAVE_ANYCAST, request) // if it is
		failed = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_JOIN_ANYCAST, request)
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("cannot speak from the address %s on %s: %w", address, s.link.Name, err)
	}
	return nil
}

func (s *socket) close() error { return s.conn.Close() }

// read waits for a message that came by the link and that no router forwarded, and
// returns it with its sender.
func (s *socket) read(buffer []byte) (b []byte, from netip.Addr, err error) {
	for {
		n, control, source, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return nil, from, err
		}
		address, ok := source.(*net.IPAddr)
		if !ok || control == nil || control.IfIndex != s.link.Index || control.HopLimit != packet.NDHopLimit {
			continue
		}
		if from, ok = netip.AddrFromSlice(address.IP); ok {
			return buffer[:n], from.WithZone(""), nil
		}
	}
}

// write sends a message to all of a group. Without a source the kernel chooses one.
func (s *socket) write(b []byte, source, group netip.Addr) error {
	control := &ipv6.ControlMessage{IfIndex: s.link.Index, HopLimit: packet.NDHopLimit}
	if source.IsValid() {
		control.Src = source.AsSlice()
	}
	_, err := s.conn.WriteTo(b, control, &net.IPAddr{IP: group.AsSlice(), Zone: s.link.Name})
	return err
}
