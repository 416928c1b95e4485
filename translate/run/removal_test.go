// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/translate/ftpalg/ftptest"
)

// stateOf is the state of a translator, with what it says is missing.
func stateOf(i role.Instance) (state string, missing []string) {
	switch st := i.Status().(type) {
	case NAT64Status:
		return st.State, st.Missing
	case SIITStatus:
		return st.State, st.Missing
	}
	return "", nil
}

// await waits for a state, and returns what is missing then.
func await(t *testing.T, i role.Instance, want string) []string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		state, missing := stateOf(i)
		if state == want {
			return missing
		}
		if time.Now().After(end) {
			t.Fatalf("the state is %s, want %s; missing: %q", state, want, missing)
		}
	}
}

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
			w.gateway.Removes(t, n.device.name, works)
		}
		w.gateway.RemovesDevice(t, n.device.name, works)
		server.Try(t, w.six, ftpServer, ftptest.Transfer{Program: "tnftp"})
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		w.clean(t)
	})
}

func TestSIITIsRestored(t *testing.T) {
	siitInModes(t, modes, func(t *testing.T, w *world, s *SIIT, c SIITSettings) {
		p := newPair(t, w, 4000)
		p.passes(t)
		works := func(t *testing.T) {
			await(t, s, "serving")
			p.passes(t)
		}
		if c.FastPath == fastpath.ModeOff {
			w.gateway.Removes(t, s.device.name, works)
		}
		w.gateway.RemovesDevice(t, s.device.name, works)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		w.clean(t)
	})
}
