// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestCutTo6: a packet without DF that is larger than the lowest IPv6 MTU leaves in
// fragments, with checksums made over the whole (RFC 7915 section 4.1).
func TestCutTo6(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Settings)
		path   Path
		in     v4
		sizes  []int // payloads of the fragments
	}{
		{name: "one octet too large", in: v4{id: 7, payload: udp(1233)}, sizes: []int{1232, 9}},
		{name: "two full fragments", in: v4{id: 7, payload: udp(2456)}, sizes: []int{1232, 1232}},
		{name: "1500 octets", in: v4{id: 7, payload: udp(1472)}, sizes: []int{1232, 248}},
		{name: "the largest packet", in: v4{id: 7, payload: udp(65507)}, sizes: append(many(53, 1232), 219)},
		{name: "lowest MTU 1500", change: func(s *Settings) { s.LowestIPv6MTU = 1500 }, in: v4{id: 7, payload: udp(2992)}, sizes: []int{1448, 1448, 104}},
		{name: "the last fills its packet", change: func(s *Settings) { s.LowestIPv6MTU = 1286 }, in: v4{id: 7, payload: udp(2459)}, sizes: []int{1232, 1235}},
		{name: "next hop below the lowest MTU", change: func(s *Settings) { s.LowestIPv6MTU = 1500 }, path: Path{MTU6: 1400},
			in: v4{id: 7, payload: udp(1400)}, sizes: []int{1352, 56}},
		{name: "TCP", in: v4{id: 7, proto: packet.ProtoTCP, payload: tcp(1400)}, sizes: []int{1232, 188}},
		{name: "echo", in: v4{id: 7, proto: 1, payload: echo(8, 1400)}, sizes: []int{1232, 176}},
		{name: "last fragment", in: v4{id: 7, offset: 2960, payload: data(1300)}, sizes: []int{1232, 68}},
		{name: "middle fragment", in: v4{id: 7, offset: 1480, mf: true, payload: data(1480)}, sizes: []int{1232, 248}},
		{name: "fragment that fits but for its header", in: v4{id: 7, offset: 1480, mf: true, payload: data(1240)}, sizes: []int{1232, 8}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantPackets(t, translator(t, tt.change), tt.path, tt.in.bytes(), cut6(tt.in, tt.sizes)...)
		})
	}
}

func many(n, size int) (sizes []int) {
	for range n {
		sizes = append(sizes, size)
	}
	return sizes
}

// cut6 builds the fragments that a packet is to become.
func cut6(p v4, sizes []int) (out [][]byte) {
	proto := p.proto
	def(&proto, packet.ProtoUDP)
	payload := p.payload
	if proto == protoICMP {
		proto = packet.ProtoICMPv6
		payload = append([]byte{128}, payload[1:]...)
	}
	if p.offset == 0 && !p.mf {
		payload = v6{proto: proto, payload: payload}.bytes()[40:]
	}
	at := 0
	for _, n := range sizes {
		f := v6{frag: true, id: uint32(p.id), proto: proto, offset: p.offset + at, mf: p.mf || at+n < len(payload), payload: payload[at : at+n], keepSum: true}
		out = append(out, f.bytes())
		at += n
	}
	return out
}

// TestCutTo4: what an IPv6 host may send anywhere is cut for a smaller IPv4 link (RFC
// 7915 section 5.1.1).
func TestCutTo4(t *testing.T) {
	whole := v4{src: node4, dst: host4, payload: udp(1232)}.bytes()[20:]
	piece := func(from, to int, mf bool, id uint16) []byte {
		return v4{src: node4, dst: host4, ttl: 63, id: id, offset: from, mf: mf, payload: whole[from:to], keepSum: true}.bytes()
	}
	tr := translator(t, nil)
	in := v6{src: node6, dst: host6, hop: 64, payload: udp(1232)}.bytes()
	wantPackets(t, tr, Path{IDs: fixedID(9), MTU4: 1000}, in, piece(0, 976, true, 9), piece(976, 1240, false, 9))
	wantPackets(t, tr, Path{IDs: fixedID(9), MTU4: 576}, in, piece(0, 552, true, 9), piece(552, 1104, true, 9), piece(1104, 1240, false, 9))

	wantPackets(t, tr, Path{IDs: fixedID(9), MTU4: 640}, in, piece(0, 620&^7, true, 9), piece(620&^7, 1232, true, 9), piece(1232, 1240, false, 9))
	wantPackets(t, tr, Path{IDs: fixedID(9), MTU4: 268}, in, piece(0, 248, true, 9), piece(248, 496, true, 9), piece(496, 744, true, 9), piece(744, 992, true, 9), piece(992, 1240, false, 9))

	// The last may have up to seven octets more than all others, and fill its packet.
	whole = v4{src: node4, dst: host4, payload: udp(1231)}.bytes()[20:]
	in = v6{src: node6, dst: host6, hop: 64, payload: udp(1231)}.bytes()
	wantPackets(t, tr, Path{IDs: fixedID(9), MTU4: 643}, in, piece(0, 616, true, 9), piece(616, 1239, false, 9))

	in = v6{src: node6, dst: host6, hop: 64, frag: true, id: 0x50009, offset: 80, mf: true, payload: data(400)}.bytes()
	first := v4{src: node4, dst: host4, ttl: 63, id: 9, offset: 80, mf: true, payload: data(400)[:280]}
	second := v4{src: node4, dst: host4, ttl: 63, id: 9, offset: 360, mf: true, payload: data(400)[280:]}
	wantPackets(t, tr, Path{IDs: fixedID(1), MTU4: 300}, in, first.bytes(), second.bytes())

	// The smallest link there may be, and one that claims less.
	for _, mtu := range []int{68, 1} {
		if _, out := run(tr, in, Path{MTU4: mtu}); len(out) != 9 || len(out[0]) != 68 {
			t.Errorf("MTU %d: %d packets", mtu, len(out))
		}
	}
	// An ICMP error too.
	in = v6{src: node6, dst: host6, hop: 64, proto: 58, payload: icmp(3, 0, 0, v6{payload: udp(500)}.bytes())}.bytes()
	if _, out := run(tr, in, Path{MTU4: 300}); len(out) != 2 || len(out[0]) != 300 {
		t.Errorf("ICMP error: %d packets", len(out))
	}
}

// TestTooBig: what may not be cut is refused with the MTU that would pass (RFC 7915
// sections 4.1, 5.1.1).
func TestTooBig(t *testing.T) {
	tests := []struct {
		name string
		path Path
		in   []byte
		mtu  uint32
	}{
		{"DF and one octet too large", Path{MTU6: 1500}, v4{df: true, payload: udp(1453)}.bytes(), 1480},
		{"DF, options count", Path{MTU6: 1500}, v4{df: true, options: []byte{1, 1, 1, 1}, payload: udp(1449)}.bytes(), 1480},
		{"DF in a fragment, which gains a header", Path{MTU6: 1500}, v4{df: true, mf: true, proto: 6, payload: tcp(1436)}.bytes(), 1472},
		{"IPv6 link below the minimum", Path{MTU6: 600}, v4{df: true, payload: udp(1233)}.bytes(), 1260},
		{"IPv6, one octet too large", Path{MTU4: 1400}, v6{payload: udp(1373)}.bytes(), 1420},
		{"IPv6, small IPv4 link", Path{MTU4: 1000}, v6{payload: udp(1233)}.bytes(), 1280},
		{"IPv6, fragment", Path{MTU4: 1400}, v6{frag: true, mf: true, payload: udp(1384)}.bytes(), 1420},
		{"IPv6, larger than IPv4 can be", Path{}, v6{payload: udp(65527)}.bytes(), 65555},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := icmp6Error(2, 0, tt.mtu, tt.in)
			if tt.in[0]>>4 == 4 {
				want = icmp4Error(3, 4, tt.mtu, tt.in)
			}
			wantError(t, tr, tt.path, tt.in, ReasonTooBig, want)
		})
	}
}

// icmp4Error is the error that the translator owes for a packet.
func icmp4Error(typ, code byte, word uint32, cause []byte) []byte {
	src := v4addr(cause[12:16])
	return v4{src: own4, dst: src, tos: 0xc0, df: true, proto: 1, payload: icmp(typ, code, word, cause[:min(len(cause), 548)])}.bytes()
}

func icmp6Error(typ, code byte, word uint32, cause []byte) []byte {
	return v6{src: own6, dst: v6addr(cause[8:24]), hop: 64, proto: 58, payload: icmp(typ, code, word, cause[:min(len(cause), 1232)])}.bytes()
}
