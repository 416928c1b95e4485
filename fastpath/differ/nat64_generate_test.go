// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// ipGenerator makes frames of both directions of a translator: valid, nearly valid, and
// with some bytes changed.
type ipGenerator struct {
	generator
	prefixes []netip.Prefix // of pool6, as it is set
}

// natGenerator makes frames of sessions that are there, of such that might be, and of
// none.
type natGenerator struct {
	ipGenerator
	w *natWorld
}

func newNATGenerator(w *natWorld, seed uint64) *natGenerator {
	return &natGenerator{ipGenerator: ipGenerator{generator: generator{rand.New(rand.NewPCG(seed, 64))}}, w: w}
}

// natFlow is who speaks to whom.
type natFlow struct {
	transport    state.Transport
	client       netip.Addr // X'
	pool, peer   netip.Addr // T, Z
	prefix       int
	x, t, z      uint16
	known, quote bool
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

var (
	natClients = addrs("2001:db8:1::5", "2001:db8:1::5", "2001:db8:1::6", "2001:db8:1:1::7", "2001:db8:2::5", "2001:db8:2:1::5")
	// Some have no route, some are not served, and of some no packet may come.
	natStrangers = addrs("2001:db8:3::5", "2001:db8:4::5", "fe80::1", "ff02::1", "::1", "::", "2001:db8:64::c633:6407", "fd00:64:64:64:0:2:0:5", "64:ff9b::c633:6407")
	natServers   = addrs("198.51.100.7", "198.51.100.7", "198.51.100.8", "198.41.0.4", "203.0.113.7", "198.41.0.4")
	natOthers    = addrs("203.0.113.200", "10.0.0.9", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.0.2.130", "192.0.2.131", "192.0.2.1", "169.254.1.1")
	natPools     = addrs("192.0.2.130", "192.0.2.130", "192.0.2.131", "192.0.2.1", "192.0.2.5")
)

func (g *ipGenerator) peer() netip.Addr {
	if g.chance(12) {
		return pick(&g.generator, natOthers)
	}
	return pick(&g.generator, natServers)
}

func (g *ipGenerator) client() netip.Addr {
	if g.chance(15) {
		return pick(&g.generator, natStrangers)
	}
	return pick(&g.generator, natClients)
}

// flow is one of a session, a part of one, or any.
func (g *natGenerator) flow() natFlow {
	f := natFlow{
		transport: state.Transport(g.rng.IntN(int(state.Transports))),
		client:    g.client(), pool: pick(&g.generator, natPools), peer: g.peer(), prefix: g.rng.IntN(len(g.prefixes)),
		x: pick(&g.generator, []uint16{40001, 40001, 40002, 40003, 21, 7, 80, 1023, 1024, uint16(g.rng.Uint32())}),
		t: uint16(g.rng.Uint32()),
		z: pick(&g.generator, []uint16{443, 443, 53, 53, 8080, 21, uint16(g.rng.Uint32())}),
	}
	var s state.Session
	if g.chance(4) || !g.session(&s) {
		return f
	}
	f.known = true
	f.transport, f.client, f.x = s.Transport, netip.AddrFrom16(s.Client), s.ClientPort
	f.pool, f.t = netip.AddrFrom4(s.Pool), s.PoolPort
	if g.chance(4) {
		return f // of a binding, to someone else
	}
	f.peer, f.z = netip.AddrFrom4(s.Peer), s.PeerPort
	if !g.chance(20) && int(s.Prefix) < len(g.prefixes) {
		f.prefix = int(s.Prefix)
	}
	if g.chance(20) {
		f.z++
	}
	return f
}

// session finds one that is there.
func (g *natGenerator) session(s *state.Session) bool {
	from := g.rng.IntN(natSizes.Sessions)
	for i := range 48 {
		if g.w.table.View(uint32((from+i)%natSizes.Sessions), s) {
			return true
		}
	}
	return false
}

// age moves the start of a session's lifetime, to about its end in most cases, or gives it
// another state.
func (g *natGenerator) age() {
	var s state.Session
	if !g.session(&s) {
		return
	}
	lifetimes := g.w.settings.Lifetimes()
	status, flags := s.Word.Status(), s.Word.Flags()
	if s.Transport == state.TCP && g.chance(3) {
		status = state.V4Init + state.Status(g.rng.IntN(int(state.Trans-state.V4Init)+1))
	}
	if g.chance(20) {
		flags ^= state.Expected
	}
	lifetime := lifetimes[s.Transport][status]
	age := pick(&g.generator, []uint32{0, 3, 4, 5, lifetime / 2, lifetime - 2, lifetime - 1, lifetime, lifetime + 1})
	g.w.table.Step(&s, status, flags, state.Stamp(g.w.quiet())-age)
}

// oddity gives a packet what the programs leave to the engine: a fragment, a version, a
// length that lies.
func (g *ipGenerator) oddity(ip []byte) {
	if !g.chance(12) {
		return
	}
	four := ip[0]>>4 == 4
	switch g.rng.IntN(3) {
	case 0:
		if four {
			binary.BigEndian.PutUint16(ip[6:], uint16(pick(&g.generator, []int{0x2000, 1, 0x2001, 0x8000, 0x4001})))
		} else {
			ip[6] = pick(&g.generator, []byte{0, 43, 44, 60, 59, protoSCTP, 1})
		}
	case 1:
		at := map[bool]int{true: 2, false: 4}[four]
		length := binary.BigEndian.Uint16(ip[at:])
		binary.BigEndian.PutUint16(ip[at:], uint16(pick(&g.generator, []int{0, 20, 27, 28, 40, int(length) - 1, int(length) + 1, int(length) + 700, 65535})))
	default:
		ip[0] = pick(&g.generator, []byte{0x44, 0x46, 0x4f, 0x60, 0x50, 0x05})
	}
}

// widen puts options or an extension header into a packet.
func (g *ipGenerator) widen(ip []byte) []byte {
	if ip[0]>>4 == 4 {
		out := slices.Insert(ip, ip4Len, 1, 1, 1, 0)
		out[0]++
		binary.BigEndian.PutUint16(out[2:], uint16(len(out)))
		return out
	}
	next := pick(&g.generator, []byte{0, 43, 44, 60})
	out := slices.Insert(ip, ip6Len, ip[6], 0, 0, 0, 0, 0, 0, 0)
	out[6] = next
	if next == packet.ProtoFragment && g.chance(2) {
		out[ip6Len+3] = 1 // more come
	}
	binary.BigEndian.PutUint16(out[4:], uint16(len(out)-ip6Len))
	return out
}

// packet makes one of a flow, in either direction.
func (g *ipGenerator) packet(f natFlow) []byte {
	var ip []byte
	switch six := g.chance(2); {
	case six && g.chance(5):
		ip = g.error6(f)
	case six:
		ip = g.packet6(f, g.length(ip6Len))
	case g.chance(5):
		ip = g.error4(f)
	default:
		ip = g.packet4(f, g.length(ip4Len))
	}
	if g.chance(30) {
		ip = g.widen(ip)
	}
	g.oddity(ip)
	seal(ip)
	g.spoil(ip)
	return ip
}

// spoil changes the transport checksum of some packets, in ways that senders do.
func (g *ipGenerator) spoil(ip []byte) {
	header, next := ip6Len, ip[6]
	if ip[0]>>4 == 4 {
		header, next = ip4Len, ip[9]
	}
	at := checksumOf(next)
	if at < 0 || header+at+2 > len(ip) || !g.chance(8) {
		return
	}
	field := ip[header+at:]
	switch {
	case g.chance(2) && (next == packet.ProtoTCP || next == packet.ProtoUDP):
		acc := packet.Sum(uint64(len(ip)-header)+uint64(next), ip[12:20])
		if header == ip6Len {
			acc = packet.Sum(uint64(len(ip)-header)+uint64(next), ip[8:40])
		}
		binary.BigEndian.PutUint16(field, packet.Fold(acc))
	default:
		binary.BigEndian.PutUint16(field, uint16(pick(&g.generator, []int{0, 0, 0xffff, g.rng.IntN(1 << 16)})))
	}
}

// frame makes a frame of a flow.
func (g *ipGenerator) frame(f natFlow) []byte {
	ip := g.packet(f)
	if g.chance(8) {
		g.damage(ip)
	}
	kind := uint16(etherIPv6)
	if ip[0]>>4 == 4 {
		kind = etherIPv4
	}
	out := ethernet(kind, ip)
	if g.chance(3) {
		out = padded(out)
	}
	if g.chance(30) {
		out = append(out, make([]byte, 1+g.rng.IntN(20))...)
	}
	if g.chance(60) {
		out = out[:max(ethLen, len(out)-1-g.rng.IntN(60))]
	}
	if g.chance(200) {
		out[g.rng.IntN(ethLen)] ^= 1 << g.rng.IntN(8)
	}
	return out
}

// damage changes some bytes, mostly of headers. In half of the packets checksums are right
// again, so that the damage reaches further.
func (g *ipGenerator) damage(ip []byte) {
	for range 1 + g.rng.IntN(3) {
		at := g.rng.IntN(min(len(ip), 110))
		switch g.rng.IntN(3) {
		case 0:
			ip[at] ^= 1 << g.rng.IntN(8)
		case 1:
			ip[at] = byte(g.rng.Uint32())
		default:
			ip[at] = pick(&g.generator, []byte{0, 1, 0xff, 0x7f, 0x80, 58, 59, 40})
		}
	}
	if g.chance(2) {
		seal(ip)
	}
}
