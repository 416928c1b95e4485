// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/kept"
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

// TestTwoProcesses has one process at a time with a state.
func TestTwoProcesses(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	second, err := New(s.cfg, s.log)
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

// TestFullDisk goes on while nothing can be kept, and says so; when there is room again, all is kept
// that there is.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	disk := w.path("disk")
	if err := errors.Join(os.Mkdir(disk, 0o755), unix.Mount("tmpfs", disk, "tmpfs", 0, "size=16k")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	lines := fmt.Sprintf("state_file = %q\nbindings_per_address = 60\nmax_bindings = 1000", filepath.Join(disk, "state"))
	s := w.serve(lines)
	state := func() string { return s.Status().(Status).State }
	if got := s.Status().(Status); got.State != "serving" || len(got.Listen) != 2 || got.MaxBindings != 1000 || got.Trouble != "" {
		t.Errorf("%+v", got)
	}
	bob := w.phone("bob", "UDP", server6, 2)
	const contacts = 55
	for i := range contacts {
		if i == contacts/2 { // whose record gives way to those that follow
			w.phone("alice", "UDP", server6, 1).mustRegister()
		}
		bob.mustRegister(fmt.Sprintf("Contact: <sip:bob@[2001:db8::3]:%d;p=%s>", 6000+i, strings.Repeat("x", 600)))
	}
	eventually(t, "the disk is full", func() bool { return state() == "not_kept" })
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is room", func() bool { return state() == "serving" })
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = w.serve(lines)
	if bobs, alices := len(s.has(t, "bob@example.net")), len(s.has(t, "alice@example.net")); bobs != contacts+1 || alices != 1 {
		t.Errorf("%d and %d bindings are kept, want %d and 1", bobs, alices, contacts+1)
	}
}

// TestSkippedNumbersStay: the sequence numbers that a crash may have used are left out for good, also where the process
// behind it cannot open its sockets and ends at once.
func TestSkippedNumbersStay(t *testing.T) {
	w := newWorld(t)
	const key = "sqn sim@example.net"
	cfg := w.settings(fmt.Sprintf("state_file = %q", w.path("state")))
	j, _, err := kept.OpenJournal(w.path("other"))
	if err != nil {
		t.Fatal(err)
	}
	j.Put(key, []byte("6400"))
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadFile(w.path("other")) // as of a process that was killed
	if err != nil {
		t.Fatal(err)
	}
	w.file("state", string(left))
	r, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.openState(listeners(&cfg)), r.closeState(), j.Close()); err != nil {
		t.Fatal(err)
	}
	j, records, err := kept.OpenJournal(w.path("state"))
	if err != nil {
		t.Fatal(err)
	}
	if number, _ := strconv.Atoi(string(records[key])); number <= 6400 {
		t.Errorf("the next process begins at %d", number)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
