// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package digest

import (
	"crypto/subtle"
	"fmt"
	"strconv"
	"strings"
)

// Credentials are an Authorization or Proxy-Authorization header.
type Credentials struct {
	Username, Realm, Nonce, URI string
	Response, Opaque, CNonce    string
	Algorithm                   Algorithm
	// QOP is the quality of protection: "", "auth" or "auth-int".
	QOP string
	// Count is how often the nonce was used, this time with it.
	Count uint32
	// AUTS asks for another challenge of AKA (RFC 3310 section 3.4).
	AUTS string
}

// ParseCredentials reads a header. What would leave the response undefined is an error.
func ParseCredentials(header string) (c Credentials, err error) {
	all, err := parse(header)
	if err != nil {
		return c, err
	}
	known := false
	if c.Algorithm, known = ParseAlgorithm(all["algorithm"]); !known {
		return c, ErrUnknown
	}
	for _, name := range []string{"username", "realm", "nonce", "uri", "response"} {
		if _, there := all[name]; !there {
			return c, ErrMissing
		}
	}
	c.Username, c.Realm, c.Nonce, c.URI = all["username"], all["realm"], all["nonce"], all["uri"]
	c.Response, c.Opaque, c.CNonce, c.AUTS = strings.ToLower(all["response"]), all["opaque"], all["cnonce"], all["auts"]
	if c.QOP = strings.ToLower(all["qop"]); c.QOP == "" {
		return c, nil
	}
	if c.QOP != "auth" && c.QOP != "auth-int" {
		return c, ErrMalformed
	}
	if c.CNonce == "" || all["nc"] == "" {
		return c, ErrMissing
	}
	count, err := strconv.ParseUint(all["nc"], 16, 32)
	if err != nil || len(all["nc"]) != 8 || count == 0 {
		return c, ErrMalformed
	}
	c.Count = uint32(count)
	return c, nil
}

// String returns the header.
func (c Credentials) String() string {
	var w writer
	w.token("username", `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(c.Username)+`"`)
	w.quoted("realm", c.Realm)
	w.quoted("nonce", c.Nonce)
	w.quoted("uri", c.URI)
	w.quoted("response", c.Response)
	w.token("algorithm", string(c.Algorithm))
	w.quoted("opaque", c.Opaque)
	if c.QOP != "" {
		w.token("qop", c.QOP)
		w.quoted("cnonce", c.CNonce)
		w.token("nc", fmt.Sprintf("%08x", c.Count))
	}
	w.quoted("auts", c.AUTS)
	return w.String()
}

// Expected is the response of whoever knows HA1 (RFC 7616 section 3.4.1).
func (c *Credentials) Expected(ha1, method string, body []byte) string {
	a := c.Algorithm
	ha2 := a.sum(method, c.URI)
	if c.QOP == "auth-int" {
		ha2 = a.sum(method, c.URI, a.sum(string(body)))
	}
	if c.QOP == "" {
		return a.sum(ha1, c.Nonce, ha2)
	}
	return a.sum(ha1, c.Nonce, fmt.Sprintf("%08x", c.Count), c.CNonce, c.QOP, ha2)
}

// Matches reports whether the response is that of whoever knows HA1.
func (c *Credentials) Matches(ha1, method string, body []byte) bool {
	return subtle.ConstantTimeCompare([]byte(c.Expected(ha1, method, body)), []byte(c.Response)) == 1
}
