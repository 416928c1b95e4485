// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// TestParseLease reads what a DHCP server answers.
func TestParseLease(t *testing.T) {
	const transaction = 0x01020304
	answer := func(options ...byte) []byte {
		b := make([]byte, dhcpFixed)
		b[0] = 2
		binary.BigEndian.PutUint32(b[4:], transaction)
		copy(b[16:], []byte{10, 45, 0, 1})
		binary.BigEndian.PutUint32(b[236:], dhcpCookie)
		return append(b, options...)
	}
	mask, router := []byte{1, 4, 255, 255, 255, 252}, []byte{3, 4, 10, 45, 0, 2}
	given := append(append([]byte{0, 53, 1, dhcpAck}, mask...), append(router, 255)...)
	other := answer(given...)
	other[7]++
	for _, row := range []struct {
		name string
		b    []byte
		ok   bool
	}{
		{"acknowledgement", answer(given...), true},
		{"without an end", answer(given[:len(given)-1]...), true},
		{"an offer", answer(append([]byte{53, 1, 2}, router...)...), false},
		{"no router", answer(53, 1, dhcpAck, 255), false},
		{"of another question", other, false},
		{"an option that is cut short", answer(append(given[:len(given)-1:len(given)-1], 6, 9, 1)...), false},
		{"no options", answer(), false},
		{"cut short", answer()[:100], false},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, ok := parseLease(row.b, transaction)
			if ok != row.ok {
				t.Fatalf("%+v, %v", l, ok)
			}
			if ok && (l.Addr != netip.MustParsePrefix("10.45.0.1/30") || l.Router != netip.MustParseAddr("10.45.0.2")) {
				t.Errorf("%+v", l)
			}
		})
	}
}

// FuzzLease has the reader take anything.
func FuzzLease(f *testing.F) {
	b := make([]byte, dhcpFixed, dhcpFixed+20)
	b[0] = 2
	binary.BigEndian.PutUint32(b[236:], dhcpCookie)
	f.Add(append(b, 53, 1, dhcpAck, 1, 4, 255, 255, 255, 252, 3, 4, 10, 45, 0, 2, 255))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, ok := parseLease(b, 0); ok && (!l.Addr.IsValid() || !l.Router.Is4()) {
			t.Errorf("%+v", l)
		}
	})
}
