// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/server"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestReadKeys(t *testing.T) {
	const one = "[[key]]\nid = \"north\"\nsecret = \"" + teredotest.Secret + "\"\n"
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		want       []*Key
		err        string // part of it
	}{
		{"of its owner", one, 0o600, []*Key{{ID: "north", Secret: teredotest.Secret}}, ""},
		{"of a group", one, 0o640, []*Key{{ID: "north", Secret: teredotest.Secret}}, ""},
		{"empty", "", 0o600, nil, ""},
		{"readable by all", one, 0o644, nil, "run chmod 640"},
		{"writable by the group", one, 0o660, nil, "run chmod 640"},
		{"twice the same client", one + one, 0o600, nil, `:5:6: key.id: "north" has a key already`},
		{"no secret", "[[key]]\nid = \"north\"\n", 0o600, nil, ":1:3: key: this key has no secret"},
		{"another section", "[[teredo_server]]\n", 0o600, nil, "no such"},
		{"no TOML", "north: secret\n", 0o600, nil, "this is not TOML"},
		{"too large", strings.Repeat("#", 16<<20+1), 0o600, nil, "is larger"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readKeys(teredotest.File(t, tt.text, tt.mode))
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got, configtest.Same); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		if _, err := readKeys(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "there is no file") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a folder", func(t *testing.T) {
		if _, err := readKeys(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is no file") {
			t.Errorf("error %v", err)
		}
	})
}

// TestKeysOfSectionAndFile gives a server keys that it cannot have together: the check of the
// configuration says so, and no reload takes them.
func TestKeysOfSectionAndFile(t *testing.T) {
	lines := func(id string) string { return "id = \"" + id + "\"\nsecret = \"" + teredotest.Secret + "\"\n" }
	for _, tt := range []struct {
		name, file string
		more       int // keys in the section
		err        string
	}{
		{"different ones", "south", 0, ""},
		{"the same client", "north", 0, `two keys for the client "north"`},
		{"too many", "south", server.MaxKeys - 1, "at most 65536"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := teredotest.File(t, "[[key]]\n"+lines(tt.file), 0o600)
			text := "[[teredo_server]]\naddress = \"203.0.113.1\"\nkeys_file = \"" + file + "\"\n[[teredo_server.key]]\n" + lines("north")
			c, err := role.List{Role}.Parse(strings.NewReader(text), "isthmus.toml")
			if err != nil {
				t.Fatal(err)
			}
			s := c.Instances[0].Settings.(*Settings)
			for i := range tt.more {
				s.Keys = append(s.Keys, Key{ID: strconv.Itoa(i), Secret: teredotest.Secret})
			}
			var found string
			for _, f := range (role.List{Role}).Files(c.Instances[0]) {
				found += f.Text
			}
			if (found == "") != (tt.err == "") || !strings.Contains(found, tt.err) {
				t.Errorf("found %q, want %q", found, tt.err)
			}
			instance, err := New(*s, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := instance.Prepare(*s); (err == nil) != (tt.err == "") {
				t.Errorf("a reload: %v", err)
			}
		})
	}
}
