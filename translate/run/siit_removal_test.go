// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
)

func TestSIITIsRestored(t *testing.T) {
	siitInModes(t, modes, func(t *testing.T, w *world, s *SIIT, c SIITSettings) {
		p := newPair(t, w, 4000)
		p.passes(t)
		works := func(t *testing.T) {
			await(t, s, "serving")
			p.passes(t)
		}
		if c.FastPath == fastpath.ModeOff {
			w.gateway.Removes(t, s.device.Name(), works)
		}
		w.gateway.RemovesDevice(t, s.device.Name(), works)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		w.clean(t)
	})
}
