// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// TestResolvConf writes the name servers, and puts back what there was: at its end, or after a
// crash at the end of the next one. What a link led to is never touched.
func TestResolvConf(t *testing.T) {
	const (
		host = "nameserver 192.0.2.99\n"
		want = resolvMark + "nameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch lab.example example.com\n"
	)
	servers := []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}
	for _, row := range []struct {
		name   string
		before func(path, elsewhere string) error // nil: there is no folder
		link   bool
	}{
		{"no folder", nil, false},
		{"a file", func(path, _ string) error { return os.WriteFile(path, []byte(host), 0o644) }, false},
		{"a link to the host's own", func(path, elsewhere string) error { return os.Symlink(elsewhere, path) }, true},
	} {
		for _, crashes := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("%s, %d crashes", row.name, crashes), func(t *testing.T) {
				dir := t.TempDir()
				folder, elsewhere := filepath.Join(dir, "ue"), filepath.Join(dir, "resolv.conf")
				path := filepath.Join(folder, "resolv.conf")
				mustDo(t, os.WriteFile(elsewhere, []byte(host), 0o644))
				if row.before != nil {
					mustDo(t, os.Mkdir(folder, 0o755))
					mustDo(t, row.before(path, elsewhere))
				}
				r := resolvers(t, folder)
				mustDo(t, r.write(nil, nil))
				if r.written {
					t.Error("it writes what is not known")
				}
				if _, err := openResolvConf(folder); err == nil {
					t.Error("the file has two owners")
				}
				for range crashes {
					mustDo(t, r.write(servers, []string{"lab.example", "example.com"}))
					mustDo(t, r.lock.Close()) // as the kernel does with a program that is killed
					r = resolvers(t, folder)
				}
				for range 2 {
					mustDo(t, r.write(servers, []string{"lab.example", "example.com"}))
				}
				holds(t, path, want)
				holds(t, elsewhere, host)
				mustDo(t, r.restore())
				left, _ := os.ReadDir(folder)
				if row.before == nil {
					if _, err := os.Lstat(path); err == nil {
						t.Error("a file is left")
					}
					if _, err := os.Stat(folder); crashes == 0 && err == nil {
						t.Error("the folder is left")
					}
					return
				}
				holds(t, path, host)
				if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() == row.link || len(left) != 1 {
					t.Errorf("left %v, %v, %v", info, left, err)
				}
			})
		}
	}
}

// TestResolvConfOfOthers leaves a file alone that somebody has put in the place of ours.
func TestResolvConfOfOthers(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "resolv.conf")
	r := resolvers(t, folder)
	mustDo(t, r.write([]netip.Addr{netip.MustParseAddr("192.0.2.53")}, nil))
	mustDo(t, os.WriteFile(path, []byte("nameserver 192.0.2.1\n"), 0o644))
	mustDo(t, r.restore())
	holds(t, path, "nameserver 192.0.2.1\n")
}

// resolvers takes the file of a folder.
func resolvers(t *testing.T, folder string) *resolvConf {
	t.Helper()
	r, err := openResolvConf(folder)
	mustDo(t, err)
	return r
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// holds fails unless a file has that text.
func holds(t *testing.T, path, text string) {
	t.Helper()
	if got, err := os.ReadFile(path); string(got) != text || err != nil {
		t.Errorf("%s has %q, %v", path, got, err)
	}
}
