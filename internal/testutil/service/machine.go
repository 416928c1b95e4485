// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// id is the number of the user and of the group that a unit names.
const id = 990

// Machine is what a service finds when it starts, and what outlives it: folders below
// Dir, of which the test sees and changes what it wants.
type Machine struct {
	Dir     string // with etc, run, var/lib and bpf, the BPF file system
	sandbox *Sandbox
	job     string
}

// enterEnv names the file from which a process learns what to become.
const enterEnv = "ISTHMUS_TEST_SERVICE"

// job is what a process is to become.
type job struct {
	Machine string
	Sandbox *Sandbox
	Program string
}

// NewMachine makes a machine on which a program, a unit and its tmpfiles are installed. It
// needs root, and mounts that are the test's own.
func NewMachine(t testing.TB, program, unit, tmpfiles string) *Machine {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lines, err := Read(unit)
	must(err)
	m := &Machine{}
	m.sandbox, err = New(lines)
	must(err)
	// Short, for the paths of sockets are.
	m.Dir, err = os.MkdirTemp("", "machine")
	must(err)
	t.Cleanup(func() { must(os.RemoveAll(m.Dir)) })
	for _, folder := range []string{"bpf", "root", "etc", "run/systemd", "run/user", "var/lib"} {
		must(os.MkdirAll(filepath.Join(m.Dir, folder), 0o755))
	}
	must(unix.Mount("bpf", m.path("bpf"), "bpf", 0, "mode=0700"))
	t.Cleanup(func() { must(unix.Unmount(m.path("bpf"), unix.MNT_DETACH)) })
	must(m.folders(tmpfiles))
	for file, text := range map[string]string{
		"etc/passwd":      fmt.Sprintf("root:x:0:0::/:/bin/sh\n%s:x:%d:%d::/:/bin/false\n", m.sandbox.User, id, id),
		"etc/group":       fmt.Sprintf("root:x:0:\n%s:x:%d:\n", m.sandbox.Group, id),
		"etc/resolv.conf": "",
	} {
		must(os.WriteFile(m.path(file), []byte(text), 0o644))
	}
	for parent, f := range map[string]Folder{"run": m.sandbox.Runtime, "var/lib": m.sandbox.State, "etc": m.sandbox.Configuration} {
		if f.Name == "" {
			continue
		}
		path := m.path(parent, f.Name)
		must(errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, f.Mode)))
		if parent != "etc" { // the configuration is root's
			must(os.Chown(path, id, id))
		}
	}
	m.job = m.path("job")
	text, err := json.Marshal(job{m.Dir, m.sandbox, program})
	must(err)
	must(os.WriteFile(m.job, text, 0o600))
	return m
}

func (m *Machine) path(elements ...string) string {
	return filepath.Join(append([]string{m.Dir}, elements...)...)
}

// Write writes a file of the configuration as an operator would: the service may read
// it, and no one else.
func (m *Machine) Write(t testing.TB, name, text string) {
	t.Helper()
	path := m.path("etc", m.sandbox.Configuration.Name, name)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o640), os.Chown(path, 0, id)); err != nil {
		t.Fatal(err)
	}
}

// Run is the folder of the service's sockets.
func (m *Machine) Run() string { return m.path("run", m.sandbox.Runtime.Name) }

// NotifySocket is where the service tells its manager of its state.
func (m *Machine) NotifySocket() string { return m.path("run/systemd/notify") }

// Start changes a command that runs this test program to one that becomes the service
// first, with some variables beside those of a manager.
func (m *Machine) Start(cmd *exec.Cmd, env ...string) {
	cmd.Args = append([]string{cmd.Path}, m.sandbox.Exec[1:]...)
	cmd.Dir = "/"
	cmd.Env = append([]string{
		enterEnv + "=" + m.job,
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "USER=" + m.sandbox.User, "LOGNAME=" + m.sandbox.User,
		"NOTIFY_SOCKET=/run/systemd/notify",
		"RUNTIME_DIRECTORY=/run/" + m.sandbox.Runtime.Name, "STATE_DIRECTORY=/var/lib/" + m.sandbox.State.Name,
		"CONFIGURATION_DIRECTORY=/etc/" + m.sandbox.Configuration.Name,
	}, env...)
	flags := uintptr(unix.CLONE_NEWNS)
	if m.sandbox.OwnName {
		flags |= unix.CLONE_NEWUTS
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
}

// folders makes what the lines of a file for systemd-tmpfiles name in the BPF file
// system.
func (m *Machine) folders(tmpfiles string) error {
	text, err := os.ReadFile(tmpfiles)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		var of Folder
		name, inside := "", len(f) == 6 && f[0] == "d"
		if inside {
			name, inside = strings.CutPrefix(f[1], "/sys/fs/bpf/")
		}
		if !inside || f[3] != m.sandbox.User || f[4] != m.sandbox.Group || f[5] != "-" {
			return fmt.Errorf("%s: %q is not a folder of the service in the BPF file system", tmpfiles, line)
		}
		if err := of.mode(f[2]); err != nil {
			return err
		}
		path := m.path("bpf", name)
		if err := errors.Join(os.Mkdir(path, of.Mode), os.Chown(path, id, id)); err != nil {
			return err
		}
	}
	return nil
}
