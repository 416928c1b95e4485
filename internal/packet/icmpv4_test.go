// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

func TestICMPv4Error(t *testing.T) {
	router := netip.MustParseAddr("192.0.2.254")
	with := func(p []byte, at int, octets ...byte) []byte { copy(p[at:], octets); return p }
	icmp := func(typ byte) []byte { return with(packet4(0, nil, []byte{typ, 0, 0, 0, 0, 0, 0, 0}), 9, ProtoICMPv4) }
	for _, row := range []struct {
		name  string
		cause []byte
		quote int // -1: no error may be sent
	}{
		{"small packet is quoted whole", packet4(0, nil, make([]byte, 8)), 28},
		{"large one is cut to 576 octets in all", packet4(0, nil, make([]byte, 1000)), 548},
		{"options are quoted", packet4(0, []byte{1, 1, 1, 0}, make([]byte, 8)), 32},
		{"first fragment", packet4(MoreFragments, nil, make([]byte, 8)), 28},
		{"later fragment", packet4(1, nil, make([]byte, 8)), -1},
		{"echo request", icmp(8), 28},
		{"time stamp", icmp(13), 28},
		{"unreachable", icmp(3), -1},
		{"source quench", icmp(4), -1},
		{"redirect", icmp(5), -1},
		{"time exceeded", icmp(11), -1},
		{"parameter problem", icmp(12), -1},
		{"a type nobody knows", icmp(200), 28},
		{"ICMP without a type", with(packet4(0, nil, nil), 9, ProtoICMPv4), -1},
		{"from nobody", with(packet4(0, nil, nil), 12, 0, 0, 0, 0), -1},
		{"from loopback", with(packet4(0, nil, nil), 12, 127), -1},
		{"from a group", with(packet4(0, nil, nil), 12, 224), -1},
		{"from the broadcast address", with(packet4(0, nil, nil), 12, 255, 255, 255, 255), -1},
		{"to a group", with(packet4(0, nil, nil), 16, 239), -1},
		{"to the broadcast address", with(packet4(0, nil, nil), 16, 255, 255, 255, 255), -1},
	} {
		for _, id := range []uint16{0, 0x1234} {
			b := AppendICMPv4Error([]byte("before"), router, id, 3, 4, 1400, row.cause)[6:]
			if row.quote < 0 {
				if len(b) > 0 {
					t.Errorf("%s: answered by %x", row.name, b)
				}
				continue
			}
			flags := uint16(0)
			if id == 0 {
				flags = DontFragment
			}
			if len(b) != 28+row.quote || b[0] != 0x45 || b[1] != 0xc0 || int(binary.BigEndian.Uint16(b[2:])) != len(b) || binary.BigEndian.Uint16(b[4:]) != id ||
				binary.BigEndian.Uint16(b[6:]) != flags || b[8] != 64 || b[9] != ProtoICMPv4 || Fold(Sum(0, b[:20])) != 0xffff ||
				!bytes.Equal(b[12:16], router.AsSlice()) || !bytes.Equal(b[16:20], row.cause[12:16]) {
				t.Errorf("%s: header of %x", row.name, b)
				continue
			}
			if m := b[20:]; Fold(Sum(0, m)) != 0xffff || !bytes.Equal(m[:2], []byte{3, 4}) || binary.BigEndian.Uint32(m[4:]) != 1400 || !bytes.Equal(m[8:], row.cause[:row.quote]) {
				t.Errorf("%s: message %x", row.name, m)
			}
		}
	}
}
