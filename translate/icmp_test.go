// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// quoted4 and quoted6 are one packet, from the node to the host, as a router on the
// IPv4 side quotes it and as the node has sent it.
func quoted4() []byte {
	return v4{src: node4, dst: host4, id: 0x1234, ttl: 60, payload: udp(4)}.bytes()
}

func quoted6() []byte {
	return v6{src: node6, dst: host6, hop: 60, payload: udp(4)}.bytes()
}

// back4 and back6 are the same from the host to the node.
func back4() []byte {
	return v4{id: 0x1234, ttl: 60, payload: udp(4)}.bytes()
}

func back6() []byte {
	return v6{hop: 60, payload: udp(4)}.bytes()
}

// counterpart is what an ICMP message becomes; nil is a silent drop.
type counterpart struct {
	typ, code byte
	word      uint32
}

// TestICMPTo6 runs every type and code through RFC 7915 section 4.2: those listed are
// translated, all others are dropped silently.
func TestICMPTo6(t *testing.T) {
	want := map[[2]byte]counterpart{
		{3, 0}:  {1, 0, 0},
		{3, 1}:  {1, 0, 0},
		{3, 2}:  {4, 1, 6},
		{3, 3}:  {1, 4, 0},
		{3, 4}:  {2, 0, 1420}, // of MTU 1400
		{3, 5}:  {1, 0, 0},
		{3, 6}:  {1, 0, 0},
		{3, 7}:  {1, 0, 0},
		{3, 8}:  {1, 0, 0},
		{3, 9}:  {1, 1, 0},
		{3, 10}: {1, 1, 0},
		{3, 11}: {1, 0, 0},
		{3, 12}: {1, 0, 0},
		{3, 13}: {1, 1, 0},
		{3, 15}: {1, 1, 0},
		{12, 0}: {4, 0, 8}, // pointer 12
		{12, 2}: {4, 0, 8},
	}
	tr := translator(t, nil)
	for typ := range 256 {
		for code := range 256 {
			typ, code := byte(typ), byte(code)
			if typ == 8 || typ == 0 {
				continue // TestEcho
			}
			var word uint32
			switch typ {
			case 3:
				if code == 4 {
					word = 1400
				}
			case 12:
				word = 12 << 24
			}
			in := v4{src: router4, proto: protoICMP, payload: icmp(typ, code, word, quoted4())}.bytes()
			out, ok := want[[2]byte{typ, code}]
			if typ == 11 { // section 4.2: the code is unchanged
				out, ok = counterpart{3, code, 0}, true
			}
			name := fmt.Sprintf("type %d code %d", typ, code)
			if !ok {
				if res, got := run(tr, in, testPath); res.Verdict != Drop || res.Reason != ReasonICMPType || len(got) != 0 {
					t.Errorf("%s: %v %v", name, res.Verdict, res.Reason)
				}
				continue
			}
			t.Run(name, func(t *testing.T) {
				wantPackets(t, tr, testPath, in,
					v6{src: router6, proto: 58, payload: icmp(out.typ, out.code, out.word, quoted6())}.bytes())
			})
			if t.Failed() {
				return
			}
		}
	}
}

// TestICMPTo4 does so for RFC 7915 section 5.2.
func TestICMPTo4(t *testing.T) {
	want := map[[2]byte]counterpart{
		{1, 0}: {3, 1, 0},
		{1, 1}: {3, 10, 0},
		{1, 2}: {3, 1, 0},
		{1, 3}: {3, 1, 0},
		{1, 4}: {3, 3, 0},
		{4, 0}: {12, 0, 12 << 24}, // pointer 8
		{4, 1}: {3, 2, 0},
	}
	tr := translator(t, nil)
	for typ := range 256 {
		for code := range 256 {
			typ, code := byte(typ), byte(code)
			if typ == 128 || typ == 129 {
				continue // TestEcho
			}
			var word uint32
			switch typ {
			case 2:
				word = 1420
			case 4:
				word = 8
			}
			in := v6{src: node6, dst: host6, proto: 58, hop: 64, payload: icmp(typ, code, word, back6())}.bytes()
			out, ok := want[[2]byte{typ, code}]
			switch typ {
			case 2: // section 5.2 names no code
				out, ok = counterpart{3, 4, 1400}, true
			case 3:
				out, ok = counterpart{11, code, 0}, true
			}
			name := fmt.Sprintf("type %d code %d", typ, code)
			if !ok {
				if res, got := run(tr, in, testPath); res.Verdict != Drop || res.Reason != ReasonICMPType || len(got) != 0 {
					t.Errorf("%s: %v %v", name, res.Verdict, res.Reason)
				}
				continue
			}
			t.Run(name, func(t *testing.T) {
				wantPackets(t, tr, testPath, in,
					v4{src: node4, dst: host4, id: 0x1234, ttl: 63, proto: 1, payload: icmp(out.typ, out.code, out.word, back4())}.bytes())
			})
			if t.Failed() {
				return
			}
		}
	}
}

// TestEcho takes echo and its reply both ways, with a right checksum, and with a wrong
// one that must stay wrong.
func TestEcho(t *testing.T) {
	tr := translator(t, nil)
	for _, pair := range []struct{ icmp, icmpv6 byte }{{8, 128}, {0, 129}} {
		for _, n := range []int{0, 1, 56, 1000} {
			in4 := v4{proto: 1, payload: echo(pair.icmp, n)}.bytes()
			in6 := v6{src: node6, dst: host6, hop: 64, proto: 58, payload: echo(pair.icmpv6, n)}.bytes()
			wantPackets(t, tr, testPath, in4, v6{proto: 58, payload: echo(pair.icmpv6, n)}.bytes())
			wantPackets(t, tr, testPath, in6, v4{src: node4, dst: host4, id: 0x1234, proto: 1, ttl: 63, payload: echo(pair.icmp, n)}.bytes())
			in4[22] ^= 0x10
			in6[42] ^= 0x10
			for _, in := range [][]byte{in4, in6} {
				if _, out := run(tr, in, testPath); len(out) != 1 || rightSum(out[0]) {
					t.Errorf("type %d, %d octets: a wrong checksum came out right", in[20], n)
				}
			}
		}
	}
}

// TestICMPFragments: ICMP in fragments is not translated (RFC 7915 section 1.2).
func TestICMPFragments(t *testing.T) {
	tr := translator(t, nil)
	silent := func(s *Settings) { s.Own4, s.Own6 = invalid, invalid }
	for _, tt := range []struct {
		name string
		in   []byte
	}{
		{"first, echo", v4{proto: 1, mf: true, payload: echo(8, 8)}.bytes()},
		{"later", v4{proto: 1, offset: 8, payload: data(8)}.bytes()},
		{"first, error", v4{proto: 1, mf: true, payload: icmp(3, 3, 0, quoted4())}.bytes()},
		{"IPv6, first, echo", v6{proto: 58, frag: true, mf: true, payload: echo(128, 8)}.bytes()},
		{"IPv6, later", v6{proto: 58, frag: true, offset: 8, payload: data(8)}.bytes()},
		{"IPv6, first, error", v6{proto: 58, frag: true, mf: true, payload: icmp(1, 4, 0, back6(), data(4))}.bytes()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantDrop(t, translator(t, silent), testPath, tt.in, ReasonFragmentedICMP)
			if res, _ := run(tr, tt.in, testPath); (res.Error != nil) != (tt.name == "first, echo") {
				t.Errorf("error %x", res.Error)
			}
		})
	}
}

// TestICMPErrorChecksum: an error with a wrong checksum is not laundered.
func TestICMPErrorChecksum(t *testing.T) {
	tr := translator(t, nil)
	for _, in := range [][]byte{
		v4{src: router4, proto: 1, payload: icmp(3, 3, 0, quoted4())}.bytes(),
		v6{src: node6, dst: host6, proto: 58, payload: icmp(1, 4, 0, back6())}.bytes(),
	} {
		in[len(in)-1] ^= 1
		wantDrop(t, tr, testPath, in, ReasonICMPChecksum)
	}
}

// TestPointers has a row for each line of figures 3 and 6 of RFC 7915.
func TestPointers(t *testing.T) {
	to6 := map[int]int{0: 0, 1: 1, 2: 4, 3: 4, 8: 7, 9: 6, 12: 8, 13: 8, 14: 8, 15: 8, 16: 24, 17: 24, 18: 24, 19: 24}
	to4 := map[int]int{0: 0, 1: 1, 4: 2, 5: 2, 6: 9, 7: 8}
	for p := 8; p <= 39; p++ {
		to4[p] = 12
		if p >= 24 {
			to4[p] = 16
		}
	}
	tr := translator(t, nil)
	for p := range 256 {
		in := v4{src: router4, proto: 1, payload: icmp(12, 0, uint32(p)<<24, quoted4())}.bytes()
		if want, ok := to6[p]; ok {
			wantPackets(t, tr, testPath, in, v6{src: router6, proto: 58, payload: icmp(4, 0, uint32(want), quoted6())}.bytes())
		} else {
			wantDrop(t, tr, testPath, in, ReasonICMPPointer)
		}
		in = v6{src: node6, dst: host6, hop: 64, proto: 58, payload: icmp(4, 0, uint32(p), back6())}.bytes()
		if want, ok := to4[p]; ok {
			wantPackets(t, tr, testPath, in,
				v4{src: node4, dst: host4, id: 0x1234, ttl: 63, proto: 1, payload: icmp(12, 0, uint32(want)<<24, back4())}.bytes())
		} else {
			wantDrop(t, tr, testPath, in, ReasonICMPPointer)
		}
	}
	in := v6{src: node6, dst: host6, proto: 58, payload: icmp(4, 0, 1<<24, back6())}.bytes()
	wantDrop(t, tr, testPath, in, ReasonICMPPointer)
}

// TestMTUTo6 works out the MTU of Packet Too Big (RFC 7915 section 4.2).
func TestMTUTo6(t *testing.T) {
	tests := []struct {
		name       string
		mtu, total int
		path       Path
		plateaus   []int
		want       int
	}{
		{name: "plain", mtu: 1400, want: 1420},
		{name: "never below 1280", mtu: 576, want: 1280},
		{name: "largest", mtu: 65535, want: 65555},
		{name: "IPv6 next hop smaller", mtu: 1500, path: Path{MTU6: 1400}, want: 1400},
		{name: "IPv4 next hop smaller", mtu: 1500, path: Path{MTU4: 1300}, want: 1320},
		{name: "IPv6 link smaller", mtu: 1496, path: Path{Link4: 1500, Link6: 1500}, want: 1500},
		{name: "IPv4 link smaller", mtu: 1500, path: Path{Link4: 1400, Link6: 9000}, want: 1420},
		{name: "links larger than the next hops", mtu: 1500, path: Path{MTU4: 1400, MTU6: 1400, Link4: 1500, Link6: 1500}, want: 1400},
		{name: "next hops larger", mtu: 1400, path: Path{MTU4: 9000, MTU6: 9000}, want: 1420},
		{name: "IPv6 next hop below the minimum", mtu: 1400, path: Path{MTU6: 600}, want: 1280},
		{name: "no MTU, a packet of 1500", total: 1500, want: 1512},
		{name: "no MTU, exactly a plateau", total: 1492, want: 1280},
		{name: "no MTU, a packet of 4000", total: 4000, want: 2022},
		{name: "no MTU, the largest packet", total: 65535, want: 32020},
		{name: "no MTU, a small packet", total: 1006, want: 1280},
		{name: "no MTU, other plateaus", total: 1500, plateaus: []int{1480, 1300, 100}, want: 1500},
		{name: "no MTU, no plateau", total: 1500, plateaus: []int{}, want: 1280},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := translator(t, func(s *Settings) { s.Plateaus = tt.plateaus })
			inner := v4{src: node4, dst: host4, total: tt.total, payload: udp(4)}
			in := v4{src: router4, proto: 1, payload: icmp(3, 4, uint32(tt.mtu), inner.bytes())}.bytes()
			length := 0
			if tt.total != 0 {
				length = tt.total - 20
			}
			quote := v6{src: node6, dst: host6, hop: 64, length: length, payload: udp(4)}
			wantPackets(t, tr, tt.path, in, v6{src: router6, proto: 58, payload: icmp(2, 0, uint32(tt.want), quote.bytes())}.bytes())
		})
	}
}

// TestMTUTo4 works out the MTU of Fragmentation Needed (RFC 7915 section 5.2).
func TestMTUTo4(t *testing.T) {
	tests := []struct {
		name string
		mtu  uint32
		frag bool
		path Path
		want uint32
	}{
		{name: "plain", mtu: 1500, want: 1480},
		{name: "packet with a Fragment Header", mtu: 1500, frag: true, want: 1472},
		{name: "IPv4 next hop smaller", mtu: 1500, path: Path{MTU4: 1300}, want: 1300},
		{name: "IPv6 next hop smaller", mtu: 1500, path: Path{MTU6: 1400}, want: 1380},
		{name: "IPv4 link smaller", mtu: 9000, path: Path{Link4: 1500, Link6: 9000}, want: 1500},
		{name: "IPv6 link smaller", mtu: 1520, path: Path{Link4: 1500, Link6: 1500}, want: 1480},
		{name: "below 1280", mtu: 1000, want: 980},
		{name: "zero would say that the router reports none", mtu: 0, want: 68},
		{name: "32 bits", mtu: 0xffffffff, want: 65535},
		{name: "65555", mtu: 65555, want: 65535},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inner := v6{hop: 60, frag: tt.frag, id: 7, payload: udp(4)}
			in := v6{src: node6, dst: host6, hop: 64, proto: 58, payload: icmp(2, 0, tt.mtu, inner.bytes())}.bytes()
			quote := v4{ttl: 60, payload: udp(4)}
			if tt.frag {
				quote.id = 7
			}
			wantPackets(t, translator(t, nil), tt.path, in,
				v4{src: node4, dst: host4, ttl: 63, proto: 1, payload: icmp(3, 4, tt.want, quote.bytes())}.bytes())
		})
	}
}

// TestSingleHopMessages names what RFC 7915 sections 4.2 and 5.2 single out to be
// dropped silently.
func TestSingleHopMessages(t *testing.T) {
	tr := translator(t, nil)
	for _, typ := range []byte{4, 5, 6, 9, 10, 13, 14, 15, 16, 17, 18, 40, 255} {
		wantDrop(t, tr, testPath, v4{proto: 1, payload: icmp(typ, 0, 0, quoted4())}.bytes(), ReasonICMPType)
	}
	for _, typ := range []byte{0, 5, 100, 127, 130, 131, 132, 133, 134, 135, 136, 137, 138, 143, 200, 255} {
		wantDrop(t, tr, testPath, v6{proto: 58, payload: icmp(typ, 0, 0, back6())}.bytes(), ReasonICMPType)
	}
	wantDrop(t, tr, testPath, v4{proto: protoIGMP, payload: data(8)}.bytes(), ReasonIGMP)
}

// rightSum checks the sums of a packet by their definition: of the IPv4 header, and
// of the transport message where it is whole and of a protocol with one.
func rightSum(p []byte) bool {
	var proto byte
	var m, pseudo []byte
	if p[0]>>4 == 4 {
		if sumWords(p[:20]) != 0xffff {
			return false
		}
		if (uint16(p[6])<<8|uint16(p[7]))&0x3fff != 0 {
			return true
		}
		proto, m = p[9], p[20:]
		if proto != protoICMP {
			pseudo = append(append([]byte{}, p[12:20]...), 0, proto, byte(len(m)>>8), byte(len(m)))
		}
	} else {
		proto, m = p[6], p[40:]
		if proto == packet.ProtoFragment {
			return true
		}
		pseudo = append(append([]byte{}, p[8:40]...), 0, 0, byte(len(m)>>8), byte(len(m)), 0, 0, 0, proto)
	}
	switch proto {
	case packet.ProtoUDP:
		if m[6]|m[7] == 0 {
			return p[0]>>4 == 4
		}
	case packet.ProtoTCP, protoICMP, packet.ProtoICMPv6, protoDCCP, protoUDPLite:
	default:
		return true
	}
	return sumWords(pseudo, m) == 0xffff
}
