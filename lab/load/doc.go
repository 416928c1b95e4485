// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package load measures what forwards packets: a [Sender] that outruns any
// user-space forwarder, and a [Tap] that stamps what arrives. Both work on raw
// Ethernet frames of one interface, in the network namespace of the thread that
// opens them.
//
// Latency is the time from just before the sender's system call to the kernel's
// stamp at the receiver's device. It holds one system call and two veth hops,
// so the same figure for plain kernel forwarding has to stand beside it.
package load

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// DiscardPort is the UDP port of all test packets (RFC 863), so that a receiver
// can drop them by one rule.
const DiscardPort = 9

// Ethernet types.
const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

// Classes is how many kinds of test packets a [Meter] distinguishes.
const Classes = 8

// Classify makes a packet of [Packet] one of that class; they are of class 0 at
// first.
func Classify(p packet.IPv6, class int) {
	udp := p.Payload()
	binary.BigEndian.PutUint16(udp, DiscardPort+uint16(class%Classes))
	udp[6], udp[7] = 0, 0
	binary.BigEndian.PutUint16(udp[6:], packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, udp))
}

// marker opens the payload of a test packet; a sequence number of 8 bytes
// follows it.
var marker = [8]byte{'i', 's', 't', 'h', 'm', 'u', 's', '!'}

// MinSize is the smallest test packet: IPv6 and UDP headers. One that is to be
// distinguished from others needs [MinTaggedSize].
const (
	MinSize       = packet.IPv6HeaderLen + packet.UDPHeaderLen
	MinTaggedSize = MinSize + len(marker) + 8
)

// Packet builds an IPv6 packet of size bytes that carries UDP from src to dst,
// with the marker and sequence number 0 where they fit, and a right checksum.
func Packet(src, dst netip.Addr, size int) packet.IPv6 {
	n := size - packet.IPv6HeaderLen
	b := packet.AppendIPv6Header(make([]byte, 0, size), packet.ProtoUDP, 64, n, src, dst)
	b = append(b, make([]byte, n)...)
	p := packet.IPv6(b)
	udp := p.Payload()
	binary.BigEndian.PutUint16(udp, DiscardPort)
	binary.BigEndian.PutUint16(udp[2:], DiscardPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(n))
	if size >= MinTaggedSize {
		copy(udp[packet.UDPHeaderLen:], marker[:])
	}
	binary.BigEndian.PutUint16(udp[6:], packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, udp))
	return p
}

// Frame6 puts an IPv6 packet into an Ethernet frame.
func Frame6(src, dst net.HardwareAddr, p packet.IPv6) []byte {
	return append(ethernet(src, dst, etherIPv6), p...)
}

// Frame4 puts a UDP payload into an IPv4 packet (RFC 791), without a UDP
// checksum, and that into an Ethernet frame.
func Frame4(src, dst net.HardwareAddr, from, to netip.AddrPort, payload []byte) []byte {
	n := packet.UDPHeaderLen + len(payload)
	b := ipv4Header(ethernet(src, dst, etherIPv4), from.Addr(), to.Addr(), packet.ProtoUDP, n)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	b = append(b, 0, 0)
	return append(b, payload...)
}

func ethernet(src, dst net.HardwareAddr, etherType uint16) []byte {
	b := append(append(make([]byte, 0, 1600), dst...), src...)
	return binary.BigEndian.AppendUint16(b, etherType)
}
