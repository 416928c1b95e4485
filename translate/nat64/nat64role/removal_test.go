// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/translate/ftpalg/ftptest"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestIsRestored removes what a translator has set up, with the engine alone and with
// programs, and sessions and FTP gateway go on.
func TestIsRestored(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		c.FTP = true
		server := ftptest.Start(t, w.Four, peers.Vsftpd{Address: gatewaytest.FourAddr})
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 4000)
		f.passes(t)
		works := func(t *testing.T) {
			gatewaytest.Await(t, n, "serving")
			f.passes(t)
		}
		if c.FastPath == fastpath.ModeOff { // programs make no difference to routes
			w.Gateway.Removes(t, n.device.Name(), works)
		}
		w.Gateway.RemovesDevice(t, n.device.Name(), works)
		server.Try(t, w.Six, ftpServer, ftptest.Transfer{Program: "tnftp"})
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.Clean(t)
	})
}
