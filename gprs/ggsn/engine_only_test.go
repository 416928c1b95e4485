// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestEngineOnly: contexts of an access point that programs know nothing of are not shared, from a change of its settings on.
func TestEngineOnly(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	shared := func(want bool) {
		t.Helper()
		w.up(c, udp4(c.four(), server, 64, 0))
		open := false
		for i := range w.e.shared.Contexts {
			open = open || w.e.shared.Contexts[i].State&1 != 0
		}
		if open != want {
			t.Errorf("a context is shared: %v, want %v", open, want)
		}
	}
	shared(true)
	for _, only := range []bool{true, false} {
		s := w.e.settings
		s.APNs = append([]APN(nil), s.APNs...)
		for i := range s.APNs {
			s.APNs[i].EngineOnly = only
		}
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		shared(!only)
	}
}
