// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"testing"
)

func TestOverlap(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"192.0.2.1:53", "192.0.2.1:53", true},
		{"192.0.2.1:53", "192.0.2.1:54", false},
		{"192.0.2.1:53", "192.0.2.2:53", false},
		{"0.0.0.0:53", "192.0.2.1:53", true},
		{"0.0.0.0:53", "[2001:db8::1]:53", false},
		{"[::]:53", "[2001:db8::1]:53", true},
		{"[::]:53", "192.0.2.1:53", true},
		{"[::]:53", "0.0.0.0:53", true},
		{"0.0.0.0:0", "0.0.0.0:0", false}, // the kernel chooses
	} {
		a, b := netip.MustParseAddrPort(tt.a), netip.MustParseAddrPort(tt.b)
		if overlap(a, b) != tt.want || overlap(b, a) != tt.want {
			t.Errorf("%v and %v overlap: %v and %v, want %v", a, b, overlap(a, b), overlap(b, a), tt.want)
		}
	}
}
