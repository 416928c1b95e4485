// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// MaxKeys bounds the keys of one server, less than 1.5 KiB each.
const MaxKeys = 1 << 16

// Key is what this server shares with one client.
type Key struct {
	teredo.Credential
	// Expires is when the key stops to be valid; zero is never. A client that
	// uses it longer is told, under the key, to get another (RFC 4380 section
	// 5.2.2).
	Expires time.Time
}

// clientKey is a Key made ready for use.
type clientKey struct {
	key     *teredo.Key
	expires time.Time
}

// CheckKeys returns an error when no server can have these keys together.
func CheckKeys(keys []Key) error {
	if len(keys) > MaxKeys {
		return fmt.Errorf("the server has %d keys: spread the clients over several servers, with at most %d each", len(keys), MaxKeys)
	}
	seen := make(map[string]bool, len(keys))
	for i := range keys {
		k := &keys[i]
		if err := k.Check(); err != nil {
			return err
		}
		if seen[k.ID] {
			return fmt.Errorf("there are two keys for the client %q: keep one", k.ID)
		}
		seen[k.ID] = true
	}
	return nil
}

// keyring makes the keys ready, by client identifier.
func (c *Config) keyring() (map[string]clientKey, error) {
	if err := CheckKeys(c.Keys); err != nil {
		return nil, err
	}
	ring := make(map[string]clientKey, len(c.Keys))
	for _, k := range c.Keys {
		ring[k.ID] = clientKey{key: teredo.NewKey(k.Algorithm, k.Secret), expires: k.Expires}
	}
	return ring, nil
}

// Confirmation bytes of an answer (RFC 4380 section 5.2.2).
const (
	keyValid   = 0
	keyRefused = 1 // the client should obtain a new key
)

// confirmation is what the server says about a solicitation's authentication.
type confirmation struct {
	key  *teredo.Key // to compute the answer's value; nil: none
	byte byte
}

// authenticate decides about a solicitation by RFC 4380 sections 5.2.2 and 5.3.1
// rule 4. A wrong value is never answered. Where authentication is not required,
// a client of whom this server knows nothing is served and told so by the
// confirmation byte alone, as there is no secret to compute a value with.
//
// A repeated solicitation cannot be told from the first one: the server keeps no
// state. Its repetition gains nothing but another answer, whose nonce only the
// client that waits for it takes.
func (e *Engine) authenticate(p *teredo.Packet, now time.Time) (c confirmation, r Reason) {
	// A value without an identifier names no one.
	k, known := e.keys[string(p.Auth.ClientID)]
	switch {
	case known && !k.key.Verify(p):
		return c, AuthWrongValue
	case known && !k.expires.IsZero() && !now.Before(k.expires):
		e.counters.KeysExpired++
		return confirmation{k.key, keyRefused}, accepted
	case known:
		e.counters.Authenticated++
		return confirmation{k.key, keyValid}, accepted
	case len(p.Auth.ClientID) == 0 && len(p.Auth.Value) == 0:
		if e.cfg.RequireAuth {
			return c, AuthMissing
		}
		return confirmation{nil, keyValid}, accepted
	case e.cfg.RequireAuth:
		return c, AuthUnknownClient
	}
	e.counters.KeysUnknown++
	return confirmation{nil, keyRefused}, accepted
}
