// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// credential is the client's side of secure qualification (RFC 4380 section
// 5.2.2); without a key a nonce alone protects the exchange.
type credential struct {
	teredo.Credential
	id  []byte
	key *teredo.Key // nil: none
}

func newCredential(c teredo.Credential) credential {
	if c.ID == "" {
		return credential{}
	}
	return credential{Credential: c, id: []byte(c.ID), key: teredo.NewKey(c.Algorithm, c.Secret)}
}

// SetCredential replaces what the client authenticates itself with; an empty
// identifier is nothing. The server is asked at once under the new key.
func (c *Client) SetCredential(next teredo.Credential, now time.Time, out *Out) error {
	if next.ID != "" {
		if err := next.Check(); err != nil {
			return err
		}
	}
	old := &c.credential
	if next.ID == old.ID && next.Algorithm == old.Algorithm && bytes.Equal(next.Secret, old.Secret) {
		return nil
	}
	c.credential = newCredential(next)
	if c.state == Qualified {
		c.solicit(&c.primary, c.server().Primary, now, out)
		return nil
	}
	c.begin(now, out)
	return nil
}

// auth is the authentication of a solicitation: confirmation byte 0 (RFC 4380
// section 5.2.2). It is good until the next call.
func (k *credential) auth(nonce [8]byte, rs packet.IPv6) teredo.Auth {
	if k.key == nil {
		return teredo.Auth{Nonce: nonce}
	}
	return teredo.Auth{ClientID: k.id, Value: k.key.Value(nonce, 0, netip.AddrPort{}, rs), Nonce: nonce}
}

// accepts reports whether the authentication of an advertisement may come from a
// server that has the key. A refusal may come without a value: a server that
// does not know the client has no secret to compute one with.
func (k *credential) accepts(p *teredo.Packet) bool {
	if k.key == nil {
		return true
	}
	return bytes.Equal(p.Auth.ClientID, k.id) && (k.key.Verify(p) || refuses(p) && len(p.Auth.Value) == 0)
}

// refuses reports whether a server says that the client's key is not valid.
func refuses(p *teredo.Packet) bool { return p.Auth.Confirmation != 0 }

// receiveRefusal takes an advertisement that says to get another key. Under the
// key it is final. Without a value anybody who has seen the solicitation can have
// made it, so the wait for the true answer goes on, and only its end is reported
// as a refusal.
func (c *Client) receiveRefusal(s *solicitation, p *teredo.Packet, now time.Time, out *Out) {
	c.drop(KeyRefused)
	s.refused = true
	if len(p.Auth.Value) == 0 {
		return
	}
	if s == &c.primary {
		c.serverFailed(now, out)
		return
	}
	s.active = false
	if s == &c.secondary {
		c.tellNAT(out)
	}
}
