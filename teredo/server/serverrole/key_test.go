// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
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
