// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Packet describes a packet of the family that its addresses have.
type Packet struct {
	Src, Dst string
	Proto    byte
	Hop      byte // 0: 64
	TOS      byte // of IPv4 alone
	DF       bool
	ID       uint16 // of its fragments
	Offset   int    // in octets
	More     bool
	Payload  []byte // a checksum of ICMP is filled in
}

// Bytes is the packet as it is sent.
func (p Packet) Bytes() []byte {
	if p.Hop == 0 {
		p.Hop = 64
	}
	src, dst := netip.MustParseAddr(p.Src), netip.MustParseAddr(p.Dst)
	if src.Is4() {
		return p.ipv4(src.As4(), dst.As4())
	}
	message := slices.Clone(p.Payload)
	whole := p.Offset == 0 && !p.More
	if p.Proto == packet.ProtoICMPv6 && whole {
		from, to := src.As16(), dst.As16()
		binary.BigEndian.PutUint16(message[2:], packet.Checksum(&from, &to, p.Proto, message))
	}
	if whole {
		return append(packet.AppendIPv6Header(nil, p.Proto, p.Hop, len(message), src, dst), message...)
	}
	word := uint16(p.Offset)
	if p.More {
		word |= 1
	}
	b := packet.AppendIPv6Header(nil, 44, p.Hop, 8+len(message), src, dst)
	b = append(b, p.Proto, 0, byte(word>>8), byte(word), 0, 0, byte(p.ID>>8), byte(p.ID))
	return append(b, message...)
}

func (p Packet) ipv4(src, dst [4]byte) []byte {
	b := make([]byte, 20)
	b[0], b[1], b[8], b[9] = 0x45, p.TOS, p.Hop, p.Proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(p.Payload)))
	binary.BigEndian.PutUint16(b[4:], p.ID)
	flags := uint16(p.Offset / 8)
	if p.DF {
		flags |= 0x4000
	}
	if p.More {
		flags |= 0x2000
	}
	binary.BigEndian.PutUint16(b[6:], flags)
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b)))
	message := slices.Clone(p.Payload)
	if p.Proto == 1 && flags&^0x4000 == 0 {
		binary.BigEndian.PutUint16(message[2:], ^packet.Fold(packet.Sum(0, message)))
	}
	return append(b, message...)
}

// UDP is a datagram with so many octets of data, and a checksum that no one looks at.
func UDP(src, dst uint16, n int) []byte {
	m := binary.BigEndian.AppendUint16(nil, src)
	m = binary.BigEndian.AppendUint16(m, dst)
	m = binary.BigEndian.AppendUint16(m, uint16(8+n))
	return append(m, append([]byte{0x12, 0x34}, make([]byte, n)...)...)
}

// TCP is a segment without data.
func TCP(src, dst uint16, flags byte) []byte {
	m := binary.BigEndian.AppendUint16(nil, src)
	m = binary.BigEndian.AppendUint16(m, dst)
	return append(m, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0x20, 0, 0x12, 0x34, 0, 0)
}

// ICMP is a message of a type, code and second word.
func ICMP(typ, code byte, word uint32, body ...[]byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{typ, code, 0, 0}, word), slices.Concat(body...)...)
}
