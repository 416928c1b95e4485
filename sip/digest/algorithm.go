// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package digest

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"strings"
)

// Algorithm is how a challenge wants the response computed.
type Algorithm string

// Algorithms (RFC 8760 section 2.1, RFC 3310 section 3.1).
const (
	MD5       Algorithm = "MD5"
	SHA256    Algorithm = "SHA-256"
	SHA512256 Algorithm = "SHA-512-256"
	AKAv1MD5  Algorithm = "AKAv1-MD5"
)

var algorithms = []Algorithm{MD5, SHA256, SHA512256, AKAv1MD5}

// ParseAlgorithm reads the parameter algorithm, whose absence means MD5. Not ok: it is not
// known here.
func ParseAlgorithm(s string) (a Algorithm, ok bool) {
	if s == "" {
		return MD5, true
	}
	for _, a := range algorithms {
		if strings.EqualFold(s, string(a)) {
			return a, true
		}
	}
	return "", false
}

func (a Algorithm) hash() hash.Hash {
	switch a {
	case SHA256:
		return sha256.New()
	case SHA512256:
		return sha512.New512_256()
	}
	return md5.New()
}

// sum is the digest of parts with colons between them, in hex.
func (a Algorithm) sum(parts ...string) string {
	h := a.hash()
	for i, part := range parts {
		if i > 0 {
			h.Write([]byte{':'})
		}
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// HA1 is what a server can keep in place of a password (RFC 7616 section 3.4.2).
func (a Algorithm) HA1(username, realm, password string) string {
	return a.sum(username, realm, password)
}
