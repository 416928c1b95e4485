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
	r := newServiceRig(t, "[[relay]]\nfast_path_devices = [\"v4\", \"v6\"]\n")
	m, notify, socket, path := r.manager, r.notify, r.socket, r.path
	start := func() *process {
		p := startProcessAs(t, s.relay, notify, service, "run", "-c", path)
		m.expect(t, "READY=1", p)
		return p
	}
	p := start()
	s.establish(t, p)
	end := s.flow(t, 1)
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

// serviceRig is what a process of the service needs around it.
type serviceRig struct {
	manager              manager
	notify, socket, path string
}

// newServiceRig has a configuration that the service's user may read, with a control
// socket that it may make.
func newServiceRig(t *testing.T, text string) *serviceRig {
	t.Helper()
	dir, err := os.MkdirTemp("", "isthmus-control")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	r := &serviceRig{socket: filepath.Join(dir, "control.sock"), path: filepath.Join(dir, "isthmus.toml")}
	text = strings.ReplaceAll(text, "DIR", dir) + fmt.Sprintf("[control]\nsocket = %q\n", r.socket)
	if err := os.WriteFile(r.path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r.manager, r.notify = newManager(t)
	if err := os.Chmod(r.notify, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{filepath.Dir(r.notify), filepath.Dir(filepath.Dir(r.notify))} {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestServiceRightsNAT64 has them suffice for a NAT64 on the host's own address, with its
// fast path, the announcement of its prefix, and the FTP gateway.
func TestServiceRightsNAT64(t *testing.T) {
	g := newGate(t)
	service := asService(t)
	r := newServiceRig(t, `
[[nat64]]
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.3 20000-29999", "192.0.2.64"]
fast_path = "tc"
ftp = true
announce_pref64 = ["v6"]
state_file = "DIR/state"
`)
	start := func() *process {
		p := startProcessAs(t, g.gateway, r.notify, service, "run", "-c", r.path)
		r.manager.expect(t, "READY=1", p)
		return p
	}
	p := start()
	seen := g.passes(t, p)
	for _, how := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGTERM} {
		p.signal(t, how)
		r.manager.expect(t, "STOPPING=1", p)
		if err := <-p.done; err != nil {
			t.Errorf("after %v: %v\n%s", how, err, p.log())
		}
		p = start()
		if again := g.passes(t, p); again != seen {
			t.Errorf("after %v four saw %s, before %s\n%s", how, again, seen, p.log())
		}
	}
	p.signal(t, syscall.SIGTERM)
	r.manager.expect(t, "STOPPING=1", p)
	if err := <-p.done; err != nil {
		t.Errorf("%v\n%s", err, p.log())
	}
	if strings.Contains(p.log(), "level=WARN") {
		t.Errorf("warnings:\n%s", p.log())
	}
	if left, err := os.ReadDir("/run/isthmus/bpf"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
