// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"fmt"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
)

// Key is what a server shares with one client (RFC 4380, section 5.2.2).
type Key struct {
	ID        string // unique in the server
	Secret    config.Secret
	Algorithm teredo.Algorithm
	Expires   time.Time // then the client is told to get another key; zero is never
}

func (k *Key) keys() []key.Key {
	return []key.Key{
		key.Of("id", &k.ID, key.MustSet("north"), tunnel.ClientID, key.Identity, "Name of the client, 1 to 255 bytes."),
		key.Of("secret", &k.Secret, key.MustSet("…"), tunnel.Secret, key.Live, "16 bytes or more: openssl rand -base64 24.").Hidden(),
		key.Of("algorithm", &k.Algorithm, teredo.HMACSHA1.String(), tunnel.Algorithm, key.Live, `"hmac-sha1" or "hmac-sha256".`),
		key.Of("expires", &k.Expires, never, moment, key.Live, "When the client is told to get another key."),
	}
}

// keySection are the keys of a file of their own.
var keySection = config.SectionOf[Key]{Name: "key", Keys: (*Key).keys}

// readKeys reads a file of keys: a [[key]] table for each.
func readKeys(path string) ([]*Key, error) {
	return config.ReadTables(path, keySection, func(keys []*Key, c *config.Checker) { checkKeys(keys, c) })
}

// checkKeys wants each key whole, and one for each client.
func checkKeys(keys []*Key, c *config.Checker) {
	seen := map[string]bool{}
	for i, k := range keys {
		at := fmt.Sprintf("key[%d]", i)
		wrong := c.Failed(at) // it is no key at all
		for _, one := range []struct{ name, value string }{{"id", k.ID}, {"secret", string(k.Secret)}} {
			if one.value == "" && !wrong && !c.Failed(at+"."+one.name) {
				c.Fail(at, "this key has no "+one.name, "add "+one.name+` = "…"`)
			}
		}
		if seen[k.ID] && k.ID != "" {
			c.Fail(at+".id", fmt.Sprintf("%q has a key already", k.ID), "keep one key for each client")
		}
		seen[k.ID] = true
	}
}

// never is the default of a moment.
var never = time.Time{}

// moment parses a date, which begins at midnight UTC, or a time with its zone.
func moment(raw any) (time.Time, *key.Fault) {
	switch at := raw.(type) {
	case time.Time:
		return at, nil
	case toml.LocalDate:
		return at.AsTime(time.UTC), nil
	}
	return time.Time{}, key.Wrong("write it like 2030-01-31 or 2030-01-31T12:00:00Z, without quotes", "this is no date, and no time with its zone")
}
