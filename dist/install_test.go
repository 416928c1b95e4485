// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package dist_test looks at what `make install` leaves on a machine, by systemd's own
// programs. What the unit makes of a process is tried in cmd/isthmus.
package dist_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// installed installs a stand-in for the program with all that belongs to it, as someone
// whose files are private, and returns the root of that machine.
func installed(t *testing.T, prefix string) string {
	t.Helper()
	source, root := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.CopyFS(filepath.Join(source, "dist"), os.DirFS(".")),
		os.Mkdir(filepath.Join(source, "bin"), 0o755),
		os.WriteFile(filepath.Join(source, "bin/isthmus"), []byte("#!/bin/sh\n"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	makefile, err := filepath.Abs("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	// It compiles nothing: sudo leaves out where Go usually lies, and what root compiles is root's.
	cmd := exec.Command("sh", "-c", `umask 077; exec make -s -f "$1" install DESTDIR="$2" PREFIX="$3"`, "sh", makefile, root, prefix)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	return root
}

// TestInstall looks at every file that is installed.
func TestInstall(t *testing.T) {
	for _, prefix := range []string{"/usr", "/usr/local"} {
		root := installed(t, prefix)
		got := map[string]fs.FileMode{}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			switch name := strings.TrimPrefix(path, root); {
			case err != nil:
				return err
			case !d.IsDir():
				got[name] = info.Mode()
			case name != "" && info.Mode().Perm() != 0o755:
				t.Errorf("%s has the mode %v", name, info.Mode())
			}
			return nil
		})
		want := map[string]fs.FileMode{
			prefix + "/bin/isthmus":                        0o755,
			prefix + "/lib/systemd/system/isthmus.service": 0o644,
			prefix + "/lib/sysusers.d/isthmus.conf":        0o644,
			prefix + "/lib/tmpfiles.d/isthmus.conf":        0o644,
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("installed %v, %v; want %v", got, err, want)
		}
		unit, err := os.ReadFile(filepath.Join(root, prefix, "lib/systemd/system/isthmus.service"))
		if start := "ExecStart=" + prefix + "/bin/isthmus run"; err != nil || !strings.Contains(string(unit), start) {
			t.Errorf("the unit has no %q, %v", start, err)
		}
	}
}

// systemd runs a program of systemd, the machine's own or that of scripts/peers.
func systemd(t *testing.T, program string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("../.cache/peers/bin/" + program)
	}
	switch {
	case err != nil && os.Getenv(testutil.RequireRootEnv) == "1":
		t.Fatalf("%v: make peers fetches it", err)
	case err != nil:
		t.Skip(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=notice")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// write writes files of a machine.
func write(t *testing.T, root string, mode fs.FileMode, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUserAndFolder has the user made of which the unit speaks, and the folder that it
// binds.
func TestUserAndFolder(t *testing.T) {
	testutil.NeedRoot(t)
	root := installed(t, "/usr")
	write(t, root, 0o644, map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\n"})
	systemd(t, "systemd-sysusers", "--root="+root)
	user := line(t, filepath.Join(root, "etc/passwd"), "isthmus")
	if group := line(t, filepath.Join(root, "etc/group"), "isthmus"); user[3] != group[2] || user[6] != "/usr/sbin/nologin" {
		t.Errorf("the user %v has not the group %v, or may log in", user, group)
	}
	systemd(t, "systemd-tmpfiles", "--root="+root, "--create", "isthmus.conf")
	info, err := os.Stat(filepath.Join(root, "sys/fs/bpf/isthmus-service"))
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	// Names are those of this machine's users, if it has such: then it is the number of
	// theirs.
	if info.Mode() != fs.ModeDir|0o700 || owner.Uid == 0 || owner.Gid == 0 {
		t.Errorf("the folder has the mode %v and belongs to %d and %d", info.Mode(), owner.Uid, owner.Gid)
	}
}

// line is that of a name, in its fields.
func line(t *testing.T, path, name string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSpace(l), ":"); fields[0] == name {
			return fields
		}
	}
	t.Fatalf("%s has no %s:\n%s", path, name, text)
	return nil
}

// TestUnit has systemd read the unit, with the units that it refers to and that every
// machine has.
func TestUnit(t *testing.T) {
	root := installed(t, "/usr")
	units := map[string]string{}
	for _, name := range []string{"sysinit", "basic", "shutdown", "network-online", "multi-user"} {
		units["usr/lib/systemd/system/"+name+".target"] = "[Unit]\nDefaultDependencies=no\n"
	}
	write(t, root, 0o644, units)
	write(t, root, 0o755, map[string]string{"bin/kill": "#!/bin/sh\n"})
	if said := systemd(t, "systemd-analyze", "verify", "--man=no", "--root="+root, "isthmus.service"); said != "" {
		t.Errorf("systemd says:\n%s", said)
	}
	unit := filepath.Join(root, "usr/lib/systemd/system/isthmus.service")
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	// It does look.
	write(t, root, 0o644, map[string]string{"usr/lib/systemd/system/isthmus.service": strings.Replace(string(text), "NoNewPrivileges=yes", "NoNewPrivilege=yes", 1)})
	if said := systemd(t, "systemd-analyze", "verify", "--man=no", "--root="+root, "isthmus.service"); !strings.Contains(said, "NoNewPrivilege") {
		t.Errorf("systemd says nothing of a directive that is none:\n%s", said)
	}
}
