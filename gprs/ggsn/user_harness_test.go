// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// udp4 is an IPv4 packet with a UDP datagram of n octets.
func udp4(src, dst netip.Addr, ttl byte, n int) []byte {
	b := make([]byte, 28+n)
	b[0], b[8], b[9] = 0x45, ttl, packet.ProtoUDP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	s, d := src.As4(), dst.As4()
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[20:], 5000)
	binary.BigEndian.PutUint16(b[22:], 53)
	binary.BigEndian.PutUint16(b[24:], uint16(8+n))
	fill4(b)
	return b
}

// fill4 writes the checksum of the header.
func fill4(b []byte) {
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b[:headerLen4(b)])))
}

func right4(b []byte) bool { return packet.Fold(packet.Sum(0, b[:headerLen4(b)])) == 0xffff }

// udp6 is its IPv6 counterpart.
func udp6(src, dst netip.Addr, hops byte, n int) []byte {
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, hops, 8+n, src, dst)
	b = append(b, 0x13, 0x88, 0, 53, byte((8+n)>>8), byte(8+n), 0, 0)
	return append(b, make([]byte, n)...)
}

// icmp4 is an IPv4 packet with so many octets of options and an ICMP message.
func icmp4(src, dst netip.Addr, options int, kind byte) []byte {
	b := udp4(src, dst, 64, 20+options)
	b[0], b[9] = b[0]+byte(options/4), packet.ProtoICMPv4
	clear(b[20 : 20+options])
	b[20+options], b[21+options] = kind, 1
	fill4(b)
	return b
}

// fragment4 makes a packet the second of its fragments.
func fragment4(b []byte) []byte {
	b[7] = 1
	fill4(b)
	return b
}

// icmp6 is an IPv6 packet with an ICMPv6 message.
func icmp6(src, dst netip.Addr, kind byte) []byte {
	b := udp6(src, dst, 64, 32)
	b[6], b[40], b[41] = packet.ProtoICMPv6, kind, 0
	return b
}

// up sends a packet of a terminal as a G-PDU.
func (w *world) up(c context, ip []byte) {
	w.Helper()
	h := gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: c.TEIDData.Value}
	b, err := gtp.Encapsulate(nil, &h, ip)
	if err != nil {
		w.Fatal(err)
	}
	w.raw(pathUser, b)
}

// down sends a packet from the network.
func (w *world) down(ip []byte) {
	w.out.Reset()
	w.e.HandleIP(0, ip, w.now, &w.out)
}

// tunnelled returns what came out as one G-PDU, or nothing.
func (w *world) tunnelled() (h gtp.Header, ip []byte) {
	w.Helper()
	if len(w.out.UDP) != 1 {
		return h, nil
	}
	h, err := gtp.Decapsulate(w.out.UDP[0].Payload)
	if err != nil {
		w.Fatalf("%x: %v", w.out.UDP[0].Payload, err)
	}
	return h, h.Payload
}

func (c *context) four() netip.Addr { return c.EndUserAddress.Value.IPv4 }

// six is an address under the prefix, another than that of the end user address.
func (c *context) six() netip.Addr {
	raw := c.EndUserAddress.Value.IPv6.As16()
	raw[15] ^= 0x55
	return netip.AddrFrom16(raw)
}

// local is the terminal's link-local address.
func (c *context) local() netip.Addr {
	raw := c.EndUserAddress.Value.IPv6.As16()
	copy(raw[:8], []byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0})
	return netip.AddrFrom16(raw)
}
