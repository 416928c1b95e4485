// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"testing"
)

// TestServiceUser: the service runs as whom its unit names, and what an operator adds to that.
func TestServiceUser(t *testing.T) {
	const unit, folder = "isthmus.service", "isthmus.service.d/"
	const edit = folder + "override.conf"
	bin, err1 := user.Lookup("bin")
	sys, err2 := user.LookupGroup("sys")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err) // every system of systemd has them
	}
	for _, tt := range []struct {
		name          string
		vendor, local map[string]string // files of units
		user, group   string            // empty: there is none
	}{
		{"a unit", map[string]string{unit: "[Service]\nUser=bin\n"}, nil, "bin", bin.Gid},
		{"an edited one", map[string]string{unit: "[Service]\nUser=daemon\nGroup=daemon\n"}, map[string]string{edit: "[Service]\nUser = bin\nGroup = sys\n"}, "bin", sys.Gid},
		{"one in place of another", map[string]string{unit: "[Service]\nUser=daemon\n"}, map[string]string{unit: "[Service]\nUser=bin\n"}, "bin", bin.Gid},
		{"an edit of the packager's", map[string]string{edit: "[Service]\nUser=bin\n"}, map[string]string{unit: "[Service]\nUser=daemon\n"}, "bin", bin.Gid},
		{"a number", nil, map[string]string{unit: "[Service]\nUser=" + bin.Uid}, "bin", bin.Gid},
		{"one in place of another with a group", map[string]string{unit: "[Service]\nUser=daemon\nGroup=sys\n"}, map[string]string{unit: "[Service]\nUser=bin\n"}, "bin", bin.Gid},
		{"one of root in place of another", map[string]string{unit: "[Service]\nUser=daemon\n"}, map[string]string{unit: "[Service]\n"}, "root", "0"},
		{"no user", map[string]string{unit: "[Service]\nUser=daemon\n"}, map[string]string{edit: "[Service]\nUser=\n"}, "root", "0"},
		{"no group", map[string]string{unit: "[Service]\nUser=bin\nGroup=sys\n"}, map[string]string{edit: "[Service]\nGroup=\n"}, "bin", bin.Gid},
		{"edits by their names", map[string]string{unit: "", folder + "20.conf": "User=bin\n"}, map[string]string{folder + "10.conf": "User=daemon\n"}, "bin", bin.Gid},
		{"an edit in place of another", map[string]string{unit: "User=bin\n", edit: "User=daemon\nGroup=sys\n"}, map[string]string{edit: ""}, "bin", bin.Gid},
		{"no unit", nil, map[string]string{edit: "Group=sys\nUser=bin\n"}, "bin", sys.Gid},
		{"a user that is not there", nil, map[string]string{unit: "[Service]\nUser=no-such-user\n"}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := unitFolders
			t.Cleanup(func() { unitFolders = before })
			unitFolders = []string{t.TempDir(), t.TempDir()}
			for n, files := range []map[string]string{tt.vendor, tt.local} {
				for name, text := range files {
					path := filepath.Join(unitFolders[n], name)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := serviceUser()
			if (got != nil) != (tt.user != "") || got != nil && (got.Username != tt.user || got.Gid != tt.group) {
				t.Errorf("%+v, want %s of the group %s", got, tt.user, tt.group)
			}
		})
	}
}
