// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// packet4 makes an IPv4 packet of UDP between two hosts.
func packet4(flags uint16, options, payload []byte) []byte {
	head := IPv4HeaderLen + len(options)
	n := head + len(payload)
	b := []byte{4<<4 | byte(head/4), 0x28, byte(n >> 8), byte(n), 0xab, 0xcd, byte(flags >> 8), byte(flags), 64, ProtoUDP, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2}
	b = append(b, options...)
	binary.BigEndian.PutUint16(b[10:], ^Fold(Sum(0, b)))
	return append(b, payload...)
}

// cut returns all fragments of a packet.
func cut(p []byte, limit int) (list [][]byte) {
	for at, more := 0, true; more; more = at != 0 {
		var b []byte
		b, at = AppendFragment([]byte("before"), p, at, limit)
		list = append(list, b[6:])
	}
	return list
}

func TestAppendFragment(t *testing.T) {
	// A router alert is in all fragments, a record of the route in the first alone, and what
	// ends them is no option.
	alert, record := []byte{0x94, 4, 0, 0}, []byte{7, 7, 4, 0, 0, 0, 0}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, row := range []struct {
		name    string
		flags   uint16
		options []byte
		payload int
		limit   int
		sizes   []int
		heads   []int
		words   []uint16
	}{
		{"what fits is left whole", 0, nil, 1380, 1400, []int{1400}, []int{20}, []uint16{0}},
		{"two", 0, nil, 1381, 1400, []int{1396, 25}, []int{20, 20}, []uint16{MoreFragments, 172}},
		{"the last need not be a multiple of eight", 0, nil, 1376 + 1380, 1400, []int{1396, 1400}, []int{20, 20}, []uint16{MoreFragments, 172}},
		{"a fragment in the middle", MoreFragments | 100, nil, 160, 120, []int{116, 84}, []int{20, 20}, []uint16{MoreFragments | 100, MoreFragments | 112}},
		{"the last fragment", 100, nil, 160, 120, []int{116, 84}, []int{20, 20}, []uint16{MoreFragments | 100, 112}},
		{"the flag that forbids it goes", DontFragment, nil, 100, 68, []int{68, 68, 24}, []int{20, 20, 20}, []uint16{MoreFragments, MoreFragments | 6, 12}},
		{"an option of all", 0, alert, 100, 68, []int{64, 64, 44}, []int{24, 24, 24}, []uint16{MoreFragments, MoreFragments | 5, 10}},
		{"an option of the first", 0, join(record, []byte{0}), 100, 68, []int{68, 68, 32}, []int{28, 20, 20}, []uint16{MoreFragments, MoreFragments | 5, 11}},
		{"both", 0, join(record, alert, []byte{0}), 100, 68, []int{64, 64, 52}, []int{32, 24, 24}, []uint16{MoreFragments, MoreFragments | 4, 9}},
		{"an option that cannot be read, and what is behind", 0, join(alert, []byte{0x94, 9, 0, 0}), 100, 68, []int{68, 64, 44}, []int{28, 24, 24}, []uint16{MoreFragments, MoreFragments | 5, 10}},
		{"an option of length 1", 0, []byte{0x94, 1, 1, 1}, 100, 68, []int{64, 68, 32}, []int{24, 20, 20}, []uint16{MoreFragments, MoreFragments | 5, 11}},
		{"most options, least limit", 0, bytes.Repeat(alert, 10), 17, 68, []int{68, 68, 61}, []int{60, 60, 60}, []uint16{MoreFragments, MoreFragments | 1, 2}},
	} {
		payload := make([]byte, row.payload)
		for i := range payload {
			payload[i] = byte(i * 7)
		}
		p := packet4(row.flags, row.options, payload)
		got := cut(p, row.limit)
		if len(got) != len(row.sizes) {
			t.Errorf("%s: %d fragments, want %d", row.name, len(got), len(row.sizes))
			continue
		}
		var whole []byte
		for i, b := range got {
			head := int(b[0]&0xf) * 4
			if len(b) != row.sizes[i] || head != row.heads[i] || binary.BigEndian.Uint16(b[6:]) != row.words[i] ||
				int(binary.BigEndian.Uint16(b[2:])) != len(b) || Fold(Sum(0, b[:head])) != 0xffff || !bytes.Equal(b[4:6], p[4:6]) || !bytes.Equal(b[12:20], p[12:20]) {
				t.Errorf("%s: fragment %d of %d octets: %x", row.name, i, len(b), b[:head])
			}
			whole = append(whole, b[head:]...)
		}
		if !bytes.Equal(whole, payload) {
			t.Errorf("%s: the parts are not the whole", row.name)
		}
	}
}

// TestFragmentChecksum: whatever the checksum of a packet is, those of all its fragments are
// right where it is, and wrong where it is not.
func TestFragmentChecksum(t *testing.T) {
	for _, options := range [][]byte{nil, {0x94, 4, 0, 0, 7, 4, 4, 0}} {
		p := packet4(DontFragment, options, make([]byte, 100))
		right := binary.BigEndian.Uint16(p[10:])
		for sum := range 1 << 16 {
			binary.BigEndian.PutUint16(p[10:], uint16(sum))
			for i, b := range cut(p, 68) {
				if got := Fold(Sum(0, b[:int(b[0]&0xf)*4])) == 0xffff; got != (uint16(sum) == right) {
					t.Fatalf("checksum %#x, right is %#x: fragment %d is right: %v", sum, right, i, got)
				}
			}
		}
	}
}

// TestFragmentsAddUp cuts packets and their fragments again.
func TestFragmentsAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		payload := make([]byte, 1+random.IntN(3000))
		for i := range payload {
			payload[i] = byte(random.Uint32())
		}
		options := make([]byte, 4*random.IntN(11))
		for i := range options {
			options[i] = byte(random.Uint32() & 0x87)
		}
		whole := make([]byte, len(payload))
		limit, narrow := 68+random.IntN(1500), 68+random.IntN(400)
		for _, first := range cut(packet4(0, options, payload), limit) {
			for _, b := range cut(first, narrow) {
				head, word := int(b[0]&0xf)*4, binary.BigEndian.Uint16(b[6:])
				at := int(word&offsetMask) * 8
				if len(b) > narrow || len(b) > limit || Fold(Sum(0, b[:head])) != 0xffff || (word&MoreFragments == 0) != (at+len(b)-head == len(payload)) {
					t.Fatalf("limits %d and %d: %x", limit, narrow, b[:head])
				}
				copy(whole[at:], b[head:])
			}
		}
		if !bytes.Equal(whole, payload) {
			t.Fatalf("%d octets by %d and %d", len(payload), limit, narrow)
		}
	}
}
