// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// layer is one IP header of a sample with the ports behind it.
type layer struct {
	src, dst netip.Addr
	proto    byte // the upper-layer protocol, behind extension headers
	length   int  // as the header says
	hops     byte
	fragment bool // not the first: what follows has no ports
	ports    bool
	sport    uint16
	dport    uint16
	kind     byte // ICMP type and code, if it is ICMP
	code     byte
	typed    bool
}

// Sizes and values of the headers that a sample may have (IEEE 802.3, RFC 791,
// RFC 8200).
const (
	ethernetLen = 14
	vlanLen     = 4
	ipv4MinLen  = 20

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8

	protoICMP  = 1
	protoIPv6  = 41 // 6in4
	maxHeaders = 8  // extension headers that are looked behind
	maxVLANs   = 2
)

// layers returns the IP headers of a sample: the outer, and that of a packet
// inside UDP or IP, if there is one.
func (s *Sample) layers() []layer {
	b := s.Data
	if s.Link == Ethernet {
		b = behindEthernet(b)
	}
	outer, payload, ok := parseIP(b)
	if !ok {
		return nil
	}
	all := []layer{outer}
	if outer.fragment {
		return all
	}
	var inner layer
	switch {
	case outer.proto == packet.ProtoUDP && len(payload) > packet.UDPHeaderLen:
		inner, ok = outer.inside(payload)
	case outer.proto == protoIPv6 && len(payload) > 0 && payload[0]>>4 == 6:
		inner, _, ok = parseIP(payload)
	default:
		return all
	}
	if ok {
		all = append(all, inner)
	}
	return all
}

// behindEthernet returns what follows the link header and its VLAN tags.
func behindEthernet(b []byte) []byte {
	if len(b) < ethernetLen {
		return nil
	}
	kind := binary.BigEndian.Uint16(b[12:])
	b = b[ethernetLen:]
	for range maxVLANs {
		if kind != etherVLAN && kind != etherQinQ || len(b) < vlanLen {
			break
		}
		kind = binary.BigEndian.Uint16(b[2:])
		b = b[vlanLen:]
	}
	if kind != etherIPv4 && kind != etherIPv6 {
		return nil
	}
	return b
}

// behindIndications returns what follows the Teredo indications of a UDP payload
// (RFC 4380 section 5.1.1).
func behindIndications(b []byte) []byte {
	const originLen, authenticationLen = 8, 13
	if len(b) > 4 && b[0] == 0 && b[1] == 1 {
		n := authenticationLen + int(b[2]) + int(b[3])
		if len(b) < n {
			return nil
		}
		b = b[n:]
	}
	if len(b) > originLen && b[0] == 0 && b[1] == 0 {
		b = b[originLen:]
	}
	return b
}

func parseIP(b []byte) (l layer, payload []byte, ok bool) {
	if len(b) == 0 {
		return l, nil, false
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(b)
	case 6:
		return parseIPv6(b)
	}
	return l, nil, false
}

func parseIPv4(b []byte) (l layer, payload []byte, ok bool) {
	n := int(b[0]&0xf) * 4
	if n < ipv4MinLen || len(b) < n {
		return l, nil, false
	}
	l = layer{
		src: netip.AddrFrom4([4]byte(b[12:])), dst: netip.AddrFrom4([4]byte(b[16:])),
		proto: b[9], hops: b[8], length: int(binary.BigEndian.Uint16(b[2:])),
		fragment: binary.BigEndian.Uint16(b[6:])&0x1fff != 0,
	}
	l.upper(b[n:])
	return l, b[n:], true
}

func parseIPv6(b []byte) (l layer, payload []byte, ok bool) {
	if len(b) < packet.IPv6HeaderLen {
		return l, nil, false
	}
	p := packet.IPv6(b)
	l = layer{
		src: p.Src(), dst: p.Dst(), proto: p.NextHeader(), hops: p.HopLimit(),
		length: packet.IPv6HeaderLen + int(binary.BigEndian.Uint16(b[4:])),
	}
	payload = p.Payload()
	for range maxHeaders {
		n := 8
		switch l.proto {
		case packet.ProtoHopByHop, packet.ProtoRouting, packet.ProtoDestOpts:
			if len(payload) < 8 {
				return l, nil, true
			}
			n += int(payload[1]) * 8
		case packet.ProtoFragment:
			if len(payload) < 8 {
				return l, nil, true
			}
			l.fragment = l.fragment || binary.BigEndian.Uint16(payload[2:])&^7 != 0
		default:
			l.upper(payload)
			return l, payload, true
		}
		if len(payload) < n {
			return l, nil, true
		}
		l.proto, payload = payload[0], payload[n:]
	}
	return l, nil, true
}

// upper reads ports, or type and code of ICMP.
func (l *layer) upper(b []byte) {
	if l.fragment || len(b) < 4 {
		return
	}
	switch l.proto {
	case packet.ProtoTCP, packet.ProtoUDP:
		l.ports = true
		l.sport, l.dport = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case protoICMP, packet.ProtoICMPv6:
		l.typed = true
		l.kind, l.code = b[0], b[1]
	}
}
