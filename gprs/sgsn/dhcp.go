// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// DHCP (RFC 2131 section 2, RFC 2132, RFC 4039).
const (
	dhcpServer, dhcpClient = 67, 68
	dhcpFixed              = 240 // octets before the options, with the cookie
	dhcpCookie             = 0x63825363
	dhcpLease              = 3600
	dhcpRapidCommit        = 80 // an option without a value

	dhcpDiscover, dhcpOffer, dhcpRequest, dhcpAck, dhcpNak, dhcpInform = 1, 2, 3, 5, 6, 8
)

// dhcp answers what the terminal's stack asks of a DHCP server: it gives the address of the
// context, and nothing else. It reports whether the packet was for one.
func (t *station) dhcp(ip []byte, out *Output) bool {
	if len(ip) < packet.IPv4HeaderLen || ip[9] != packet.ProtoUDP {
		return false
	}
	head := int(ip[0]&0xf) * 4
	if head < packet.IPv4HeaderLen || len(ip) < head+packet.UDPHeaderLen || binary.BigEndian.Uint16(ip[head+2:]) != dhcpServer {
		return false
	}
	b := ip[head+packet.UDPHeaderLen:]
	s := t.four
	if s == nil || len(b) < dhcpFixed || b[0] != 1 || binary.BigEndian.Uint32(b[236:]) != dhcpCookie {
		return true
	}
	kind, wanted, rapid := dhcpOptions(b[dhcpFixed:])
	if !wanted.IsValid() { // who renews has it in ciaddr
		wanted = netip.AddrFrom4([4]byte(b[12:16]))
	}
	switch {
	case kind == dhcpDiscover && rapid: // no one else serves this link (RFC 4039 section 3.1)
		t.dhcpAnswer(s, b, dhcpAck, out, dhcpRapidCommit, 0)
	case kind == dhcpDiscover:
		t.dhcpAnswer(s, b, dhcpOffer, out)
	case kind == dhcpInform, kind == dhcpRequest && wanted == s.four:
		t.dhcpAnswer(s, b, dhcpAck, out)
	case kind == dhcpRequest:
		t.dhcpAnswer(s, b, dhcpNak, out)
	}
	return true
}

// dhcpOptions returns the kind of a message, the address that it asks for, and whether it takes
// that at once, without an offer.
func dhcpOptions(b []byte) (kind uint8, wanted netip.Addr, rapid bool) {
	for len(b) >= 2 && b[0] != 255 {
		if b[0] == 0 {
			b = b[1:]
			continue
		}
		n := 2 + int(b[1])
		if len(b) < n {
			break
		}
		switch v := b[2:n]; {
		case b[0] == 53 && len(v) == 1:
			kind = v[0]
		case b[0] == 50 && len(v) == 4:
			wanted = netip.AddrFrom4([4]byte(v))
		case b[0] == dhcpRapidCommit && len(v) == 0:
			rapid = true
		}
		b = b[n:]
	}
	return kind, wanted, rapid
}

// dhcpAnswer sends an answer to a message, with more options if there are any.
func (t *station) dhcpAnswer(s *session, asked []byte, kind uint8, out *Output, more ...byte) {
	router, bits := neighbourhood(s.four)
	b := make([]byte, dhcpFixed, 548)
	b[0] = 2
	copy(b[1:12], asked[1:12]) // hardware, transaction, flags
	b[3] = 0
	copy(b[28:44], asked[28:44])
	binary.BigEndian.PutUint32(b[236:], dhcpCookie)
	option := func(code byte, v ...byte) { b = append(append(b, code, byte(len(v))), v...) }
	option(53, kind)
	b = append(b, more...)
	option(54, router.AsSlice()...)
	if kind != dhcpNak {
		if kind == dhcpOffer || binary.BigEndian.Uint32(asked[12:16]) == 0 {
			copy(b[16:20], s.four.AsSlice())
		} else {
			copy(b[12:16], asked[12:16])
			copy(b[16:20], s.four.AsSlice())
		}
		option(51, binary.BigEndian.AppendUint32(nil, dhcpLease)...)
		option(1, binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-bits))...)
		option(3, router.AsSlice()...)
		var servers []byte
		for _, a := range s.given.dns {
			if a.Is4() {
				servers = append(servers, a.AsSlice()...)
			}
		}
		if len(servers) > 0 {
			option(6, servers...)
		}
		if s.given.mtu != 0 {
			option(26, binary.BigEndian.AppendUint16(nil, uint16(s.given.mtu))...)
		}
	}
	t.frame(etherIPv4, udpBroadcast(router, append(b, 255)), out)
}

// neighbourhood is the smallest network in which a terminal's address is that of a host, and the
// first other one of it, which the router has. There is none in truth: the link has two ends.
func neighbourhood(a netip.Addr) (router netip.Addr, bits int) {
	v := binary.BigEndian.Uint32(a.AsSlice())
	for bits = 30; bits > 8; bits-- {
		rest := uint32(1)<<(32-bits) - 1
		if host := v & rest; host == 0 || host == rest {
			continue
		}
		first := v&^rest + 1
		if first == v {
			first++
		}
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], first)
		return netip.AddrFrom4(raw), bits
	}
	return a, 32
}

// udpBroadcast is a datagram of a DHCP server to all.
func udpBroadcast(from netip.Addr, payload []byte) []byte {
	n := packet.UDPHeaderLen + len(payload)
	b := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, packet.ProtoUDP, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(packet.IPv4HeaderLen+n))
	b = append(append(b, from.AsSlice()...), 255, 255, 255, 255)
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b)))
	b = append(b, 0, dhcpServer, 0, dhcpClient, byte(n>>8), byte(n), 0, 0) // IPv4 needs no checksum
	return append(b, payload...)
}
