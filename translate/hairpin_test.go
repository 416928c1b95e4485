// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"
)

// The figures of RFC 7757 appendix B.1: two nodes with explicit mappings, the
// well-known prefix, and a pool of one address.
const (
	nodeA, nodeB  = "2001:db8:aaaa::", "2001:db8:bbbb::b"
	fourA, fourB  = "192.0.2.1", "192.0.2.2"
	wkpA, wkpB    = "64:ff9b::192.0.2.1", "64:ff9b::192.0.2.2"
	poolSrc       = "198.51.100.1"
	wkpPool       = "64:ff9b::198.51.100.1"
	hairpinRouter = "2001:db8::1234"
)

func hairpinner(t *testing.T, mode Hairpin) *Translator {
	return translator(t, func(s *Settings) {
		s.Prefixes = []Prefix{prefix(t, "64:ff9b::/96")}
		s.NonGlobal = true
		s.Mappings = table(t, figure1...)
		s.Hairpin = mode
		s.Pool4 = []netip.Prefix{netip.MustParsePrefix(poolSrc + "/32")}
	})
}

// ways are the figures: what is sent, what it is between the passes, and what arrives.
var ways = []struct {
	name    string
	initial v6
	between v4
	final   v6
}{
	{
		"figure 8, a packet",
		v6{src: nodeA, dst: wkpB, hop: 64, payload: udp(5)},
		v4{src: fourA, dst: fourB, id: 0x1234, ttl: 63, payload: udp(5)},
		v6{src: wkpA, dst: nodeB, hop: 63, payload: udp(5)},
	},
	{
		"figure 11, the answer",
		v6{src: nodeB, dst: wkpA, hop: 64, proto: 58, payload: echo(129, 5)},
		v4{src: fourB, dst: fourA, id: 0x1234, ttl: 63, proto: 1, payload: echo(0, 5)},
		v6{src: wkpB, dst: nodeA, hop: 63, proto: 58, payload: echo(129, 5)},
	},
	{
		"figure 9, an error of a router",
		v6{src: hairpinRouter, dst: wkpA, hop: 64, proto: 58, payload: icmp(3, 0, 0, v6{src: wkpA, dst: nodeB, hop: 7, payload: udp(5)}.bytes())},
		v4{src: poolSrc, dst: fourA, id: 0x1234, ttl: 63, proto: 1, payload: icmp(11, 0, 0, v4{src: fourA, dst: fourB, id: 0x1234, ttl: 7, payload: udp(5)}.bytes())},
		v6{src: wkpPool, dst: nodeA, hop: 63, proto: 58, payload: icmp(3, 0, 0, v6{src: nodeA, dst: wkpB, hop: 7, payload: udp(5)}.bytes())},
	},
	{
		"figure 10, an error of the other node",
		v6{src: nodeB, dst: wkpA, hop: 64, proto: 58, payload: icmp(1, 4, 0, v6{src: wkpA, dst: nodeB, hop: 7, payload: udp(5)}.bytes())},
		v4{src: fourB, dst: fourA, id: 0x1234, ttl: 63, proto: 1, payload: icmp(3, 3, 0, v4{src: fourA, dst: fourB, id: 0x1234, ttl: 7, payload: udp(5)}.bytes())},
		v6{src: wkpB, dst: nodeA, hop: 63, proto: 58, payload: icmp(1, 4, 0, v6{src: nodeA, dst: wkpB, hop: 7, payload: udp(5)}.bytes())},
	},
}

// TestHairpinIntrinsic turns packets round in one go, one hop taken in all (RFC 7757
// section 4.2.2).
func TestHairpinIntrinsic(t *testing.T) {
	tr := hairpinner(t, HairpinIntrinsic)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { wantPackets(t, tr, testPath, w.initial.bytes(), w.final.bytes()) })
	}
	t.Run("last hop", func(t *testing.T) {
		in, out := ways[0].initial, ways[0].final
		in.hop, out.hop = 2, 1
		wantPackets(t, tr, testPath, in.bytes(), out.bytes())
	})
	t.Run("fragment", func(t *testing.T) {
		in, out := ways[0].initial, ways[0].final
		in.frag, in.id, in.offset, in.payload = true, 0x70009, 8, data(40)
		out.frag, out.id, out.offset, out.payload = true, 9, 8, data(40)
		wantPackets(t, tr, testPath, in.bytes(), out.bytes())
	})
	t.Run("a large packet meets no IPv4 MTU", func(t *testing.T) {
		in, out := ways[0].initial, ways[0].final
		in.payload, out.payload = udp(1452), udp(1452)
		wantPackets(t, tr, Path{MTU4: 576, MTU6: 1500}, in.bytes(), out.bytes())
	})
	t.Run("too big for the IPv6 link", func(t *testing.T) {
		in := ways[0].initial
		in.payload = udp(1453)
		wantError(t, tr, Path{MTU4: 9000, MTU6: 1500}, in.bytes(), ReasonTooBig, icmp6Error(2, 0, 1500, in.bytes()))
	})
	t.Run("larger than IPv4 can be", func(t *testing.T) {
		in := ways[0].initial
		in.payload = udp(65520)
		wantError(t, tr, Path{}, in.bytes(), ReasonTooBig, icmp6Error(2, 0, 1280, in.bytes()))
	})
	t.Run("long error keeps its 1280 octets", func(t *testing.T) {
		in, out := ways[3].initial, ways[3].final
		in.payload = icmp(1, 4, 0, v6{src: wkpA, dst: nodeB, hop: 7, payload: udp(1184)}.bytes())
		out.payload = icmp(1, 4, 0, v6{src: nodeA, dst: wkpB, hop: 7, payload: udp(1184)}.bytes())
		wantPackets(t, tr, testPath, in.bytes(), out.bytes())
	})
	t.Run("destination without a mapping leaves by IPv4", func(t *testing.T) {
		wantPackets(t, tr, testPath, v6{src: nodeA, dst: "64:ff9b::8.8.8.8", hop: 64, payload: udp(5)}.bytes(),
			v4{src: fourA, dst: "8.8.8.8", id: 0x1234, ttl: 63, payload: udp(5)}.bytes())
	})
	t.Run("packets from IPv4 use the mapping of the source", func(t *testing.T) {
		wantPackets(t, tr, testPath, v4{src: fourA, dst: fourB, payload: udp(5)}.bytes(),
			v6{src: nodeA, dst: nodeB, payload: udp(5)}.bytes())
	})
}

// TestHairpinSimple has the IPv4 network send the packet back (RFC 7757 section 4.2.1).
func TestHairpinSimple(t *testing.T) {
	tr := hairpinner(t, HairpinSimple)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			wantPackets(t, tr, testPath, w.initial.bytes(), w.between.bytes())
			final := w.final
			final.hop = 62
			wantPackets(t, tr, testPath, w.between.bytes(), final.bytes())
		})
	}
}

// TestHairpinOff uses mappings for every address.
func TestHairpinOff(t *testing.T) {
	tr := hairpinner(t, HairpinOff)
	for _, w := range ways {
		wantPackets(t, tr, testPath, w.initial.bytes(), w.between.bytes())
	}
	wantPackets(t, tr, testPath, ways[0].between.bytes(), v6{src: nodeA, dst: nodeB, hop: 62, payload: udp(5)}.bytes())
	wantPackets(t, tr, testPath, ways[3].between.bytes(), v6{src: nodeB, dst: nodeA, hop: 62, proto: 58,
		payload: icmp(1, 4, 0, v6{src: nodeA, dst: nodeB, hop: 7, payload: udp(5)}.bytes())}.bytes())
}
