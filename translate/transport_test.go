// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestUDPZeroChecksum has the three modes of RFC 7915 section 4.5.
func TestUDPZeroChecksum(t *testing.T) {
	mode := func(m ZeroChecksum) *Translator {
		return translator(t, func(s *Settings) { s.UDPZeroChecksum = m })
	}
	whole := v4{payload: udp(9), keepSum: true}.bytes()
	first := v4{mf: true, id: 1, payload: udp(8)}.bytes()
	later := v4{offset: 16, id: 1, payload: data(8)}.bytes()
	passedLater := v6{frag: true, id: 1, offset: 16, payload: data(8)}.bytes()

	t.Run("drop", func(t *testing.T) {
		tr := mode(ZeroChecksumDrop)
		wantError(t, tr, Path{}, whole, ReasonUDPZeroChecksum, icmp4Error(3, 13, 0, whole))
		wantError(t, tr, Path{}, first, ReasonUDPZeroFragment, icmp4Error(3, 13, 0, first))
		wantPackets(t, tr, testPath, later, passedLater)
	})
	t.Run("compute", func(t *testing.T) {
		tr := mode(ZeroChecksumCompute)
		wantPackets(t, tr, testPath, whole, v6{payload: udp(9)}.bytes())
		wantError(t, tr, Path{}, first, ReasonUDPZeroFragment, icmp4Error(3, 13, 0, first))
		// Cut by the translator, it is computed over the whole.
		large := v4{id: 7, payload: udp(1300)}
		in := large
		in.keepSum = true
		wantPackets(t, tr, testPath, in.bytes(), cut6(large, []int{1232, 76})...)
	})
	t.Run("forward", func(t *testing.T) {
		tr := mode(ZeroChecksumForward)
		wantPackets(t, tr, testPath, whole, v6{payload: udp(9), keepSum: true}.bytes())
		wantPackets(t, tr, testPath, first, v6{frag: true, mf: true, id: 1, payload: udp(8)}.bytes())
	})
	t.Run("compute with a lying length", func(t *testing.T) {
		for _, n := range []byte{0, 7, 18, 255} {
			m := udp(9)
			m[5] = n
			in := v4{payload: m, keepSum: true}.bytes()
			wantError(t, mode(ZeroChecksumCompute), Path{}, in, ReasonUDPLength, icmp4Error(3, 13, 0, in))
		}
	})
	t.Run("compute over the length of UDP", func(t *testing.T) {
		// Two octets behind the datagram belong to no checksum.
		in := v4{payload: append(udp(9), 0xaa, 0xbb), keepSum: true}.bytes()
		want := append(v6{payload: udp(9)}.bytes(), 0xaa, 0xbb)
		want[5] += 2
		wantPackets(t, mode(ZeroChecksumCompute), testPath, in, want)
	})
}

// TestChecksumZero: a UDP checksum that comes out as zero is written 0xffff (RFC 768);
// one of TCP is written as it is.
func TestChecksumZero(t *testing.T) {
	tr := translator(t, func(s *Settings) { s.UDPZeroChecksum = ZeroChecksumCompute })
	for _, proto := range []byte{packet.ProtoUDP, packet.ProtoTCP, protoUDPLite, protoDCCP} {
		at := map[byte]int{packet.ProtoTCP: 16}[proto]
		def(&at, 6)
		found := 0
		for n := range 65536 {
			m := tcp(2)
			if proto != packet.ProtoTCP {
				m = udp(14)
			}
			m[20], m[21] = byte(n>>8), byte(n)
			want := v6{proto: proto, payload: m}.bytes()
			sum := uint16(want[40+at])<<8 | uint16(want[41+at])
			if sum != 0 && sum != 0xffff {
				continue
			}
			found++
			wantPackets(t, tr, testPath, v4{proto: proto, payload: m}.bytes(), want)
			in := v4{proto: proto, payload: m, keepSum: true}.bytes()
			if proto == packet.ProtoUDP {
				wantPackets(t, tr, testPath, in, want) // computed anew
			}
		}
		if found == 0 {
			t.Errorf("protocol %d: no message has such a checksum", proto)
		}
	}
}

// TestWrongChecksumStaysWrong: an incremental update hides no damage (RFC 1624).
func TestWrongChecksumStaysWrong(t *testing.T) {
	tr := translator(t, nil)
	for _, proto := range []byte{packet.ProtoUDP, packet.ProtoTCP} {
		in4, in6 := v4{proto: proto, payload: tcp(20)}.bytes(), v6{proto: proto, payload: tcp(20)}.bytes()
		in4[len(in4)-1] ^= 1
		in6[len(in6)-1] ^= 1
		for _, in := range [][]byte{in4, in6} {
			if _, out := run(tr, in, testPath); len(out) != 1 || rightSum(out[0]) {
				t.Errorf("protocol %d: damage hidden", proto)
			}
		}
	}
}
