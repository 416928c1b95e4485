// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/translate/ftpalg/ftptest"
)

// TestNAT64IsRestored removes what a translator has set up, with the engine alone and with
// programs, and sessions and FTP gateway go on.
func TestNAT64IsRestored(t *testing.T) {
	inModes(t, func(t *testing.T, w *world, c NAT64Settings) {
		c.FTP = true
		server := ftptest.Start(t, w.four, peers.Vsftpd{Address: fourAddr})
		n := startNAT64(t, w, c)
		n.attached(t, c.FastPath)
		f := newFlow(t, w, 4000)
		f.passes(t)
		works := func(t *testing.T) {
			await(t, n, "serving")
			f.passes(t)
		}
		if c.FastPath == fastpath.ModeOff { // programs make no difference to routes
			w.gateway.Removes(t, n.device.Name(), works)
		}
		w.gateway.RemovesDevice(t, n.device.Name(), works)
		server.Try(t, w.six, ftpServer, ftptest.Transfer{Program: "tnftp"})
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		w.clean(t)
	})
}
