// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"testing"
)

func TestOverlap(t *testing.T) {
	for _, tt := range []struct {
		a, b  string
		want  bool
		only6 bool
	}{
		{a: "192.0.2.1:53", b: "192.0.2.1:53", want: true},
		{a: "192.0.2.1:53", b: "192.0.2.1:54"},
		{a: "192.0.2.1:53", b: "192.0.2.2:53"},
		{a: "0.0.0.0:53", b: "192.0.2.1:53", want: true},
		{a: "0.0.0.0:53", b: "[2001:db8::1]:53"},
		{a: "[::]:53", b: "[2001:db8::1]:53", want: true},
		{a: "[::]:53", b: "192.0.2.1:53", want: true},
		{a: "[::]:53", b: "0.0.0.0:53", want: true},
		{a: "[::]:53", b: "192.0.2.1:53", only6: true},
		{a: "[::]:53", b: "0.0.0.0:53", only6: true},
		{a: "[::]:53", b: "[2001:db8::1]:53", want: true, only6: true},
		{a: "0.0.0.0:0", b: "0.0.0.0:0"}, // the kernel chooses
	} {
		a, b := Socket{At: netip.MustParseAddrPort(tt.a), Only6: tt.only6}, Socket{At: netip.MustParseAddrPort(tt.b)}
		if a.overlaps(&b) != tt.want || b.overlaps(&a) != tt.want {
			t.Errorf("%+v and %+v overlap: %v and %v, want %v", a, b, a.overlaps(&b), b.overlaps(&a), tt.want)
		}
	}
}
