// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/server/serverrole"
)

const (
	northSecret = "correct horse battery staple"
	southSecret = "correct horse battery stable"
)

// private writes a file that only its owner may read.
func private(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const keysFile = `
[[key]]
id = "north"
secret = "` + northSecret + `"

[[key]]
id = "south"
secret = "` + southSecret + `"
algorithm = "hmac-sha256"

[[key]]
id = "old"
secret = "` + northSecret + `"
expires = 2020-01-01
`

// keyed is a client with a key.
func keyed(id, secret string, a teredo.Algorithm) func(*Settings) {
	return func(c *Settings) {
		c.KeyID, c.KeySecret, c.KeyAlgorithm = id, config.Secret(secret), a
	}
}

// hasty has a client give up soon that will get no answer. One that gets one keeps to
// its time, since it would not ask again for long.
func hasty(c *Settings) {
	c.QualificationTimeout, c.QualificationAttempts = 100*time.Millisecond, 2
}

// dropped returns the counter of a drop reason.
func dropped(instance role.Instance, reason string) (count float64) {
	instance.Collect(func(m role.Metric) {
		if m.Name == role.DroppedName && m.Reason == reason {
			count = m.Value
		}
	})
	return count
}

// lockedText is a log that can be read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Client and server by UDP between namespaces, where the server wants a key.
func TestSecureQualification(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "key_id", "key_secret", "key_algorithm")
	path := filepath.Join(t.TempDir(), "keys.toml")
	private(t, path, keysFile)
	r := newRig(t, func(s *serverrole.Settings) { s.RequireAuth, s.KeysFile = true, path })
	if st := r.server.Status().(serverrole.Status); !st.RequireAuth || st.Keys != 3 {
		t.Errorf("server's status %+v", st)
	}
	for _, tt := range []struct {
		name       string
		change     func(*Settings)
		state, log string
		reason     string // of the server's drops
	}{
		{"right key, HMAC-SHA1", keyed("north", northSecret, teredo.HMACSHA1), "qualified", "", ""},
		{"right key, HMAC-SHA256", keyed("south", southSecret, teredo.HMACSHA256), "qualified", "", ""},
		{"wrong secret", keyed("north", southSecret, teredo.HMACSHA1), "off_line", "whether it wants another key", "auth_wrong_value"},
		{"wrong algorithm", keyed("north", northSecret, teredo.HMACSHA256), "off_line", "whether it wants another key", "auth_wrong_value"},
		{"unknown client", keyed("west", northSecret, teredo.HMACSHA1), "off_line", "whether it wants another key", "auth_unknown_client"},
		{"no key", keyed("", "", teredo.HMACSHA1), "off_line", "whether it wants another key", "auth_missing"},
		{"expired key", keyed("old", northSecret, teredo.HMACSHA1), "key_refused", "refuses the key", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := dropped(r.server, tt.reason)
			cfg, log := rigSettings(), new(lockedText)
			tt.change(&cfg)
			if tt.state == "off_line" {
				hasty(&cfg)
			}
			c, err := NewClient(cfg, slog.New(slog.NewTextHandler(log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			stop := roletest.Start(t, r.a, c).Stop
			s := await(t, c, tt.state, func(s Status) bool { return s.State == tt.state })
			if s.Authenticated != (tt.state == "qualified") {
				t.Errorf("status %+v", s)
			}
			await(t, c, "logged: "+tt.log, func(Status) bool { return strings.Contains(log.String(), tt.log) })
			if tt.reason != "" {
				// Its questions may lie unread when the client has given up.
				await(t, c, "counted as "+tt.reason, func(Status) bool { return dropped(r.server, tt.reason) > before })
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if strings.Contains(log.String(), "horse") {
				t.Errorf("the secret is in the log:\n%s", log)
			}
		})
	}
}

// Both ends read their keys again at a reload, and a faulty file changes nothing.
func TestReloadKeys(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "key_secret_file")
	dir := t.TempDir()
	keys, secret := filepath.Join(dir, "keys.toml"), filepath.Join(dir, "secret")
	private(t, keys, keysFile)
	private(t, secret, southSecret+"\n")
	r := newRig(t, func(s *serverrole.Settings) { s.RequireAuth, s.KeysFile = true, keys })
	north := func(cfg *Settings) {
		keyed("north", "", teredo.HMACSHA1)(cfg)
		cfg.KeySecretFile = secret
	}
	c, _ := newClient(t, north)
	roletest.Start(t, r.a, c)
	s := await(t, c, "refused", func(Status) bool { return dropped(r.server, "auth_wrong_value") > 0 })
	if s.State != "starting" || s.Authenticated {
		t.Errorf("with a wrong secret: %+v", s)
	}

	private(t, secret, northSecret+"\n")
	cfg := rigSettings()
	north(&cfg)
	roletest.MustReload(t, Role, c, c.cfg, cfg)
	await(t, c, "authenticated", func(s Status) bool { return qualified(s) && s.Authenticated })

	private(t, keys, "[[key]]\nid = \"north\"\n")
	if _, err := roletest.Reload(serverrole.Role, r.server, r.serverCfg, r.serverCfg); err == nil || !strings.Contains(err.Error(), "no secret") {
		t.Errorf("error %v", err)
	}
	private(t, keys, strings.Replace(keysFile, `"`+northSecret+`"`, `"`+northSecret+"\"\nexpires = 2020-01-01", 1))
	roletest.MustReload(t, serverrole.Role, r.server, r.serverCfg, r.serverCfg)
	// Asking again soon needs another key: the same one would wait for the refresh.
	cfg.KeyID = "old"
	roletest.MustReload(t, Role, c, c.cfg, cfg)
	await(t, c, "refused", func(s Status) bool { return s.State == "key_refused" && !s.Address.IsValid() })
	awaitDevice(t, r.a)
}

func TestSecretFileThatIsOpen(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "secret")
	private(t, path, northSecret)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	c, _ := newClient(t, func(c *Settings) { c.KeyID, c.KeySecretFile = "north", path })
	var err error
	r.a.Do(t, func() error { err = c.Run(t.Context()); return nil })
	if err == nil || !strings.Contains(err.Error(), "chmod 640") {
		t.Errorf("error %v", err)
	}
}
