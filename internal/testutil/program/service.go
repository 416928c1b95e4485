// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

// Service is what a process of the packaged service needs around it: a machine of its own,
// on which it runs with the rights of dist/systemd/isthmus.service and no more.
type Service struct {
	Manager Manager
	Machine *service.Machine
	Socket  string // of its control
	ns      *testutil.Netns
}

// UnitFile is the unit as it is installed.
func UnitFile(t testing.TB) string { return dist(t, "systemd/isthmus.service") }

// dist is where a file lies that is installed beside the program.
func dist(t testing.TB, name string) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "dist", name)
}

// NewService has a machine with a configuration, in a network namespace. TestMain calls
// [service.Enter] before all else.
func NewService(t *testing.T, ns *testutil.Netns, text string) *Service {
	t.Helper()
	return NewServiceOf(t, UnitFile(t), ns, text)
}

// NewServiceOf is NewService with another unit.
func NewServiceOf(t *testing.T, unit string, ns *testutil.Netns, text string) *Service {
	t.Helper()
	testutil.NeedRoot(t)
	m := service.NewMachine(t, Path(t), unit, dist(t, "tmpfiles.d/isthmus.conf"))
	m.Write(t, "isthmus.toml", text)
	s := &Service{Machine: m, ns: ns, Socket: filepath.Join(m.Run(), "control.sock")}
	s.Manager = listen(t, m.NotifySocket())
	if err := os.Chmod(m.NotifySocket(), 0o777); err != nil {
		t.Fatal(err)
	}
	return s
}

// Start starts the service, and returns when it serves.
func (s *Service) Start(t *testing.T) *Process {
	t.Helper()
	self, err := os.Executable() // it becomes the service
	if err != nil {
		t.Fatal(err)
	}
	p := StartAs(t, s.ns, "", func(cmd *exec.Cmd) {
		cmd.Path = self
		s.Machine.Start(cmd, As("1"))
	})
	s.Manager.Expect(t, "READY=1", p)
	return p
}

// Stop ends the service by a signal.
func (s *Service) Stop(t *testing.T, p *Process, how syscall.Signal) {
	t.Helper()
	s.Manager.End(t, p, how)
}

// End stops the service for good: it has had nothing to complain of, and leaves nothing.
func (s *Service) End(t *testing.T, p *Process) {
	t.Helper()
	s.Stop(t, p, syscall.SIGTERM)
	if strings.Contains(p.Log(), "level=WARN") || strings.Contains(p.Log(), "level=ERROR") {
		t.Errorf("warnings:\n%s", p.Log())
	}
	left, err := os.ReadDir(filepath.Join(s.Machine.Dir, "bpf/isthmus-service"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
