// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/sip/aka"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// TestKilled kills the process again and again: bindings are there afterwards, terminals on
// connections are called by their contacts, and no number of a SIM is used twice.
func TestKilled(t *testing.T) {
	configtest.InEffect(t, "registrar", "keep_state", "state_file")
	w := newWorld(t)
	manager, notify := program.NewManager(t)
	control := filepath.Join(w.dir, "control")
	path := program.File(t, w.text("")+"[control]\nsocket = \""+control+"\"\n")
	var window aka.Window
	for round, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		p := manager.Serve(t, w.ns, notify, path)
		sim := w.phone("sim@example.net", "UDP", server6, 1)
		sim.sim(&window)
		for range 3 {
			sim.mustRegister()
		}
		if round == 0 {
			w.phone("bob", "UDP", server4, 2).mustRegister()
			w.phone("alice", "TCP", server6, 3).mustRegister()
		}
		program.Commands(t, control,
			program.Row{Args: "registrar bindings", Want: "sip:bob@192.0.2.2:"},
			program.Row{Args: "registrar bindings --address alice@example.net", Want: "transport=tcp"},
			program.Row{Args: "registrar bindings --json --address sim@example.net", Want: `"address":"sip:sim@example.net"`},
			program.Row{Args: "status", Want: "serving"},
		)
		manager.End(t, p, how)
	}
	if info, err := os.Stat(w.path("state")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the state: %v, %v", info, err)
	}
	// Without keep_state a server begins with nothing.
	s := w.serve("keep_state = false")
	if list := s.has(t, ""); len(list) != 0 {
		t.Errorf("without keep_state there are %+v", list)
	}
}

// TestDisk tells when what should outlive the process cannot be written, and goes on.
func TestDisk(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	if got := s.Status().(Status); got.State != "serving" || len(got.Listen) != 2 || got.MaxBindings != 100_000 {
		t.Errorf("%+v", got)
	}
	other := w.settings("")
	if _, err := New(other, s.log); err != nil {
		t.Fatal(err)
	}
	second, err := New(other, s.log)
	if err != nil {
		t.Fatal(err)
	}
	w.ns.Do(t, func() error {
		if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("a second process with the same state: %v", err)
		}
		return nil
	})
}
