// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/isthmus-net/isthmus/teredo"
)

// Secret is text that no log, status or error may show.
type Secret string

// String hides the secret.
func (Secret) String() string { return "(secret)" }

// GoString hides the secret.
func (Secret) GoString() string { return "(secret)" }

// Key is what a server shares with one client (RFC 4380, section 5.2.2).
type Key struct {
	// ID is the client identifier, unique in the server.
	ID        string
	Secret    Secret
	Algorithm teredo.Algorithm
	// Expires is when the client is told to get another key; zero is never.
	Expires time.Time
}

// HasSecrets tells whether the file itself holds secrets, so that nobody else
// may read it.
func (c *Config) HasSecrets() bool {
	return slices.ContainsFunc(c.Servers, func(s Server) bool { return len(s.Keys) > 0 }) ||
		slices.ContainsFunc(c.Clients, func(r Client) bool { return r.KeySecret != "" })
}

// keyNames are the keys of one key, in the order of the reference.
var keyNames = []string{"id", "secret", "algorithm", "expires"}

// serverKeys reads what a server knows of its clients.
func (c *checker) serverKeys(at string, raw rawServer, s *Server) {
	s.Keys = c.keys(at+".key", raw.Key)
	set(c, at, "keys_file", raw.KeysFile, &s.KeysFile, optional(filePath))
	set(c, at, "require_auth", raw.RequireAuth, &s.RequireAuth, boolean)
	if s.RequireAuth && raw.Key == nil && s.KeysFile == "" && !c.failed[at+".keys_file"] {
		c.fail(at+".require_auth", "no client could qualify, because this server has no keys", "name a keys_file, or add a [[server.key]]")
	}
}

// keys reads a list of keys, below the path of the list.
func (c *checker) keys(path string, raw any) []Key {
	if raw == nil {
		return nil
	}
	list, ok := raw.([]any)
	if !ok {
		c.fail(path, fmt.Sprintf("this is %s where a list of keys is wanted", kindOf(raw)), "write "+arrayHeader(path)+" on a line of its own, once for each key")
		return nil
	}
	keys := make([]Key, 0, len(list))
	seen := map[string]bool{}
	for i, one := range list {
		k, ok := c.key(fmt.Sprintf("%s[%d]", path, i), one)
		if ok && seen[k.ID] {
			c.fail(fmt.Sprintf("%s[%d].id", path, i), fmt.Sprintf("%q has a key already", k.ID), "keep one key for each client")
		}
		seen[k.ID] = true
		keys = append(keys, k)
	}
	return keys
}

// arrayHeader is how a table array of that path is written.
func arrayHeader(path string) string { return "[[" + display(path) + "]]" }

// key reads one key; ok is false if something is wrong with it.
func (c *checker) key(path string, raw any) (k Key, ok bool) {
	table, isTable := raw.(map[string]any)
	if !isTable {
		c.fail(path, fmt.Sprintf("this is %s where a key is wanted", kindOf(raw)), `write { id = "…", secret = "…" }`)
		return k, false
	}
	before := len(c.errs)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(keyNames, name) {
			remedy := "known ones are " + strings.Join(keyNames, ", ")
			if near := nearest(name, keyNames); near != "" {
				remedy = fmt.Sprintf("did you mean %s?", near)
			}
			c.fail(path+"."+name, "there is no such key", remedy)
		}
	}
	set(c, path, "id", table["id"], &k.ID, clientID)
	set(c, path, "secret", table["secret"], &k.Secret, secret)
	set(c, path, "algorithm", table["algorithm"], &k.Algorithm, algorithm)
	set(c, path, "expires", table["expires"], &k.Expires, moment)
	for _, name := range []string{"id", "secret"} {
		if _, there := table[name]; !there {
			c.fail(path, "this key has no "+name, "add "+name+` = "…"`)
		}
	}
	return k, len(c.errs) == before
}

// clientKey reads what a client shares with its server.
func (c *checker) clientKey(at string, raw rawClient, r *Client) {
	set(c, at, "key_id", raw.KeyID, &r.KeyID, optional(clientID))
	set(c, at, "key_secret", raw.KeySecret, &r.KeySecret, optional(secret))
	set(c, at, "key_secret_file", raw.KeySecretFile, &r.KeySecretFile, optional(filePath))
	set(c, at, "key_algorithm", raw.KeyAlgorithm, &r.KeyAlgorithm, algorithm)
	for _, name := range []string{".key_id", ".key_secret", ".key_secret_file"} {
		if c.failed[at+name] {
			return
		}
	}
	hasSecret := r.KeySecret != "" || r.KeySecretFile != ""
	switch {
	case r.KeySecret != "" && r.KeySecretFile != "":
		c.fail(at+".key_secret_file", "there is a key_secret too", "keep one of the two")
	case r.KeyID == "" && r.KeySecret != "":
		c.fail(at+".key_secret", "this secret has no name by which the server knows it", `add key_id = "…"`)
	case r.KeyID == "" && r.KeySecretFile != "":
		c.fail(at+".key_secret_file", "this secret has no name by which the server knows it", `add key_id = "…"`)
	case r.KeyID != "" && !hasSecret:
		c.fail(at+".key_id", "this name has no secret", `add key_secret_file = "/etc/isthmus/client.secret"`)
	}
}

// clientID parses a client identifier (RFC 4380, section 5.1.1).
var clientID = text("north", func(s string) (string, *fault) {
	if s == "" || len(s) > teredo.MaxClientIDLen {
		return "", wrong(fmt.Sprintf("write a name of 1 to %d bytes, like north", teredo.MaxClientIDLen), "a name of %d bytes cannot be sent", len(s))
	}
	return s, nil
})

// secret parses a shared secret: its bytes are those of the text.
var secret = text("…", func(s string) (Secret, *fault) {
	if len(s) < teredo.MinSecretLen {
		return "", wrong("make one with: openssl rand -base64 24", "a secret of %d bytes can be guessed: %d are the least", len(s), teredo.MinSecretLen)
	}
	return Secret(s), nil
})

var algorithm = text(teredo.HMACSHA1.String(), func(s string) (teredo.Algorithm, *fault) {
	for _, a := range []teredo.Algorithm{teredo.HMACSHA1, teredo.HMACSHA256} {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, wrong(fmt.Sprintf("write %q or %q", teredo.HMACSHA1, teredo.HMACSHA256), "%q is not known here", s)
})

// moment parses a date, which begins at midnight UTC, or a time with its zone.
func moment(raw any) (time.Time, *fault) {
	switch at := raw.(type) {
	case time.Time:
		return at, nil
	case toml.LocalDate:
		return at.AsTime(time.UTC), nil
	}
	return time.Time{}, wrong("write it like 2030-01-31 or 2030-01-31T12:00:00Z, without quotes", "this is no date, and no time with its zone")
}
