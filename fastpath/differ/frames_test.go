// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	ethLen    = 14
	ip4Len    = 20
	udpLen    = 8
	ip6Len    = packet.IPv6HeaderLen
	protoSCTP = 132
)

// senderMAC is whoever sent a frame to us.
var senderMAC = mac(200)

// ethernet puts a frame together, for the port that all frames come in by.
func ethernet(kind uint16, payload []byte) []byte {
	f := append([]byte{}, ports[0].mac...)
	f = append(f, senderMAC...)
	f = binary.BigEndian.AppendUint16(f, kind)
	return append(f, payload...)
}

// ip6 makes an IPv6 packet.
func ip6(next, hops byte, src, dst netip.Addr, payload []byte) []byte {
	return append(packet.AppendIPv6Header(nil, next, hops, len(payload), src, dst), payload...)
}

// transport makes a payload of n bytes with the right checksum.
func transport(next byte, n int, src, dst netip.Addr) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + n)
	}
	switch next {
	case packet.ProtoTCP:
		if n > 12 {
			b[12] = 5 << 4
		}
	case packet.ProtoUDP:
		if n >= 8 {
			binary.BigEndian.PutUint16(b[4:], uint16(n))
		}
	case packet.ProtoICMPv6:
		if n > 0 {
			b[0] = packet.ICMPv6EchoRequest
		}
	}
	if at := checksumAt(next); at >= 0 && at+2 <= n {
		b[at], b[at+1] = 0, 0
		s, d := src.As16(), dst.As16()
		sum := packet.Checksum(&s, &d, next, b)
		if next == packet.ProtoUDP && sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(b[at:], sum)
	}
	return b
}

// checksumAt is where a transport header has its checksum; -1 for those unknown.
func checksumAt(next byte) int {
	switch next {
	case packet.ProtoTCP:
		return 16
	case packet.ProtoUDP:
		return 6
	case packet.ProtoICMPv6:
		return 2
	}
	return -1
}

// whole makes an IPv6 packet of n bytes with a right checksum.
func whole(next, hops byte, n int, src, dst netip.Addr) []byte {
	return ip6(next, hops, src, dst, transport(next, n-ip6Len, src, dst))
}

// halve leaves the transport checksum as a sender leaves it to hardware.
func halve(p []byte) []byte {
	v, _, _ := packet.ParseIPv6(p)
	binary.BigEndian.PutUint16(p[ip6Len+checksumAt(v.NextHeader()):], pseudo6(v))
	return p
}

// pseudo6 is the folded sum of a pseudo-header.
func pseudo6(p packet.IPv6) uint16 {
	sum := uint64(len(p.Payload())) + uint64(p.NextHeader())
	sum = packet.Sum(sum, p.SrcBytes()[:])
	return packet.Fold(packet.Sum(sum, p.DstBytes()[:]))
}

// udp4 makes an IPv4 packet with UDP and a right checksum.
func udp4(from, to netip.AddrPort, ttl byte, payload []byte) []byte {
	b := make([]byte, ip4Len+udpLen, ip4Len+udpLen+len(payload))
	b[0], b[8], b[9] = 0x45, ttl, packet.ProtoUDP
	binary.BigEndian.PutUint16(b[2:], uint16(ip4Len+udpLen+len(payload)))
	copy(b[12:], from.Addr().AsSlice())
	copy(b[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[20:], from.Port())
	binary.BigEndian.PutUint16(b[22:], to.Port())
	binary.BigEndian.PutUint16(b[24:], uint16(udpLen+len(payload)))
	b = append(b, payload...)
	seal4(b)
	return b
}

// seal4 makes both checksums of an IPv4 packet with UDP right.
func seal4(b []byte) {
	header := int(b[0]&0xf) * 4
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b[:header])))
	udp := b[header:]
	udp[6], udp[7] = 0, 0
	sum := ^packet.Fold(packet.Sum(pseudo4(b), udp))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
}

// pseudo4 is the sum of the pseudo-header of UDP over IPv4.
func pseudo4(b []byte) uint64 {
	header := int(b[0]&0xf) * 4
	return packet.Sum(packet.ProtoUDP+uint64(binary.BigEndian.Uint16(b[header+4:])), b[12:20])
}

// client makes a Teredo address.
func client(mapped netip.AddrPort) netip.Addr { return clientOf(0, 0, mapped) }

func clientOf(prefix int, flags teredo.Flags, mapped netip.AddrPort) netip.Addr {
	return teredo.Addr{Prefix: prefixes[prefix], Server: server, Flags: flags, Mapped: mapped}.IP()
}

// fromClient makes a frame from a client.
func fromClient(from netip.AddrPort, payload []byte) []byte {
	return ethernet(etherIPv4, udp4(from, netip.AddrPortFrom(relayIP, relayPort), 57, payload))
}

// padded fills a frame up to the least that Ethernet carries.
func padded(f []byte) []byte {
	for len(f) < 60 {
		f = append(f, 0xa5)
	}
	return f
}
