// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import "testing"

// TestNAT64ProgramsAttach attaches the programs of a NAT64 by every hook, with the one
// that steers behind them, and lets a successor put its own into their place.
func TestNAT64ProgramsAttach(t *testing.T) {
	for _, row := range everyHook {
		t.Run(row.name, func(t *testing.T) {
			root := mountBPFFS(t)
			w := newWire(t)
			for generation := range 2 {
				pins := w.openPins(t, root)
				var steering *Pins
				w.near.Do(t, func() (err error) {
					steering, err = OpenPinsAt(root, "test_steer")
					return err
				})
				n, err := LoadNAT64(NAT64Config{Name: "test", Sizes: someSizes, Pins: pins})
				if err != nil {
					t.Fatal(err)
				}
				if n.Adopted() != (generation > 0) {
					t.Errorf("generation %d adopted tables: %t", generation, n.Adopted())
				}
				o := row.config
				o.Pins = pins
				a := w.mustAttach(t, n.Programs(), o)
				steer := AttachConfig{Name: "test_steer", Mode: ModeTC, Classic: o.Classic, Pins: steering}
				b := w.mustAttach(t, n.SteerPrograms(), steer)
				if r := only(t, a); r.Hook == HookNone {
					t.Errorf("generation %d: %+v", generation, r)
				}
				if r := only(t, b); r.Hook != HookTCX && r.Hook != HookClassic {
					t.Errorf("generation %d: what steers is at %s", generation, r.Hook)
				}
				w.near.Do(t, func() error {
					d, err := deviceAt(only(t, b).Index)
					if err != nil {
						return err
					}
					d.look(nobody)
					want := 2
					if row.config.Mode == ModeXDP {
						want = 1
					}
					if len(d.ingress) != want {
						t.Errorf("generation %d: at tc ingress are %v", generation, d.ingress)
					}
					return nil
				})
				end := []func() error{a.Leave, b.Leave}
				if generation == 1 {
					end = []func() error{a.Close, b.Close}
				}
				for _, f := range end {
					w.finish(t, f)
				}
				for _, f := range []func() error{n.Close, pins.Close, steering.Close} {
					if err := f(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}
