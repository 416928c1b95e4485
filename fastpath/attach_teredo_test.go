// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import "testing"

// TestTeredoProgramsAttach attaches the relay's own programs by every hook, and
// lets a successor put its own into their place.
func TestTeredoProgramsAttach(t *testing.T) {
	for _, row := range everyHook {
		t.Run(row.name, func(t *testing.T) {
			root := mountBPFFS(t)
			w := newWire(t)
			before := 0
			for generation := range 3 {
				pins := w.openPins(t, root)
				table, err := LoadTeredo(TeredoConfig{Name: "test", Buckets: 64, Foreign: 16, Pins: pins})
				if err != nil {
					t.Fatal(err)
				}
				if table.Adopted() != (generation > 0) {
					t.Errorf("generation %d adopted tables: %t", generation, table.Adopted())
				}
				o := row.config
				o.Pins = pins
				a := w.mustAttach(t, table.Programs(), o)
				program := w.attached(t, only(t, a))
				if program == 0 || program == before {
					t.Errorf("generation %d: program %d is attached, before it was %d", generation, program, before)
				}
				before = program
				if generation < 2 {
					w.finish(t, a.Leave)
				} else {
					w.finish(t, a.Close)
				}
				if err := table.Close(); err != nil {
					t.Error(err)
				}
				if err := pins.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// attached returns the number of the one program that is where a report says.
func (w *wire) attached(t *testing.T, r DeviceReport) int {
	t.Helper()
	found := 0
	w.near.Do(t, func() error {
		d, err := deviceAt(r.Index)
		if err != nil {
			return err
		}
		d.look(nobody)
		switch {
		case r.Hook == HookXDP && d.xdp != nil && d.xdp.mode == "native":
			found = int(d.xdp.id)
		case r.Hook != HookXDP && len(d.ingress) == 1:
			found = int(d.ingress[0].id)
		default:
			t.Errorf("%s has the XDP program %v and the tc programs %v", d.name, d.xdp, d.ingress)
		}
		return nil
	})
	return found
}
