// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"net/netip"
	"testing"
)

func TestICMPv4Error(t *testing.T) {
	router := netip.MustParseAddr("192.0.2.254")
	change := func(f func(b []byte)) []byte {
		b := packet4(0, nil, make([]byte, 40))
		f(b)
		return b
	}
	icmp := func(kind byte) []byte { return change(func(b []byte) { b[9], b[20] = ProtoICMPv4, kind }) }
	for _, tt := range []struct {
		name  string
		cause []byte
		size  int // of the error; 0 where none may be sent
	}{
		{"small packet is quoted whole", change(func([]byte) {}), 28 + 60},
		{"large packet is cut to 576 octets in all", packet4(0, nil, make([]byte, 1400)), 576},
		{"echo request", icmp(8), 28 + 60},
		{"ICMP of a type that nobody knows", icmp(200), 28 + 60},
		{"unreachable", icmp(3), 0},
		{"source quench", icmp(4), 0},
		{"redirect", icmp(5), 0},
		{"time exceeded", icmp(11), 0},
		{"parameter problem", icmp(12), 0},
		{"ICMP without a type", change(func(b []byte) { b[9] = ProtoICMPv4 })[:20], 0},
		{"first fragment", change(func(b []byte) { b[6] = 0x20 }), 28 + 60},
		{"later fragment", change(func(b []byte) { b[7] = 1 }), 0},
		{"from nobody", change(func(b []byte) { clear(b[12:16]) }), 0},
		{"from loopback", change(func(b []byte) { b[12] = 127 }), 0},
		{"from a group", change(func(b []byte) { b[12] = 224 }), 0},
		{"from all", change(func(b []byte) { copy(b[12:], []byte{255, 255, 255, 255}) }), 0},
		{"to a group", change(func(b []byte) { b[16] = 239 }), 0},
	} {
		got := AppendICMPv4Error([]byte("before"), router, 3, 4, 1400, tt.cause)[6:]
		if len(got) != tt.size {
			t.Errorf("%s: %d octets, want %d", tt.name, len(got), tt.size)
			continue
		}
		if tt.size == 0 {
			continue
		}
		if Fold(Sum(0, got[:20])) != 0xffff || Fold(Sum(0, got[20:])) != 0xffff || int(got[2])<<8|int(got[3]) != len(got) ||
			!bytes.Equal(got[16:20], tt.cause[12:16]) || !bytes.Equal(got[20:22], []byte{3, 4}) || !bytes.Equal(got[24:28], []byte{0, 0, 5, 120}) ||
			!bytes.HasPrefix(tt.cause, got[28:]) {
			t.Errorf("%s: %x", tt.name, got)
		}
	}
}
