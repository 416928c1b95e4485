// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// ip4 and ip6 are frames with a payload of a protocol.
func ip4(protocol byte, fragment uint16, payload ...byte) []byte {
	f := append(make([]byte, 12), 8, 0, 0x45, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(20+len(payload)))
	f = binary.BigEndian.AppendUint16(f, 1)
	f = binary.BigEndian.AppendUint16(f, fragment)
	return append(append(f, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2), payload...)
}

func ip6(protocol byte, payload ...byte) []byte {
	f := append(make([]byte, 12), 0x86, 0xdd)
	a := netip.MustParseAddr("2001:db8::1")
	return append(packet.AppendIPv6Header(f, protocol, 64, len(payload), a, a), payload...)
}

func datagram(from, to byte, text string) []byte {
	return append([]byte{0x13, from, 0x13, to, 0, byte(8 + len(text)), 0, 0}, text...)
}

// association is an SCTP packet with these chunks.
func association(chunks ...[]byte) []byte {
	return append(make([]byte, 12), slices.Concat(chunks...)...)
}

func TestFilters(t *testing.T) {
	const fivesixty = 0xc4 // with 0x13, the port 5060
	invite := datagram(1, fivesixty, "INVITE sip:a@example.net SIP/2.0")
	sip, initiation := UDP(5060, "INVITE "), SCTPChunk(1)
	init, cookie, data := []byte{1, 0, 0, 4}, []byte{10, 0, 0, 5, 7, 0, 0, 0}, []byte{0, 3, 0, 7, 1, 2, 3, 0}
	for _, tt := range []struct {
		name   string
		filter Filter
		frame  []byte
		want   bool
	}{
		{"an INVITE", sip, ip4(packet.ProtoUDP, 0, invite...), true},
		{"in IPv6", sip, ip6(packet.ProtoUDP, invite...), true},
		{"from the port", sip, ip4(packet.ProtoUDP, 0, datagram(fivesixty, 1, "INVITE sip:")...), true},
		{"its first fragment", sip, ip4(packet.ProtoUDP, 0x2000, invite...), true},
		{"a further fragment", sip, ip4(packet.ProtoUDP, 1, invite...), false},
		{"another method", sip, ip4(packet.ProtoUDP, 0, datagram(1, fivesixty, "BYE sip:")...), false},
		{"another port", sip, ip4(packet.ProtoUDP, 0, datagram(1, 2, "INVITE sip:")...), false},
		{"another protocol", sip, ip4(6, 0, invite...), false},
		{"behind an extension header", sip, ip6(packet.ProtoDestOpts, append([]byte{packet.ProtoUDP, 0, 1, 4, 0, 0, 0, 0}, invite...)...), true},
		{"ARP", sip, append(make([]byte, 12), 8, 6, 0, 1), false},
		{"INIT", initiation, ip6(protoSCTP, association(init)...), true},
		{"INIT behind a cookie with padding", initiation, ip4(protoSCTP, 0, association(cookie, init)...), true},
		{"DATA", initiation, ip6(protoSCTP, association(cookie, data)...), false},
		{"DATA among others", SCTPChunk(0), ip6(protoSCTP, association(cookie, data)...), true},
		{"no chunk", initiation, ip6(protoSCTP, association()...), false},
		{"a chunk of no length", initiation, ip6(protoSCTP, association([]byte{2, 0, 0, 0}, init)...), false},
		{"a chunk that leaves the packet", initiation, ip6(protoSCTP, association([]byte{2, 0, 0, 99}, init)...), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.filter(tt.frame); got != tt.want {
				t.Errorf("chosen %v, want %v", got, tt.want)
			}
			for n := range tt.frame { // whatever comes, nothing is read beyond it
				tt.filter(tt.frame[:n:n])
			}
		})
	}
}

// What a filter does not choose passes, and Lose ends by itself.
func TestLaneLosesTheChosen(t *testing.T) {
	invite, other := ip4(packet.ProtoUDP, 0, datagram(1, 0xc4, "INVITE ")...), sized(100)
	l := mustLane(t, LaneConfig{Loss: 1, Lossy: UDP(5060, "INVITE ")})
	for i := range int64(10) {
		if _, ok := l.admit(i, invite); ok {
			t.Error("a packet that is chosen passed")
		}
		if _, ok := l.admit(i, other); !ok {
			t.Error("another packet was lost")
		}
	}
	l = mustLane(t, LaneConfig{})
	l.lose = append(l.lose, losing{2, UDP(5060, "INVITE ")})
	var passed []bool
	for i := range int64(4) {
		_, ok := l.admit(i, invite)
		_, others := l.admit(i, other)
		passed = append(passed, ok)
		if !others {
			t.Error("another packet was lost")
		}
	}
	if !slices.Equal(passed, []bool{false, false, true, true}) || l.count.Lost != 2 {
		t.Errorf("passed %v, %d lost", passed, l.count.Lost)
	}
}
