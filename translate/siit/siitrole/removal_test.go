// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

func TestIsRestored(t *testing.T) {
	inModes(t, gatewaytest.Modes, func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings) {
		p := newPair(t, w, 4000)
		p.passes(t)
		works := func(t *testing.T) {
			gatewaytest.Await(t, s, "serving")
			p.passes(t)
		}
		if c.FastPath == fastpath.ModeOff {
			w.Gateway.Removes(t, s.device.Name(), works)
		}
		w.Gateway.RemovesDevice(t, s.device.Name(), works)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.Clean(t)
	})
}
