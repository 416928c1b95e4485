// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// generator makes frames of both directions: valid ones, nearly valid ones, and
// valid ones with some bytes changed.
type generator struct{ rng *rand.Rand }

var (
	peersOfAllStates = []netip.AddrPort{good, good, good, good, good, other, other, foreign, foreign, moved, busy, old, ancient, tested, unknown, farAway, nowhere}
	natives          = []netip.Addr{
		native, native, native, native2, native3, unserved, silent, routeless,
		netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::2"), netip.MustParseAddr("::1"), netip.MustParseAddr("2001:db8::1"),
		teredo.BindingAddress(teredo.BindingProof, 9),
	}
	nexts = []byte{
		packet.ProtoTCP, packet.ProtoTCP, packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDP, packet.ProtoUDP, packet.ProtoUDP,
		packet.ProtoICMPv6, packet.ProtoICMPv6, packet.ProtoICMPv6, protoSCTP, 50, packet.ProtoNone, packet.ProtoFragment, packet.ProtoDestOpts, 253,
	}
	hopLimits = []byte{0, 1, 2, 2, 3, 64, 64, 64, 64, 64, 64, 64, 128, 255, 255}
)

func pick[T any](g *generator, list []T) T { return list[g.rng.IntN(len(list))] }

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.rng.IntN(n) == 0 }

// size is that of an IPv6 packet, small ones and those at bounds more often.
func (g *generator) size() int {
	switch g.rng.IntN(8) {
	case 0:
		return pick(g, []int{40, 41, 47, 48, 59, 60, 1271, 1272, 1273, 1279, 1280, 1281, 1299, 1300, 1301, 1452, 1472})
	case 1:
		return ip6Len + g.rng.IntN(1430)
	}
	return ip6Len + 8 + g.rng.IntN(120)
}

// packet makes an IPv6 packet.
func (g *generator) packet(src, dst netip.Addr) []byte {
	next, n := pick(g, nexts), g.size()
	if next == packet.ProtoNone && g.chance(2) {
		n = ip6Len
	}
	p := whole(next, pick(g, hopLimits), n, src, dst)
	binary.BigEndian.PutUint32(p, 0x60000000|g.rng.Uint32()&0x0fffffff)
	g.spoilTransport(p, next)
	return p
}

// spoilTransport changes checksum, length or type of some packets, in ways that
// senders do.
func (g *generator) spoilTransport(p []byte, next byte) {
	at := checksumAt(next)
	switch {
	case at < 0 || ip6Len+at+2 > len(p):
	case g.chance(6) && next != packet.ProtoICMPv6:
		halve(p)
	case g.chance(20):
		binary.BigEndian.PutUint16(p[ip6Len+at:], uint16(pick(g, []int{0, 0xffff, g.rng.IntN(1 << 16)})))
	case g.chance(20) && next == packet.ProtoUDP:
		binary.BigEndian.PutUint16(p[ip6Len+4:], uint16(pick(g, []int{0, 8, len(p) - ip6Len - 1, len(p) - ip6Len + 1})))
	case g.chance(3) && next == packet.ProtoICMPv6:
		v, _, _ := packet.ParseIPv6(p)
		v.Payload()[0] = byte(pick(g, []int{0, 1, 127, 128, 129, 132, 133, 134, 135, 136, 137, 138, 143, 255}))
		if len(v.Payload()) >= 8 {
			packet.FillICMPv6Checksum(v)
		}
	}
}

// client is the address of one of the cast; its prefix, flags or server may be odd.
func (g *generator) client() (netip.Addr, netip.AddrPort) {
	m := pick(g, peersOfAllStates)
	switch g.rng.IntN(12) {
	case 0:
		return clientOf(1, 0x1234, m), m
	case 1:
		return clientOf(0, teredo.Flags(g.rng.Uint32()), m), m
	case 2:
		return client(netip.AddrPortFrom(m.Addr(), uint16(g.rng.Uint32()))), m
	}
	return client(m), m
}

// frame makes a frame.
func (g *generator) frame() []byte {
	var f []byte
	if g.chance(2) {
		f = g.toClient()
	} else {
		f = g.ofClient()
	}
	g.damage(f)
	if g.chance(3) {
		f = padded(f)
	}
	if g.chance(30) {
		f = append(f, make([]byte, 1+g.rng.IntN(20))...)
	}
	if g.chance(40) {
		f = f[:max(ethLen, len(f)-1-g.rng.IntN(60))]
	}
	return f
}

func (g *generator) toClient() []byte {
	dst, _ := g.client()
	src := native
	if g.chance(10) {
		src = pick(g, natives)
	}
	if g.chance(30) {
		src, _ = g.client()
	}
	return ethernet(etherIPv6, g.packet(src, dst))
}

func (g *generator) ofClient() []byte {
	src, mapped := g.client()
	switch {
	case src == client(foreign):
		mapped = pick(g, []netip.AddrPort{moved, moved, foreign, other})
	case g.chance(12):
		mapped = pick(g, peersOfAllStates)
	}
	dst := pick(g, natives[:5])
	if g.chance(6) {
		dst = pick(g, natives)
	}
	if g.chance(12) {
		dst, _ = g.client()
	}
	if g.chance(40) {
		src = pick(g, natives)
	}
	payload := g.packet(src, dst)
	switch g.rng.IntN(30) {
	case 0:
		payload = append(teredo.AppendOrigin(nil, mapped), payload...)
	case 1:
		payload = append(payload, make([]byte, g.rng.IntN(12))...)
	case 2:
		payload = payload[:g.rng.IntN(len(payload))]
	case 3:
		payload = append([]byte{0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0}, payload...)
	}
	b := udp4(mapped, netip.AddrPortFrom(pick(g, []netip.Addr{relayIP, relayIP, relayIP, secondIP}), relayPort), byte(1+g.rng.IntN(255)), payload)
	b[1] = byte(g.rng.Uint32())
	binary.BigEndian.PutUint16(b[4:], uint16(g.rng.Uint32()))
	seal4(b)
	f := ethernet(etherIPv4, b)
	switch g.rng.IntN(20) {
	case 0, 1:
		f[40], f[41] = 0, 0
	case 2, 3:
		halve4(f)
	case 4:
		binary.BigEndian.PutUint16(f[40:], uint16(g.rng.Uint32()))
	case 5:
		f = options(f)
	}
	return f
}

// damage changes some bytes of some frames, mostly in headers. Checksums that stood
// before are made right again in half of them, so that the damage reaches further.
func (g *generator) damage(f []byte) {
	if !g.chance(3) {
		return
	}
	before := slices.Clone(f)
	for range 1 + g.rng.IntN(3) {
		at := g.rng.IntN(min(len(f), 110))
		switch g.rng.IntN(3) {
		case 0:
			f[at] ^= 1 << g.rng.IntN(8)
		case 1:
			f[at] = byte(g.rng.Uint32())
		case 2:
			f[at] = pick(g, []byte{0, 1, 0xff, 0x7f, 0x80, 58, 59, 40})
		}
	}
	if g.chance(2) {
		reseal(f, before)
	}
}

// reseal makes the outer checksums right, if the frame is still IPv4 with UDP.
func reseal(f, before []byte) {
	if binary.BigEndian.Uint16(f[12:]) != etherIPv4 || binary.BigEndian.Uint16(before[12:]) != etherIPv4 {
		return
	}
	ip := f[ethLen:]
	header := int(ip[0]&0xf) * 4
	if header < ip4Len || header+udpLen > len(ip) {
		return
	}
	had := binary.BigEndian.Uint16(before[ethLen+26:]) != 0
	total := min(max(int(binary.BigEndian.Uint16(ip[2:])), header+udpLen), len(ip))
	seal4(ip[:total])
	if !had {
		ip[header+6], ip[header+7] = 0, 0
	}
}
