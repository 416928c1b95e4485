// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client/clientrole"
	"github.com/isthmus-net/isthmus/teredo/relay/relayrole"
	"github.com/isthmus-net/isthmus/teredo/server/serverrole"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

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
	want := []serverrole.Key{
		{ID: "north", Secret: teredotest.Secret, Algorithm: teredo.HMACSHA1},
		{ID: "south", Secret: "correct horse battery stable", Algorithm: teredo.HMACSHA256, Expires: time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC)},
	}
	first, s, r := c.Instances[0].Settings.(*serverrole.Settings), c.Instances[1].Settings.(*serverrole.Settings), c.Instances[2].Settings.(*clientrole.Settings)
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
	r.KeySecret = teredotest.Secret
	if !c.HasSecrets() {
		t.Error("the client's secret counts")
	}
}

// Errors end in logs, so they must not show a secret either.
func TestErrorsHideSecrets(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"in a table", "[[teredo_client]]\nserver = \"192.0.2.1\"\nkey_secret = \"" + teredotest.Secret + "\"\n"},
		{"in an inline table", "server = [{ address = \"192.0.2.1\", key = [{ ids = \"north\", secret = \"" + teredotest.Secret + "\" }]}]\n"},
		{"without quotes", "[[teredo_client]]\nkey_secret = " + teredotest.Secret + "\n"},
		{"twice", "[[teredo_client]]\nkey_secret = \"" + teredotest.Secret + "\"\nkey_secret = \"" + teredotest.Secret + "\"\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := roles.Parse(strings.NewReader(tt.text), "isthmus.toml")
			if err == nil || strings.Contains(err.Error(), "horse") {
				t.Errorf("error %v", err)
			}
		})
	}
}

var roles = role.List{serverrole.Role, relayrole.Role, clientrole.Role}

// TestErrors compares the errors of files in which roles stand side by side.
func TestErrors(t *testing.T) { configtest.Errors(t, "testdata/*.toml", roles.Sections()...) }

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := roles.Parse(strings.NewReader(text), "isthmus.toml")
	if err != nil {
		t.Fatalf("\n%v", err)
	}
	return c
}
