// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"strings"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"
)

// maxChallenges is how often one request is sent again for a challenge: once for it, once
// for a nonce that went stale.
const maxChallenges = 2

// credentials are the challenges that a call or a registration has met. They are answered
// again in later requests, with the next nonce count, so that no request of a move costs a
// second round trip.
type credentials struct{ known []*challenge }

type challenge struct {
	*digest.Challenge
	proxy bool
	count int
}

// challenged takes the challenges of a 401 or 407, and reports whether the request shall be
// sent again: not if what we know was refused.
func (c *credentials) challenged(res *sip.Response) bool {
	name, proxy := "WWW-Authenticate", false
	switch res.StatusCode {
	case 401:
	case 407:
		name, proxy = "Proxy-Authenticate", true
	default:
		return false
	}
	fresh := false
	seen := map[string]bool{}
	for _, h := range res.GetHeaders(name) {
		ch, err := digest.ParseChallenge(h.Value())
		// The first that we understand is the one that the server likes best (RFC 8760 section 2.4).
		if err != nil || !digest.CanDigest(ch) || seen[ch.Realm] {
			continue
		}
		seen[ch.Realm] = true
		fresh = c.learn(&challenge{Challenge: ch, proxy: proxy}) || fresh
	}
	return fresh
}

// learn replaces what is known of a realm, and reports whether that gives hope: the nonce is
// the first, or the server says that the last one was merely stale, or it is another one that
// was not refused before.
func (c *credentials) learn(ch *challenge) bool {
	for i, old := range c.known {
		if old.Realm == ch.Realm && old.proxy == ch.proxy {
			c.known[i] = ch
			return ch.Stale || old.count > 1 && old.Nonce != ch.Nonce
		}
	}
	c.known = append(c.known, ch)
	return true
}

// apply answers in a request all challenges that are known.
func (c *credentials) apply(e *Engine, req *sip.Request) {
	for _, ch := range c.known {
		ch.count++
		cred, err := digest.Digest(ch.Challenge, digest.Options{
			Method: string(req.Method), URI: req.Recipient.String(), Count: ch.count,
			Username: e.set.Username, Password: e.set.Password, Cnonce: e.token(),
		})
		if err != nil {
			continue
		}
		name := "Authorization"
		if ch.proxy {
			name = "Proxy-Authorization"
		}
		set(req, name, cred.String())
	}
}

// copyCredentials gives an ACK those of its INVITE (section 22.1).
func copyCredentials(from, to *sip.Request) {
	for _, name := range []string{"Authorization", "Proxy-Authorization"} {
		for _, h := range from.GetHeaders(name) {
			set(to, name, strings.TrimSpace(h.Value()))
		}
	}
}
