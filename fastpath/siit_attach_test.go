// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import "testing"

// TestSIITProgramsAttach attaches the programs of a stateless translator by every hook.
func TestSIITProgramsAttach(t *testing.T) {
	for _, row := range everyHook {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			s := loadSIITForTest(t, SIITConfig{Name: "test"})
			a := w.mustAttach(t, s.Programs(), row.config)
			if w.attached(t, only(t, a)) == 0 {
				t.Error("no program is attached")
			}
			w.finish(t, a.Close)
		})
	}
}
