// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

const someSecret = "correct horse battery staple"

func TestParseKeys(t *testing.T) {
	c := parse(t, `
		[[teredo_server]]
		name = "first"
		address = "192.0.2.1"

		[[teredo_server]]
		name = "second"
		address = "192.0.2.2"
		require_auth = true
		keys_file = "/etc/isthmus/keys.toml"

		[[teredo_server.key]]
		id = "north"
		secret = "correct horse battery staple"

		[[teredo_server.key]]
		id = "south"
		secret = "correct horse battery stable"
		algorithm = "hmac-sha256"
		expires = 2030-01-31

		[[teredo_client]]
		server = "192.0.2.1"
		key_id = "north"
		key_secret_file = "/etc/isthmus/secret"
		key_algorithm = "hmac-sha256"
	`)
	want := []Key{
		{ID: "north", Secret: someSecret, Algorithm: teredo.HMACSHA1},
		{ID: "south", Secret: "correct horse battery stable", Algorithm: teredo.HMACSHA256, Expires: time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC)},
	}
	first, s, r := c.Instances[0].Settings.(*ServerSettings), c.Instances[1].Settings.(*ServerSettings), c.Instances[2].Settings.(*ClientSettings)
	if diff := cmp.Diff(want, s.Keys); diff != "" || !s.RequireAuth || s.KeysFile != "/etc/isthmus/keys.toml" || len(first.Keys) > 0 {
		t.Errorf("keys (-want +got):\n%s\nof %+v", diff, s)
	}
	if r.KeyID != "north" || r.KeySecretFile != "/etc/isthmus/secret" || r.KeyAlgorithm != teredo.HMACSHA256 {
		t.Errorf("client %+v", r)
	}
	if !c.HasSecrets() {
		t.Error("the file holds secrets")
	}
	s.Keys = nil
	if c.HasSecrets() {
		t.Error("without its keys the file holds no secrets")
	}
	r.KeySecret = someSecret
	if !c.HasSecrets() {
		t.Error("the client's secret counts")
	}
}

// Errors end in logs, so they must not show a secret either.
func TestErrorsHideSecrets(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"in a table", "[[teredo_client]]\nserver = \"192.0.2.1\"\nkey_secret = \"" + someSecret + "\"\n"},
		{"in an inline table", "server = [{ address = \"192.0.2.1\", key = [{ ids = \"north\", secret = \"" + someSecret + "\" }]}]\n"},
		{"without quotes", "[[teredo_client]]\nkey_secret = " + someSecret + "\n"},
		{"twice", "[[teredo_client]]\nkey_secret = \"" + someSecret + "\"\nkey_secret = \"" + someSecret + "\"\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := roles.Parse(strings.NewReader(tt.text), "isthmus.toml")
			if err == nil || strings.Contains(err.Error(), "horse") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// writeKeys makes a file with these permissions.
func writeKeys(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadKeys(t *testing.T) {
	const one = "[[key]]\nid = \"north\"\nsecret = \"" + someSecret + "\"\n"
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		want       []*Key
		err        string // part of it
	}{
		{"of its owner", one, 0o600, []*Key{{ID: "north", Secret: someSecret}}, ""},
		{"of a group", one, 0o640, []*Key{{ID: "north", Secret: someSecret}}, ""},
		{"empty", "", 0o600, nil, ""},
		{"readable by all", one, 0o644, nil, "run chmod 640"},
		{"writable by the group", one, 0o660, nil, "run chmod 640"},
		{"twice the same client", one + one, 0o600, nil, `:5:6: key.id: "north" has a key already`},
		{"no secret", "[[key]]\nid = \"north\"\n", 0o600, nil, ":1:3: key: this key has no secret"},
		{"another section", "[[teredo_server]]\n", 0o600, nil, "no such"},
		{"no TOML", "north: secret\n", 0o600, nil, "this is not TOML"},
		{"too large", strings.Repeat("#", 5<<20), 0o600, nil, "is larger"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readKeys(writeKeys(t, tt.text, tt.mode))
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

func TestFileOfAnotherUser(t *testing.T) {
	testutil.NeedRoot(t)
	path := writeKeys(t, someSecret, 0o600)
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := readSecret(path); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("error %v", err)
	}
}

func TestReadSecret(t *testing.T) {
	for _, tt := range []struct{ name, text, err string }{
		{"without line end", someSecret, ""},
		{"with line end", someSecret + "\n", ""},
		{"with the line end of others", someSecret + "\r\n", ""},
		{"too short", "short\n", "can be guessed"},
		{"too long", strings.Repeat("x", maxSecret+1), "is larger"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readSecret(writeKeys(t, tt.text, 0o600))
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err == nil && got != someSecret {
				t.Errorf("secret %q", string(got))
			}
		})
	}
}

func TestCredential(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client ClientSettings
		want   teredo.Credential
	}{
		{"none", ClientSettings{}, teredo.Credential{}},
		{"in the configuration", ClientSettings{KeyID: "north", KeySecret: someSecret}, teredo.Credential{ID: "north", Secret: []byte(someSecret)}},
		{"in a file", ClientSettings{KeyID: "north", KeySecretFile: writeKeys(t, someSecret+"\n", 0o600), KeyAlgorithm: teredo.HMACSHA256},
			teredo.Credential{ID: "north", Secret: []byte(someSecret), Algorithm: teredo.HMACSHA256}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.client.credential()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("credential (-want +got):\n%s", diff)
			}
		})
	}
}
