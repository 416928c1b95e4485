// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"hash"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Algorithm computes authentication values. Client and server agree on it
// beforehand: the wire does not name it (RFC 4380 section 5.2.2).
type Algorithm uint8

// Algorithms.
const (
	// HMACSHA1 is the default of RFC 4380 section 5.2.2: values of 20 bytes.
	HMACSHA1 Algorithm = iota
	// HMACSHA256 needs both sides to agree on it: values of 32 bytes.
	HMACSHA256
	numAlgorithms
)

var algorithmNames = [numAlgorithms]string{"hmac-sha1", "hmac-sha256"}

// String returns the name, as in "hmac-sha1".
func (a Algorithm) String() string {
	if a >= numAlgorithms {
		return "unknown"
	}
	return algorithmNames[a]
}

func (a Algorithm) hash() func() hash.Hash {
	if a == HMACSHA256 {
		return sha256.New
	}
	return sha1.New
}

// Bounds of what client and server share.
const (
	// MaxClientIDLen is what one byte of length allows (RFC 4380 section 5.1.1).
	MaxClientIDLen = 255
	// MinSecretLen keeps secrets out of reach of guessing: whoever sees one
	// solicitation can try secrets for as long as he likes.
	MinSecretLen = 16
)

// Credential is what a client and its servers are provisioned with for secure
// qualification (RFC 4380 section 5.2.2). The zero value is none.
type Credential struct {
	ID        string // client identifier, 1 to MaxClientIDLen bytes
	Secret    []byte // shared secret, at least MinSecretLen bytes
	Algorithm Algorithm
}

// Check returns why the credential cannot be used, as a sentence that says what
// to do.
func (c *Credential) Check() error {
	switch {
	case c.ID == "" || len(c.ID) > MaxClientIDLen:
		return fmt.Errorf("a client identifier of %d bytes cannot be sent: use 1 to %d", len(c.ID), MaxClientIDLen)
	case len(c.Secret) < MinSecretLen:
		return fmt.Errorf("the secret of %q has %d bytes: use at least %d", c.ID, len(c.Secret), MinSecretLen)
	case c.Algorithm >= numAlgorithms:
		return fmt.Errorf("the algorithm of %q is not known: use %s or %s", c.ID, HMACSHA1, HMACSHA256)
	}
	return nil
}

// Key computes the authentication values of one secret. It keeps the padded
// secret hashed and its scratch space at hand, so that a value costs no
// allocation; it is not safe for concurrent use.
type Key struct {
	mac  hash.Hash
	head [8 + 1 + originLen]byte
	sum  [sha256.Size]byte
}

// NewKey makes the key of a secret.
func NewKey(a Algorithm, secret []byte) *Key {
	return &Key{mac: hmac.New(a.hash(), secret)}
}

// Value returns the authentication value of a packet (RFC 4380 section 5.2.2):
// the HMAC over nonce, confirmation byte, origin indication as it is on the wire
// (none if origin is not valid) and IPv6 packet. Trailers are not covered. The
// value is good until the next call.
func (k *Key) Value(nonce [8]byte, confirmation byte, origin netip.AddrPort, p packet.IPv6) []byte {
	head := append(k.head[:0], nonce[:]...)
	head = append(head, confirmation)
	if origin.IsValid() {
		head = AppendOrigin(head, origin)
	}
	k.mac.Reset()
	k.mac.Write(head)
	k.mac.Write(p)
	return k.mac.Sum(k.sum[:0])
}

// Verify reports whether a parsed packet bears the authentication value of this
// key. The comparison takes the same time wherever the values differ.
func (k *Key) Verify(p *Packet) bool {
	want := k.Value(p.Auth.Nonce, p.Auth.Confirmation, p.Origin, p.IPv6)
	return subtle.ConstantTimeCompare(want, p.Auth.Value) == 1
}
