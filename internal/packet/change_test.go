// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import "testing"

// TestRFC1624 has the example of RFC 1624 section 4: a field changes from 0x5555 to
// 0x3285, the checksum from 0xdd2f to 0x0000, where the older equation gives 0xffff.
func TestRFC1624(t *testing.T) {
	field := []byte{0xdd, 0x2f}
	Change(0).Gone(0x5555).Word(0x3285).Update(field)
	if field[0] != 0 || field[1] != 0 {
		t.Errorf("checksum %x, want 0000", field)
	}
	field = []byte{0xdd, 0x2f}
	Change(0).Swap([]byte{0x55, 0x55}, []byte{0x32, 0x85}).Update(field)
	if field[0] != 0 || field[1] != 0 {
		t.Errorf("checksum by swap %x, want 0000", field)
	}
}
