// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Filter chooses frames of a wire. They begin with their Ethernet header.
type Filter func(frame []byte) bool

const protoSCTP = 132

// UDP chooses datagrams from or to a port whose payload begins with these words, such as
// UDP(5060, "INVITE "). Of fragments only the first can be chosen.
func UDP(port uint16, begins string) Filter {
	return func(frame []byte) bool {
		p, ok := transport(frame, packet.ProtoUDP)
		return ok && len(p) >= 8 && bytes.HasPrefix(p[8:], []byte(begins)) &&
			(binary.BigEndian.Uint16(p) == port || binary.BigEndian.Uint16(p[2:]) == port)
	}
}

// SCTPChunk chooses packets with a chunk of that type, which is 1 for INIT (RFC 9260 3.2).
func SCTPChunk(chunk byte) Filter {
	return func(frame []byte) bool {
		p, ok := transport(frame, protoSCTP)
		if !ok || len(p) < 12 {
			return false
		}
		for p = p[12:]; len(p) >= 4; {
			if p[0] == chunk {
				return true
			}
			length := (int(binary.BigEndian.Uint16(p[2:])) + 3) &^ 3
			if length < 4 || length > len(p) {
				return false
			}
			p = p[length:]
		}
		return false
	}
}

// transport is what a frame carries of a protocol in IPv4 or IPv6, unless it is a further
// fragment.
func transport(frame []byte, protocol byte) (payload []byte, ok bool) {
	if len(frame) < ethernetHeader {
		return nil, false
	}
	switch p := frame[ethernetHeader:]; binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		if len(p) < 20 || p[9] != protocol || binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
			return nil, false
		}
		header := int(p[0]&15) * 4
		if header < 20 || header > len(p) {
			return nil, false
		}
		return p[header:], true
	case 0x86dd:
		ip, _, ok := packet.ParseIPv6(p)
		if !ok {
			return nil, false
		}
		next, at, ok := ip.UpperLayer()
		if !ok || next != protocol {
			return nil, false
		}
		return ip[at:], true
	}
	return nil, false
}
