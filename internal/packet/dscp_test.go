// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"testing"
)

func TestSetDSCP(t *testing.T) {
	for _, dscp := range []uint8{0, 10, 46, 63} {
		four := []byte{0x45, 0xff, 0, 20, 1, 2, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7}
		binary.BigEndian.PutUint16(four[10:], ^Fold(Sum(0, four)))
		SetDSCP(four, dscp)
		if four[1] != dscp<<2|3 || Fold(Sum(0, four)) != 0xffff {
			t.Errorf("%d: %x, sum %x", dscp, four, Fold(Sum(0, four)))
		}
		six := []byte{0x6f, 0xf5, 0x67, 0x89}
		SetDSCP(six, dscp)
		if want := 0x60356789 | uint32(dscp)<<22; binary.BigEndian.Uint32(six) != want {
			t.Errorf("%d: %x, want %x", dscp, six, want)
		}
	}
}
