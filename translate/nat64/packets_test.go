// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Packets are built here apart from the code under test, checksums by their definition,
// one word at a time.

// Protocol numbers of the packets below. An ICMP message is described by the type of its
// own family.
const (
	tcpProto   = 6
	udpProto   = 17
	icmpProto  = 1
	icmp6Proto = 58
)

func sumWords(parts ...[]byte) uint16 {
	var acc uint32
	for _, b := range parts {
		for i, x := range b {
			if i%2 == 0 {
				acc += uint32(x) << 8
			} else {
				acc += uint32(x)
			}
			acc = acc>>16 + acc&0xffff
		}
	}
	return uint16(acc)
}

// pkt describes a packet, of the family that its addresses have; zero fields have usual
// values.
type pkt struct {
	src, dst string
	proto    byte
	hop      byte // 64
	tos      byte // IPv4 alone
	id       uint32
	df       bool
	frag     bool // of several, or with a Fragment Header
	offset   int
	more     bool
	payload  []byte
	keepSum  bool
	headers  []byte // IPv6 extension headers before the rest; first is the first one's number
	first    byte
}

func (p pkt) bytes() []byte {
	if netip.MustParseAddr(p.src).Is4() {
		return p.bytes4()
	}
	return p.bytes6()
}

func (p pkt) hopLimit() byte {
	if p.hop == 0 {
		return 64
	}
	return p.hop
}

func (p pkt) bytes4() []byte {
	src, dst := netip.MustParseAddr(p.src).As4(), netip.MustParseAddr(p.dst).As4()
	b := make([]byte, 20)
	b[0], b[1], b[8], b[9] = 0x45, p.tos, p.hopLimit(), p.proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(p.payload)))
	binary.BigEndian.PutUint16(b[4:], uint16(p.id))
	flags := uint16(p.offset / 8)
	if p.df {
		flags |= 0x4000
	}
	if p.more {
		flags |= 0x2000
	}
	binary.BigEndian.PutUint16(b[6:], flags)
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[10:], ^sumWords(b))
	pseudo := slices.Concat(src[:], dst[:], []byte{0, p.proto, byte(len(p.payload) >> 8), byte(len(p.payload))})
	if p.proto == icmpProto {
		pseudo = nil
	}
	return append(b, p.summed(pseudo)...)
}

func (p pkt) bytes6() []byte {
	src, dst := netip.MustParseAddr(p.src).As16(), netip.MustParseAddr(p.dst).As16()
	b := make([]byte, 40)
	b[0], b[6], b[7] = 0x60, p.proto, p.hopLimit()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	if len(p.headers) > 0 {
		b[6] = p.first
		b = append(b, p.headers...)
	}
	if p.frag || p.more || p.offset != 0 {
		if len(p.headers) == 0 {
			b[6] = 44
		}
		word := uint16(p.offset)
		if p.more {
			word |= 1
		}
		b = append(b, p.proto, 0, byte(word>>8), byte(word))
		b = binary.BigEndian.AppendUint32(b, p.id)
	}
	pseudo := slices.Concat(src[:], dst[:], []byte{0, 0, byte(len(p.payload) >> 8), byte(len(p.payload)), 0, 0, 0, p.proto})
	b = append(b, p.summed(pseudo)...)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	return b
}

// summed is the payload with its checksum, in packets that are whole.
func (p pkt) summed(pseudo []byte) []byte {
	m := slices.Clone(p.payload)
	if p.keepSum || p.offset != 0 || p.more {
		return m
	}
	sumTransport(m, p.proto, pseudo)
	return m
}

func sumTransport(m []byte, proto byte, pseudo []byte) {
	at := map[byte]int{tcpProto: 16, udpProto: 6, icmpProto: 2, icmp6Proto: 2}[proto]
	if at == 0 || len(m) < at+2 {
		return
	}
	m[at], m[at+1] = 0, 0
	sum := ^sumWords(pseudo, m)
	if sum == 0 && proto == udpProto {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(m[at:], sum)
}

// withSum is the message of a packet as it would be whole: for cutting into fragments.
func withSum(p pkt) []byte {
	whole := p.bytes()
	if whole[0]>>4 == 4 {
		return whole[20:]
	}
	return whole[40:]
}

// udpMsg, tcpMsg and echoMsg are messages; the packet fills their checksums in.
func udpMsg(src, dst uint16, n int) []byte {
	m := binary.BigEndian.AppendUint16(nil, src)
	m = binary.BigEndian.AppendUint16(m, dst)
	m = append(m, byte((8+n)>>8), byte(8+n), 0, 0)
	return append(m, filling(n)...)
}

func tcpMsg(src, dst uint16, flags byte, n int) []byte {
	m := binary.BigEndian.AppendUint16(nil, src)
	m = binary.BigEndian.AppendUint16(m, dst)
	m = append(m, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0x20, 0, 0, 0, 0, 0)
	return append(m, filling(n)...)
}

func echoMsg(typ byte, id uint16, n int) []byte {
	return append([]byte{typ, 0, 0, 0, byte(id >> 8), byte(id), 0, 9}, filling(n)...)
}

// icmpMsg is an ICMP message of a type, code, second word and body.
func icmpMsg(typ, code byte, word uint32, body ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{typ, code, 0, 0}, word)
	return append(b, slices.Concat(body...)...)
}

func filling(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 3)
	}
	return b
}

// cut cuts a message into fragments of the packet, each with so many octets.
func (p pkt) cut(size int) (fragments [][]byte) {
	message := withSum(p)
	for at := 0; at < len(message); at += size {
		f := p
		f.frag, f.keepSum = true, true
		f.offset = at
		f.payload = message[at:min(at+size, len(message))]
		f.more = at+size < len(message)
		fragments = append(fragments, f.bytes())
	}
	return fragments
}
