// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// embed is the IPv6 form of an IPv4 address; bits that say nothing may be set.
func (g *ipGenerator) embed(prefix int, a netip.Addr) netip.Addr {
	out := natEmbed(g.prefixes[prefix], a)
	if bits := g.prefixes[prefix].Bits(); bits < 96 && g.chance(30) {
		raw := out.As16()
		raw[15] = byte(g.rng.Uint32())
		raw[8] = byte(g.rng.Uint32())
		out = netip.AddrFrom16(raw)
	}
	return out
}

// natEmbed does so by RFC 6052 section 2.2.
func natEmbed(prefix netip.Prefix, a netip.Addr) netip.Addr {
	raw, four := prefix.Addr().As16(), a.As4()
	at := prefix.Bits() / 8
	for i := range four {
		if at == 8 {
			at++
		}
		raw[at] = four[i]
		at++
	}
	return netip.AddrFrom16(raw)
}

// length is that of a payload behind the transport header of a packet with so long an IP
// header: small, or such that the packet is about as large as may be.
func (g *ipGenerator) length(header int) int {
	sizes := []int{1000, 1020, 1260, 1280, 1380, 1400, 1480, 1500}
	switch g.rng.IntN(9) {
	case 0:
		return max(pick(&g.generator, sizes)+g.rng.IntN(5)-2-header, 0)
	case 1:
		return g.rng.IntN(1460)
	case 2:
		return 0
	}
	return g.rng.IntN(64)
}

var tcpFlags = []byte{2, 2, 2, 2, 0x12, 0x12, 0x12, 0x10, 0x10, 0x10, 0x18, 1, 0x11, 0x11, 4, 4, 0x14, 3, 6, 5, 7, 0}

// message makes what an IP header is followed by; its checksum is not filled in.
func (g *ipGenerator) message(f natFlow, toIPv6 bool, n int) (proto byte, m []byte) {
	from, to, id := f.x, f.z, f.x
	request, reply := byte(128), byte(129)
	if toIPv6 {
		from, to, id, request, reply = f.z, f.t, f.t, 8, 0
	}
	if f.quote {
		from, to = to, from
	}
	switch f.transport {
	case state.TCP:
		proto, m = packet.ProtoTCP, make([]byte, 20+max(n-20, 0))
		flags := pick(&g.generator, tcpFlags)
		if g.chance(10) {
			flags = byte(g.rng.Uint32())
		}
		m[12], m[13] = 5<<4, flags
	case state.UDP:
		proto, m = packet.ProtoUDP, make([]byte, 8+max(n-8, 0))
		binary.BigEndian.PutUint16(m[4:], uint16(len(m)))
	default:
		proto, m = packet.ProtoICMPv6, make([]byte, 8+max(n-8, 0))
		if toIPv6 {
			proto = 1
		}
		m[0] = pick(&g.generator, []byte{request, request, request, reply, reply})
		if g.chance(25) {
			m[0] = byte(g.rng.Uint32())
		}
		if g.chance(10) {
			m[1] = byte(g.rng.Uint32())
		}
		binary.BigEndian.PutUint16(m[4:], id)
	}
	if proto == packet.ProtoTCP || proto == packet.ProtoUDP {
		binary.BigEndian.PutUint16(m, from)
		binary.BigEndian.PutUint16(m[2:], to)
	}
	for i := 20; i < len(m); i += 3 {
		m[i] = byte(g.rng.Uint32())
	}
	return proto, m
}

// hops is a hop limit, in most cases one that suffices.
func (g *ipGenerator) hops() byte {
	if g.chance(15) {
		return byte(g.rng.IntN(4))
	}
	return byte(2 + g.rng.IntN(254))
}

// header4 and header6 make headers for so many bytes.
func (g *ipGenerator) header4(proto byte, src, dst netip.Addr, n int) []byte {
	ip := make([]byte, ip4Len, ip4Len+n)
	ip[0], ip[8], ip[9] = 0x45, g.hops(), proto
	binary.BigEndian.PutUint16(ip[2:], uint16(ip4Len+n))
	ip[1] = byte(g.rng.Uint32())
	binary.BigEndian.PutUint16(ip[4:], uint16(g.rng.Uint32()))
	if g.chance(2) {
		ip[6] = 0x40
	}
	copy(ip[12:], src.AsSlice())
	copy(ip[16:], dst.AsSlice())
	return ip
}

func (g *ipGenerator) header6(proto byte, src, dst netip.Addr, n int) []byte {
	ip := packet.AppendIPv6Header(make([]byte, 0, ip6Len+n), proto, g.hops(), n, src, dst)
	if g.chance(3) {
		binary.BigEndian.PutUint32(ip, 0x60000000|g.rng.Uint32()&0x0fffffff)
	}
	return ip
}

// packet6 and packet4 make whole packets of a flow, without checksums.
func (g *ipGenerator) packet6(f natFlow, n int) []byte {
	proto, m := g.message(f, false, n)
	return append(g.header6(proto, f.client, g.embed(f.prefix, f.peer), len(m)), m...)
}

func (g *ipGenerator) packet4(f natFlow, n int) []byte {
	proto, m := g.message(f, true, n)
	return append(g.header4(proto, f.peer, f.pool, len(m)), m...)
}

var errorWords = []uint32{0, 1, 68, 576, 1000, 1019, 1020, 1279, 1280, 1281, 1299, 1300, 1480, 1492, 1500, 1520, 65535, 65536, 1<<32 - 1}

// errorWord is the second word of an ICMP error: an MTU, a pointer, the length that an
// extension begins at, or anything.
func (g *ipGenerator) errorWord(typ byte, pointer bool) uint32 {
	switch {
	case pointer && typ == 12: // of ICMP
		return uint32(g.rng.IntN(44)) << 24
	case pointer:
		return uint32(g.rng.IntN(44))
	case g.chance(3) && !pointer:
		return uint32(g.rng.IntN(44))
	case g.chance(30):
		return g.rng.Uint32()
	case g.chance(12):
		return uint32(g.rng.IntN(40)) << 16 << (8 * g.rng.IntN(2))
	}
	return pick(&g.generator, errorWords)
}

// quotedLength is how much of a packet an error quotes.
func (g *ipGenerator) quotedLength(whole int) int {
	switch g.rng.IntN(5) {
	case 0:
		return min(28, whole)
	case 1:
		return min(g.rng.IntN(60), whole)
	case 2:
		return min(500+g.rng.IntN(800), whole)
	}
	return whole
}

// error4 and error6 make ICMP errors about packets of a flow that went the other way.
func (g *ipGenerator) error4(f natFlow) []byte {
	f.quote = true
	proto, m := g.message(f, true, g.length(ip4Len))
	inner := append(g.header4(proto, f.pool, f.peer, len(m)), m...)
	g.oddity(inner)
	seal(inner)
	inner = inner[:g.quotedLength(len(inner))]
	typ := pick(&g.generator, []byte{3, 3, 3, 3, 11, 12, 4, 5})
	body := binary.BigEndian.AppendUint32([]byte{typ, byte(g.rng.IntN(17)), 0, 0}, g.errorWord(typ, typ == 12))
	switch {
	case g.chance(3) && typ == 3:
		body[1] = 4 // too big
	case typ == 12 && !g.chance(4):
		body[1] = 0
	}
	router := f.peer
	if !g.chance(3) {
		router = g.peer()
	}
	return append(append(g.header4(1, router, f.pool, len(body)+len(inner)), body...), inner...)
}

func (g *ipGenerator) error6(f natFlow) []byte {
	f.quote = true
	proto, m := g.message(f, false, g.length(ip6Len))
	peer := g.embed(f.prefix, f.peer)
	inner := append(g.header6(proto, peer, f.client, len(m)), m...)
	g.oddity(inner)
	seal(inner)
	inner = inner[:g.quotedLength(len(inner))]
	typ := pick(&g.generator, []byte{1, 1, 2, 2, 3, 4, 4, 0, 5, 100, 127})
	body := binary.BigEndian.AppendUint32([]byte{typ, byte(g.rng.IntN(7)), 0, 0}, g.errorWord(typ, typ == 4))
	if typ == 4 && !g.chance(3) {
		body[1] = 0 // a field that is wrong
	}
	router := f.client
	if !g.chance(3) {
		router = g.client()
	}
	return append(append(g.header6(packet.ProtoICMPv6, router, peer, len(body)+len(inner)), body...), inner...)
}

// checksumOf is as checksumAt, with ICMP.
func checksumOf(next byte) int {
	if next == 1 {
		return 2
	}
	return checksumAt(next)
}

// seal makes the checksums of a packet without options right: header and transport.
func seal(ip []byte) {
	header, next, acc := ip6Len, ip[6], uint64(0)
	if len(ip) < ip6Len && ip[0]>>4 != 4 {
		return
	}
	if ip[0]>>4 == 4 {
		header, next = ip4Len, ip[9]
		ip[10], ip[11] = 0, 0
		whole := max(min(int(ip[0]&0xf)*4, len(ip)), ip4Len)
		binary.BigEndian.PutUint16(ip[10:], ^packet.Fold(packet.Sum(0, ip[:whole])))
		if next != 1 {
			acc = packet.Sum(uint64(len(ip)-header)+uint64(next), ip[12:20])
		}
	} else {
		acc = packet.Sum(uint64(len(ip)-header)+uint64(next), ip[8:40])
	}
	at := checksumOf(next)
	if at < 0 || header+at+2 > len(ip) {
		return
	}
	m := ip[header:]
	m[at], m[at+1] = 0, 0
	sum := ^packet.Fold(packet.Sum(acc, m))
	if next == packet.ProtoUDP && sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(m[at:], sum)
}
