// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// datagram4 is a frame with a UDP datagram in IPv4, and padding behind it.
func datagram4(payload []byte, checksum bool, padding int) []byte {
	src, dst := [4]byte{192, 168, 1, 2}, [4]byte{203, 0, 113, 1}
	udp := append([]byte{0xd, 0xdf, 0xd, 0xd8, 0, byte(8 + len(payload)), 0, 0}, payload...)
	if checksum {
		sum := udpChecksum(src, dst, udp)
		if sum == 0 {
			sum = 0xffff // RFC 768
		}
		binary.BigEndian.PutUint16(udp[6:], sum)
	}
	frame := append(make([]byte, 12), 8, 0, 0x45, 0, 0, byte(20+len(udp)), 0, 0, 0, 0, 64, 17, 0, 0)
	frame = append(append(append(frame, src[:]...), dst[:]...), udp...)
	return append(frame, make([]byte, padding)...)
}

func udpChecksum(src, dst [4]byte, udp []byte) uint16 {
	wide := func(a [4]byte) *[16]byte { b := netip.AddrFrom4(a).As16(); return &b }
	return packet.Checksum(wide(src), wide(dst), packet.ProtoUDP, udp)
}

// TestRewriteAddress: a gateway finds the address at any place of the payload, and nowhere
// else; checksums stay right.
func TestRewriteAddress(t *testing.T) {
	private, public := netip.MustParseAddr("192.168.1.2"), netip.MustParseAddr("203.0.113.10")
	in, out := private.As4(), public.As4()
	rewrite := RewriteAddress(private, public)
	obfuscated := []byte{^in[0], ^in[1], ^in[2], ^in[3]}
	for _, tt := range []struct {
		name          string
		payload, want []byte
	}{
		{"alone", in[:], out[:]},
		{"at an odd place", append([]byte("x"), in[:]...), append([]byte("x"), out[:]...)},
		{"twice", append(append([]byte("at "), in[:]...), in[:]...), append(append([]byte("at "), out[:]...), out[:]...)},
		{"among others, odd length", append(append([]byte("at"), in[:]...), "-"...), append(append([]byte("at"), out[:]...), "-"...)},
		{"obfuscated as Teredo does", obfuscated, obfuscated},
		{"cut off", in[:3], in[:3]},
		{"none", nil, nil},
	} {
		for _, checksum := range []bool{true, false} {
			for _, padding := range []int{0, 5} {
				t.Run(tt.name, func(t *testing.T) {
					got := datagram4(tt.payload, checksum, padding)
					if changed := rewrite(got); changed != !bytes.Equal(tt.payload, tt.want) {
						t.Errorf("changed: %t", changed)
					}
					if want := datagram4(tt.want, checksum, padding); !bytes.Equal(got, want) {
						t.Errorf("%x, want %x", got, want)
					}
				})
			}
		}
	}
	padded := datagram4(nil, true, 0)
	padded = append(padded, in[:]...)
	tcp := datagram4(in[:], true, 0)
	tcp[14+9] = 6
	later := datagram4(in[:], true, 0)
	later[14+7] = 1
	long := datagram4(in[:], true, 0)
	long[14+20+5] = 3 // a length that cannot be
	for name, frame := range map[string][]byte{"padding": padded, "TCP": tcp, "a later fragment": later, "shorter than its header": long, "no frame": {1, 2}} {
		was := bytes.Clone(frame)
		if rewrite(frame) || !bytes.Equal(frame, was) {
			t.Errorf("%s was rewritten", name)
		}
	}
}

// A result of zero is sent as all ones: zero is no checksum (RFC 768).
func TestRewriteNeverDropsTheChecksum(t *testing.T) {
	for i := range 1 << 16 {
		payload := []byte{10, 0, 0, 1, byte(i >> 8), byte(i)}
		frame := datagram4(payload, true, 0)
		RewriteAddress(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("203.0.113.10"))(frame)
		udp := frame[34:]
		if got := binary.BigEndian.Uint16(udp[6:]); got == 0 {
			t.Fatalf("no checksum over %x", payload)
		}
	}
}
