// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"net/netip"
	"testing"
)

func TestBindingAddress(t *testing.T) {
	for _, tt := range []struct {
		address string
		step    BindingStep
		key     uint64
	}{
		{"fe80:0:0:1:1122:3344:5566:7788", BindingChallenge, 0x1122334455667788},
		{"fe80:0:0:2::9", BindingProof, 9},
		{"fe80::1122:3344:5566:7788", NoBindingStep, 0}, // other bubbles of relays
		{"fe80:0:0:3::9", NoBindingStep, 0},
		{"fe80:0:1:2::9", NoBindingStep, 0},
		{"ff02::2", NoBindingStep, 0},
		{"2001:0:0:1::", NoBindingStep, 0},
	} {
		a := netip.MustParseAddr(tt.address)
		b := a.As16()
		step, key := BindingStepOf(&b)
		if step != tt.step || key != tt.key {
			t.Errorf("%s is step %d with key %x", a, step, key)
		}
		if step != NoBindingStep && BindingAddress(step, key) != a {
			t.Errorf("%s comes back as %s", a, BindingAddress(step, key))
		}
	}
}
