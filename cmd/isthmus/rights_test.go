// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// nobody is the user that the service stands for in a test.
const nobody = 65534

// asService makes processes start as dist/systemd/isthmus.service starts them: a
// user of its own, five capabilities, the group root, and a part of the BPF file
// system that is bound to /run/isthmus/bpf.
func asService(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	testutil.NeedRoot(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// All of this is in mounts of the tests' own.
	must(unix.Mount("tmpfs", "/dev/net", "tmpfs", 0, "mode=0755"))
	t.Cleanup(func() { must(unix.Unmount("/dev/net", unix.MNT_DETACH)) })
	must(unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))))
	must(os.Chmod("/dev/net/tun", 0o666))
	root := t.TempDir()
	must(unix.Mount("bpf", root, "bpf", 0, "mode=0700"))
	t.Cleanup(func() { must(unix.Unmount(root, unix.MNT_DETACH)) })
	ours := filepath.Join(root, "isthmus-service")
	must(errors.Join(os.Mkdir(ours, 0o700), os.Chown(ours, nobody, nobody)))
	must(os.MkdirAll("/run/isthmus/bpf", 0o755))
	must(unix.Mount(ours, "/run/isthmus/bpf", "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(unix.Unmount("/run/isthmus/bpf", unix.MNT_DETACH)) })

	// The compiled test must be where such a user may run it.
	dir, err := os.MkdirTemp("", "isthmus-service")
	must(err)
	t.Cleanup(func() { must(os.RemoveAll(dir)) })
	self, err := os.Executable()
	must(err)
	program, err := os.ReadFile(self)
	must(err)
	path := filepath.Join(dir, "isthmus")
	must(errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, program, 0o755)))
	return func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = path, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential:  &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{0}},
			AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE, unix.CAP_BPF, unix.CAP_PERFMON},
		}
	}
}

// TestServiceRights has the rights of the service suffice for a fast path that
// survives: to look for what it would skip, to attach, and to take over what a
// process before has left.
func TestServiceRights(t *testing.T) {
	s := newSpan(t)
	service := asService(t)
	dir, err := os.MkdirTemp("", "isthmus-control")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	socket, path := filepath.Join(dir, "control.sock"), filepath.Join(dir, "isthmus.toml")
	text := fmt.Sprintf("[[relay]]\nfast_path_devices = [\"v4\", \"v6\"]\n[control]\nsocket = %q\n", socket)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	m, notify := newManager(t)
	if err := os.Chmod(notify, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{filepath.Dir(notify), filepath.Dir(filepath.Dir(notify))} {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	start := func() *process {
		p := startProcessAs(t, s.relay, notify, service, "run", "-c", path)
		m.expect(t, "READY=1", p)
		return p
	}
	p := start()
	s.establish(t, p)
	end := s.flow(t)
	p.signal(t, syscall.SIGUSR2)
	m.expect(t, "STOPPING=1", p)
	if err := <-p.done; err != nil {
		t.Errorf("%v\n%s", err, p.log())
	}
	p = start()
	if sent, lost := end(); len(lost) > 0 {
		t.Errorf("of %d packets %d are lost, the first of them %v\n%s", sent, len(lost), lost[:min(len(lost), 5)], p.log())
	}
	code, out, errs := call("status", "--socket", socket)
	for _, want := range []string{"tc by v4, v6", "survives a restart", "peers taken over"} {
		if !strings.Contains(out, want) {
			t.Errorf("isthmus status says nothing of %q: %d\n%s%s\n%s", want, code, out, errs, p.log())
		}
	}
	p.signal(t, syscall.SIGTERM)
	m.expect(t, "STOPPING=1", p)
	if err := <-p.done; err != nil {
		t.Errorf("%v\n%s", err, p.log())
	}
	if left, err := os.ReadDir("/run/isthmus/bpf"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
