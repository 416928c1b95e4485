// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A configuration with secrets must be private; without any it need not be.
func TestLoadChecksPermissions(t *testing.T) {
	const client = "[[teredo_client]]\nserver = \"192.0.2.1\"\n"
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		want       string // part of the error
	}{
		{"no secret, open", client, 0o644, ""},
		{"secret, private", client + "key_id = \"north\"\nkey_secret = \"correct horse battery staple\"\n", 0o600, ""},
		{"secret, open", client + "key_id = \"north\"\nkey_secret = \"correct horse battery staple\"\n", 0o644, "run chmod 640"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "isthmus.toml")
			if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
				t.Fatal(err)
			}
			_, err := ConfigFlag{Config: &path}.load()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
