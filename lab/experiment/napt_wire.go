// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// Lengths and types on the wire.
const (
	etherHeader  = 14
	ipv4Header   = 20
	fragmentSize = 8 // of the IPv6 fragment header
	icmpHeader   = 8
	protoICMP    = 1
	protoUDP     = packet.ProtoUDP
	protoICMPv6  = packet.ProtoICMPv6
	protoFrag    = 44
	protoRouting = 43
)

// ear hears every packet that arrives at an interface.
type ear struct{ fd int }

// hear opens an ear.
func hear(node *lab.Node, iface string) (e *ear, err error) {
	err = node.Do(func() error {
		link, err := netlink.LinkByName(iface)
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		e = &ear{fd}
		return errors.Join(
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		)
	})
	if err != nil {
		if e != nil {
			e.close()
		}
		return nil, fmt.Errorf("cannot hear what arrives at %s of node %s: %w", iface, node.Name(), err)
	}
	return e, nil
}

func (e *ear) close() { unix.Close(e.fd) }

// await returns the first IP packet that match takes, nil if none comes in time.
func (e *ear) await(patience time.Duration, match func(ip []byte) bool) ([]byte, error) {
	buf := make([]byte, 1<<16)
	for deadline := time.Now().Add(patience); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, nil
		}
		poll := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, err
		} else if n <= 0 {
			continue
		}
		n, _, err := unix.Recvfrom(e.fd, buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n > etherHeader && match(buf[etherHeader:n]) {
			return append([]byte(nil), buf[etherHeader:n]...), nil
		}
	}
}

// utter sends an IP packet from an interface of a node to its neighbour.
func utter(node *lab.Node, iface string, neighbour *lab.Node, other string, ip []byte) error {
	from, err := mac(node, iface)
	if err != nil {
		return err
	}
	to, err := mac(neighbour, other)
	if err != nil {
		return err
	}
	frame := load.Frame6(from, to, packet.IPv6(ip))
	if ip[0]>>4 == 4 {
		binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	}
	return node.Do(func() error {
		sender, err := load.OpenQueuedSender(iface)
		if err != nil {
			return err
		}
		defer sender.Close()
		return sender.Send(frame)
	})
}

// udp is a datagram between two ports of n bytes in all, with its checksum.
func udp(src, dst netip.Addr, from, to uint16, n int) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	b = append(b, 0, 0)
	for len(b) < n {
		b = append(b, byte(len(b)))
	}
	// The mapped form of an IPv4 address has the same sum as the address.
	s, d := src.As16(), dst.As16()
	binary.BigEndian.PutUint16(b[6:], packet.Checksum(&s, &d, protoUDP, b))
	return b
}

// ipv6 puts a payload into an IPv6 packet.
func ipv6(src, dst netip.Addr, next, hops byte, payload []byte) []byte {
	return append(packet.AppendIPv6Header(nil, next, hops, len(payload), src, dst), payload...)
}

// ipv4 puts a payload into an IPv4 packet; flags are the upper bits of the word of
// flags and fragment offset.
func ipv4(src, dst netip.Addr, protocol, ttl byte, flags uint16, payload []byte) []byte {
	b := []byte{0x45, 0, 0, 0, 0x19, 0x98, 0, 0, ttl, protocol, 0, 0}
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	binary.BigEndian.PutUint16(b[6:], flags)
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b)))
	return append(b, payload...)
}

// Flags of IPv4.
const (
	dontFragment  = 0x4000
	moreFragments = 0x2000
)

// icmpError is an error as it came off the wire.
type icmpError struct {
	from       netip.Addr
	kind, code byte
	word       uint32 // the second word: MTU or pointer
	// Of the quoted packet:
	src, dst  netip.Addr
	protocol  byte
	transport []byte
}

// parseError reads an ICMP error for an address; ok is false for any other packet.
// Its checksum must be right.
func parseError(ip []byte, to netip.Addr) (e icmpError, ok bool) {
	message, from, ok := icmpOf(ip, to)
	if !ok || len(message) < icmpHeader {
		return e, false
	}
	e = icmpError{from: from, kind: message[0], code: message[1], word: binary.BigEndian.Uint32(message[4:])}
	if to.Is6() && e.kind >= 128 || to.Is4() && e.kind != 3 && e.kind != 11 && e.kind != 12 {
		return e, false
	}
	return e, e.quote(message[icmpHeader:])
}

// icmpOf is the ICMP message of a packet to an address, if its checksum is right.
func icmpOf(ip []byte, to netip.Addr) (message []byte, from netip.Addr, ok bool) {
	if to.Is6() {
		p := packet.IPv6(ip)
		if len(ip) < packet.IPv6HeaderLen || ip[0]>>4 != 6 || p.Dst() != to || p.NextHeader() != protoICMPv6 {
			return nil, from, false
		}
		return p.Payload(), p.Src(), packet.Checksum(p.SrcBytes(), p.DstBytes(), protoICMPv6, p.Payload()) == 0
	}
	if len(ip) < ipv4Header || ip[0]>>4 != 4 || netip.AddrFrom4([4]byte(ip[16:20])) != to || ip[9] != protoICMP {
		return nil, from, false
	}
	length, header := int(binary.BigEndian.Uint16(ip[2:])), int(ip[0]&15)*4
	if length > len(ip) || header > length {
		return nil, from, false
	}
	message = ip[header:length]
	return message, netip.AddrFrom4([4]byte(ip[12:16])), packet.Fold(packet.Sum(0, message)) == 0xffff
}

// quote reads the packet that the error is about.
func (e *icmpError) quote(ip []byte) bool {
	switch {
	case len(ip) >= packet.IPv6HeaderLen+8 && ip[0]>>4 == 6:
		e.src, e.dst = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		e.protocol, e.transport = ip[6], ip[packet.IPv6HeaderLen:]
		if e.protocol == protoFrag && len(e.transport) >= fragmentSize+8 {
			e.protocol, e.transport = e.transport[0], e.transport[fragmentSize:]
		}
		return true
	case len(ip) >= ipv4Header+8 && ip[0]>>4 == 4:
		e.src, e.dst = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		e.protocol, e.transport = ip[9], ip[ipv4Header:]
		return true
	}
	return false
}
