// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package digest

import (
	"slices"
	"strings"
)

// Challenge is a WWW-Authenticate or Proxy-Authenticate header.
type Challenge struct {
	Realm, Nonce, Opaque string
	Algorithm            Algorithm
	// Stale asks for the same credentials with this nonce.
	Stale bool
	// QOP are the qualities of protection offered; none: the challenge is that of RFC 2069.
	QOP []string
}

// ParseChallenge reads a header.
func ParseChallenge(header string) (c Challenge, err error) {
	all, err := parse(header)
	if err != nil {
		return c, err
	}
	known := false
	if c.Algorithm, known = ParseAlgorithm(all["algorithm"]); !known {
		return c, ErrUnknown
	}
	if _, realm := all["realm"]; !realm || all["nonce"] == "" {
		return c, ErrMissing
	}
	c.Realm, c.Nonce, c.Opaque, c.Stale = all["realm"], all["nonce"], all["opaque"], strings.EqualFold(all["stale"], "true")
	for one := range strings.SplitSeq(all["qop"], ",") {
		if one = strings.ToLower(strings.TrimSpace(one)); one != "" {
			c.QOP = append(c.QOP, one)
		}
	}
	return c, nil
}

// Choose returns the topmost challenge of these headers that can be answered (RFC 8760 section
// 2.4); those with AKA only for who has it. Not ok: there is none.
func Choose(headers []string, aka bool) (c Challenge, ok bool) {
	for _, header := range headers {
		c, err := ParseChallenge(header)
		if err == nil && (aka || c.Algorithm != AKAv1MD5) && (len(c.QOP) == 0 || slices.Contains(c.QOP, "auth")) {
			return c, true
		}
	}
	return Challenge{}, false
}

// String returns the header.
func (c Challenge) String() string {
	var w writer
	w.token("realm", `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(c.Realm)+`"`)
	w.quoted("nonce", c.Nonce)
	w.quoted("opaque", c.Opaque)
	if c.Stale {
		w.token("stale", "true")
	}
	w.token("algorithm", string(c.Algorithm))
	w.quoted("qop", strings.Join(c.QOP, ","))
	return w.String()
}

// Answer computes credentials for a request. HA1 is of the challenge's realm and algorithm, and
// count is how often its nonce was used, this time with it. The client's nonce and the count
// stand for nothing where the challenge offers no quality of protection.
func (c *Challenge) Answer(username, ha1, method, uri, cnonce string, count uint32) Credentials {
	a := Credentials{
		Username: username, Realm: c.Realm, Nonce: c.Nonce, Opaque: c.Opaque, URI: uri, Algorithm: c.Algorithm,
	}
	if slices.Contains(c.QOP, "auth") {
		a.QOP, a.CNonce, a.Count = "auth", cnonce, count
	}
	a.Response = a.Expected(ha1, method, nil)
	return a
}
