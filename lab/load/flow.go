// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Flags of TCP (RFC 9293 section 3.1).
const (
	FIN = 0x01
	SYN = 0x02
	ACK = 0x10
)

// Datagram is a frame with a UDP datagram from one port to another, of either
// family, as long as that of an IPv6 packet of size bytes. It carries the marker
// where that fits.
func Datagram(srcMAC, dstMAC net.HardwareAddr, from, to netip.AddrPort, size int) []byte {
	udp := make([]byte, size-packet.IPv6HeaderLen)
	putPorts(udp, from, to)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	if size >= MinTaggedSize {
		copy(udp[packet.UDPHeaderLen:], marker[:])
	}
	return frameOf(srcMAC, dstMAC, from, to, packet.ProtoUDP, udp, 6)
}

// Segment is a frame with a TCP segment without data.
func Segment(srcMAC, dstMAC net.HardwareAddr, from, to netip.AddrPort, flags byte) []byte {
	tcp := make([]byte, tcpLen)
	putPorts(tcp, from, to)
	tcp[12], tcp[13] = tcpLen/4<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 65535) // the window
	return frameOf(srcMAC, dstMAC, from, to, protocolTCP, tcp, 16)
}

func putPorts(b []byte, from, to netip.AddrPort) {
	binary.BigEndian.PutUint16(b, from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
}

// frameOf puts UDP or TCP, whose checksum lies at that place, into a frame.
func frameOf(srcMAC, dstMAC net.HardwareAddr, from, to netip.AddrPort, protocol byte, b []byte, checksum int) []byte {
	// The mapped form of an IPv4 address has the same sum as the address.
	s, d := from.Addr().As16(), to.Addr().As16()
	binary.BigEndian.PutUint16(b[checksum:], packet.Checksum(&s, &d, protocol, b))
	if from.Addr().Is4() {
		return append(ipv4Header(ethernet(srcMAC, dstMAC, etherIPv4), from.Addr(), to.Addr(), protocol, len(b)), b...)
	}
	p := packet.AppendIPv6Header(make([]byte, 0, packet.IPv6HeaderLen+len(b)), protocol, 64, len(b), from.Addr(), to.Addr())
	return Frame6(srcMAC, dstMAC, packet.IPv6(append(p, b...)))
}
