// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// segment makes one of TCP with options, in an IPv4 packet, with right checksums.
func segment4(flags byte, options ...byte) []byte {
	b := packet4(0, nil, segment(flags, options))
	b[9] = ProtoTCP
	fillTCP(b)
	return b
}

func segment6(flags byte, options ...byte) []byte {
	m := segment(flags, options)
	b := append(AppendIPv6Header(nil, ProtoTCP, 64, len(m), hostA, hostB), m...)
	fillTCP(b)
	return b
}

func segment(flags byte, options []byte) []byte {
	m := append(make([]byte, tcpHeaderLen), options...)
	m[1], m[3], m[12], m[13] = 80, 99, byte(5+len(options)/4)<<4, flags
	return append(m, "data"...)
}

// sumTCP is the sum of a segment with its pseudo-header: 0xffff if its checksum is right.
func sumTCP(p []byte) uint16 {
	m, _ := tcp(p, 1500)
	addresses := p[12:20]
	if p[0]>>4 == 6 {
		addresses = p[8:40]
	}
	return Fold(Sum(Sum(uint64(len(m)+ProtoTCP), addresses), m))
}

func fillTCP(p []byte) {
	m, _ := tcp(p, 1500)
	m[16], m[17] = 0, 0
	binary.BigEndian.PutUint16(m[16:], ^sumTCP(p))
}

func TestClampMSS(t *testing.T) {
	const syn, synAck, ack = 0x02, 0x12, 0x10
	extension := func(p []byte) []byte {
		b := append([]byte{}, p[:40]...)
		b[6], b[5] = ProtoDestOpts, b[5]+8
		return append(append(b, ProtoTCP, 0, 1, 4, 0, 0, 0, 0), p[40:]...)
	}
	fragment := func(p []byte, word uint16) []byte {
		binary.BigEndian.PutUint16(p[6:], word)
		return p
	}
	for _, row := range []struct {
		name  string
		p     []byte
		mtu   int
		place int // of the size, from the beginning of the options
		want  uint16
	}{
		{"IPv4", segment4(syn, 2, 4, 5, 0xb4), 1400, 2, 1360},
		{"IPv6", segment6(syn, 2, 4, 5, 0xa0), 1400, 2, 1340},
		{"an answer", segment4(synAck, 2, 4, 5, 0xb4), 1280, 2, 1240},
		{"as much as fits", segment4(syn, 2, 4, 0x05, 0x50), 1400, 2, 0},
		{"one more than fits", segment4(syn, 2, 4, 0x05, 0x51), 1400, 2, 1360},
		{"less", segment4(syn, 2, 4, 2, 0x18), 1400, 2, 0},
		{"all ones", segment6(syn, 2, 4, 0xff, 0xff), 1400, 2, 1340},
		{"behind other options", segment4(syn, 1, 1, 4, 2, 3, 3, 7, 1, 2, 4, 5, 0xb4), 1400, 10, 1360},
		{"at an odd place", segment4(syn, 1, 2, 4, 5, 0xb4, 4, 2, 0), 1400, 3, 1360},
		{"at an odd place of IPv6", segment6(syn, 3, 3, 7, 2, 4, 5, 0xb4, 0), 1400, 5, 1340},
		{"behind an extension header", extension(segment6(syn, 2, 4, 5, 0xa0)), 1400, 2, 1340},
		{"first fragment", fragment(segment4(syn, 2, 4, 5, 0xb4), MoreFragments), 1400, 2, 1360},
		{"later fragment", fragment(segment4(syn, 2, 4, 5, 0xb4), 7), 1400, 2, 0},
		{"no SYN", segment4(ack, 2, 4, 5, 0xb4), 1400, 2, 0},
		{"no options", segment4(syn), 1400, 0, 0},
		{"none about sizes", segment4(syn, 1, 3, 3, 7), 1400, 2, 0},
		{"behind the end of the options", segment4(syn, 0, 0, 0, 0, 2, 4, 5, 0xb4), 1400, 6, 0},
		{"of another length", segment4(syn, 2, 3, 0xff, 0), 1400, 2, 0},
		{"of length 0", segment4(syn, 2, 0, 0xff, 0xff), 1400, 2, 0},
		{"behind one of length 1", segment4(syn, 9, 1, 1, 1, 2, 4, 5, 0xb4), 1400, 6, 0},
		{"beyond the header", segment4(syn, 1, 1, 2, 4), 1400, 2, 0},
		{"kind alone", segment4(syn, 1, 1, 1, 2), 1400, 2, 0},
		{"an MTU that leaves nothing", segment4(syn, 2, 4, 5, 0xb4), 40, 2, 0},
		{"UDP", packet4(0, nil, segment(syn, []byte{2, 4, 5, 0xb4})), 1400, 2, 0},
		{"segment cut short", segment4(syn, 2, 4, 5, 0xb4)[:41], 1400, 0, 0},
		{"header cut short", segment4(syn, 2, 4, 5, 0xb4)[:39], 1400, 0, 0},
	} {
		was := bytes.Clone(row.p)
		sum := sumTCP(row.p)
		got := ClampMSS(row.p, row.mtu)
		if row.want == 0 {
			if got || !bytes.Equal(row.p, was) {
				t.Errorf("%s: changed", row.name)
			}
			continue
		}
		m, _ := tcp(row.p, row.mtu)
		if size := binary.BigEndian.Uint16(m[tcpHeaderLen+row.place:]); !got || size != row.want {
			t.Errorf("%s: %d, want %d", row.name, size, row.want)
		}
		if sum != 0xffff || sumTCP(row.p) != 0xffff {
			t.Errorf("%s: the sum was %#x and is %#x", row.name, sum, sumTCP(row.p))
		}
	}
}

// TestClampKeepsDamage leaves a wrong checksum wrong, for the receiver to find.
func TestClampKeepsDamage(t *testing.T) {
	p := segment4(2, 2, 4, 5, 0xb4)
	p[len(p)-1] ^= 1
	if !ClampMSS(p, 1400) || sumTCP(p) == 0xffff {
		t.Error("damage hidden")
	}
}

// FuzzClampMSS changes nothing but sizes and the checksum, which stays right.
func FuzzClampMSS(f *testing.F) {
	f.Add(segment4(2, 2, 4, 5, 0xb4), 1400)
	f.Add(segment6(2, 1, 2, 4, 5, 0xb4, 4, 2, 0), 1280)
	f.Fuzz(func(t *testing.T, p []byte, mtu int) {
		if len(p) < 40 || p[0]>>4 == 4 && (int(p[0]&0xf) < 5 || int(p[0]&0xf)*4 > len(p)) {
			return
		}
		if _, _, ok := ParseIPv6(p); p[0]>>4 != 4 && !ok {
			return
		}
		m, _ := tcp(p, mtu)
		if len(m) >= tcpHeaderLen {
			fillTCP(p)
		}
		was := bytes.Clone(p)
		if !ClampMSS(p, mtu) {
			if !bytes.Equal(p, was) {
				t.Fatal("changed")
			}
			return
		}
		if sumTCP(p) != 0xffff {
			t.Fatalf("%x became %x", was, p)
		}
		if ClampMSS(p, mtu) {
			t.Fatal("changed again")
		}
	})
}

func BenchmarkClampMSS(b *testing.B) {
	data := segment4(0x10, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2)
	for b.Loop() {
		ClampMSS(data, 1400)
	}
}
