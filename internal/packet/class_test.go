// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"testing"
)

// classed4 is an IPv4 header of a traffic class, with its checksum.
func classed4(class uint8) []byte {
	p := []byte{0x45, class, 0, 20, 1, 2, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7}
	binary.BigEndian.PutUint16(p[10:], ^Fold(Sum(0, p)))
	return p
}

// classed6 is the start of an IPv6 header with bits around the traffic class.
func classed6(class uint8) []byte { return []byte{0x60 | class>>4, class<<4 | 5, 0x67, 0x89} }

func TestTrafficClass(t *testing.T) {
	for class := range 256 {
		class := uint8(class)
		four, six := classed4(0xa5), classed6(0xa5)
		SetTrafficClass(four, class)
		SetTrafficClass(six, class)
		if TrafficClass(four) != class || Fold(Sum(0, four)) != 0xffff || four[0] != 0x45 {
			t.Errorf("%#x: %x, sum %x", class, four, Fold(Sum(0, four)))
		}
		if TrafficClass(six) != class || six[0]>>4 != 6 || six[1]&0xf != 5 || six[2] != 0x67 {
			t.Errorf("%#x: %x", class, six)
		}
		SetDSCP(four, 46)
		SetDSCP(six, 46)
		if want := 46<<2 | class&ECN; TrafficClass(four) != want || TrafficClass(six) != want {
			t.Errorf("%#x: %#x and %#x, want %#x", class, TrafficClass(four), TrafficClass(six), want)
		}
	}
}

// TestEmerge has the table of RFC 6040 section 4.2 as it stands there, with its marks of what is not in use.
func TestEmerge(t *testing.T) {
	const lost = 0xff
	outside := []uint8{NotECT, ECT0, ECT1, CE}
	for _, row := range []struct {
		inner uint8
		want  [4]uint8
		odd   [4]bool
	}{
		{NotECT, [4]uint8{NotECT, NotECT, NotECT, lost}, [4]bool{1: true, 2: true}},
		{ECT0, [4]uint8{ECT0, ECT0, ECT1, CE}, [4]bool{}},
		{ECT1, [4]uint8{ECT1, ECT1, ECT1, CE}, [4]bool{1: true}},
		{CE, [4]uint8{CE, CE, CE, CE}, [4]bool{2: true}},
	} {
		for i, outer := range outside {
			for _, p := range [][]byte{classed4(46<<2 | row.inner), classed6(46<<2 | row.inner)} {
				found, class := Emerge(p, 63<<2|outer), TrafficClass(p)
				switch {
				case (found == EmergedLost) != (row.want[i] == lost), (found == EmergedOddly) != row.odd[i]:
					t.Errorf("inside %02b, outside %02b: finding %d", row.inner, outer, found)
				case found != EmergedLost && class != 46<<2|row.want[i]:
					t.Errorf("inside %02b, outside %02b: %#x", row.inner, outer, class)
				case len(p) == 20 && Fold(Sum(0, p)) != 0xffff:
					t.Errorf("inside %02b, outside %02b: the checksum is wrong", row.inner, outer)
				}
			}
		}
	}
}
