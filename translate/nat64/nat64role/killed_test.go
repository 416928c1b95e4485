// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"errors"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestKilledWhileStarting has a process killed between making its tables and moving the
// file of sessions into them: the next one moves it.
func TestKilledWhileStarting(t *testing.T) {
	for _, tt := range []struct {
		name   string
		killed func(t *testing.T, kept *memory, tables state.Memory) // nil: before it began
	}{
		{"before anything is copied", nil},
		{"while it is copied", func(t *testing.T, kept *memory, tables state.Memory) {
			for name, slab := range tables {
				if name != state.SlabHead {
					copy(slab[:len(slab)/2], kept.slabs[name])
				}
			}
		}},
		{"before the file is dropped", func(t *testing.T, kept *memory, tables state.Memory) { kept.slabs.CopyTo(tables) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, c := gatewaytest.NewWorld(t), testSettings(t)
			c.FastPath, c.Name = fastpath.ModeTC, "nat64.killed"
			start(t, w, c).attached(t, c.FastPath)
			f := newFlow(t, w, 7000)
			if err := w.Stop(); err != nil {
				t.Fatal(err)
			}
			w.Gateway.Do(t, func() error {
				pins, err := pinned.Open(driver.PinName(c.Name))
				if err != nil {
					return err
				}
				z := sizesOf(&c)
				table, err := nat64bpf.Load(nat64bpf.Config{Name: c.Name, Sizes: z, Pins: pins})
				if err != nil {
					return err
				}
				if tt.killed != nil {
					kept, err := fileMemory(c.StateFile, z, false)
					if err != nil {
						return err
					}
					err = pins.SetNote(numbering, kept.note())
					tt.killed(t, kept, table.Memory())
					if err := errors.Join(err, kept.free()); err != nil {
						return err
					}
				}
				return errors.Join(table.Close(), pins.Close())
			})
			if n := start(t, w, c); n.adopted != 1 {
				t.Errorf("%d sessions taken over, want 1", n.adopted)
			}
			f.four.Send(t, f.pool, "back")
			f.six.Wants(t, "back", 63)
			f.passes(t)
		})
	}
}
