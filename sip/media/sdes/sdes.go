// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package sdes has the keys of SRTP that two sides tell each other in SDP (RFC 4568), and
// protects and opens packets with them (RFC 3711). Secrets are shown by [Attribute.SDP]
// alone: what else prints an attribute or a key, or a structure with one, prints none.
//
//house:part
package sdes

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/pion/srtp/v3"
)

// Suite is a crypto-suite.
type Suite uint8

// Suites (RFC 4568 section 6.2), the stronger first.
const (
	AES80 Suite = iota + 1 // AES_CM_128_HMAC_SHA1_80
	AES32                  // AES_CM_128_HMAC_SHA1_32
)

// String returns the name in SDP.
func (s Suite) String() string {
	switch s {
	case AES80:
		return "AES_CM_128_HMAC_SHA1_80"
	case AES32:
		return "AES_CM_128_HMAC_SHA1_32"
	}
	return "unknown"
}

func (s Suite) profile() srtp.ProtectionProfile {
	if s == AES32 {
		return srtp.ProtectionProfileAes128CmHmacSha1_32
	}
	return srtp.ProtectionProfileAes128CmHmacSha1_80
}

// Of both suites, in octets.
const (
	keyLen  = 16
	saltLen = 14
)

// Key is a master key with its salt. The zero value is none.
type Key struct{ sealed *sealed }

// sealed is a pointer behind a pointer: package fmt follows one.
type sealed struct{ secret *secret }

type secret [keyLen + saltLen]byte

func seal(s *secret) Key { return Key{&sealed{s}} }

func (k Key) secret() *secret { return k.sealed.secret }

// NewKey draws a key.
func NewKey(random io.Reader) (Key, error) {
	var s secret
	if _, err := io.ReadFull(random, s[:]); err != nil {
		return Key{}, fmt.Errorf("no randomness for a key: %w", err)
	}
	return seal(&s), nil
}

// Valid reports whether there is a key.
func (k Key) Valid() bool { return k.sealed != nil }

// Equal reports whether two keys are the same.
func (k Key) Equal(other Key) bool {
	if !k.Valid() || !other.Valid() {
		return k.Valid() == other.Valid()
	}
	return subtle.ConstantTimeCompare(k.secret()[:], other.secret()[:]) == 1
}

// Format keeps the secret from whoever prints the key, by whatever verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(secret)") }

// Attribute is a line a=crypto.
type Attribute struct {
	Tag   int
	Suite Suite
	Key   Key
	// Lifetime is how many packets the key may protect; 0: as many as SRTP allows.
	Lifetime uint64
	// MKI stands in each packet, big-endian, in so many octets; 0: none does.
	MKI    uint64
	MKILen int
}

// Format prints the attribute without its secret.
func (a Attribute) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "%d %s inline:(secret)", a.Tag, a.Suite)
}

// Equal reports whether two attributes make the same context, whatever their tags.
func (a Attribute) Equal(other Attribute) bool {
	return a.Suite == other.Suite && a.Key.Equal(other.Key) && a.Lifetime == other.Lifetime && a.MKI == other.MKI && a.MKILen == other.MKILen
}

// SDP returns the value of the attribute, secret and all.
func (a Attribute) SDP() string {
	text := fmt.Sprintf("%d %s inline:%s", a.Tag, a.Suite, base64.StdEncoding.EncodeToString(a.Key.secret()[:]))
	if a.Lifetime != 0 {
		text += "|" + strconv.FormatUint(a.Lifetime, 10)
	}
	if a.MKILen != 0 {
		text += fmt.Sprintf("|%d:%d", a.MKI, a.MKILen)
	}
	return text
}

// Errors of [Parse]. They say nothing of what was in the attribute.
var (
	ErrSyntax      = errors.New("the crypto attribute is not as RFC 4568 has it")
	ErrUnsupported = errors.New("the crypto attribute asks for what is not known here")
)

// maxLifetime is that of both suites (RFC 4568 section 6.2).
const maxLifetime = 1 << 48

// Parse reads the value of an attribute (RFC 4568 section 9). Session parameters that
// change how packets are protected are not supported, nor are several keys at once.
func Parse(value string) (Attribute, error) {
	fields := strings.Fields(value)
	if len(fields) < 3 {
		return Attribute{}, ErrSyntax
	}
	var a Attribute
	tag, ok := number(fields[0], 999999999)
	if !ok && fields[0] != "0" {
		return a, ErrSyntax
	}
	a.Tag = int(tag)
	switch {
	case strings.EqualFold(fields[1], AES80.String()):
		a.Suite = AES80
	case strings.EqualFold(fields[1], AES32.String()):
		a.Suite = AES32
	default:
		return a, ErrUnsupported
	}
	for _, parameter := range fields[3:] {
		name, _, _ := strings.Cut(strings.ToUpper(parameter), "=")
		if name != "WSH" && !strings.HasPrefix(name, "-") { // a hint; and what may be ignored
			return a, ErrUnsupported
		}
	}
	return a, a.parseKey(fields[2])
}

// parseKey reads inline:KEY|LIFETIME|MKI:LENGTH.
func (a *Attribute) parseKey(text string) error {
	if strings.Contains(text, ";") {
		return ErrUnsupported
	}
	method, info, _ := strings.Cut(text, ":")
	if !strings.EqualFold(method, "inline") {
		return ErrUnsupported
	}
	parts := strings.Split(info, "|")
	octets, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(parts[0], "="))
	if err != nil || len(octets) != keyLen+saltLen || len(parts) > 3 {
		return ErrSyntax
	}
	a.Key = seal((*secret)(octets))
	for i, part := range parts[1:] {
		switch mki, length, isMKI := strings.Cut(part, ":"); {
		case isMKI && i == len(parts)-2:
			if !a.parseMKI(mki, length) {
				return ErrSyntax
			}
		case isMKI || i > 0 || !a.parseLifetime(part):
			return ErrSyntax
		}
	}
	return nil
}

func (a *Attribute) parseLifetime(text string) bool {
	if power, ok := strings.CutPrefix(text, "2^"); ok {
		n, ok := number(power, 48)
		a.Lifetime = 1 << n
		return ok
	}
	n, ok := number(text, maxLifetime)
	a.Lifetime = n
	return ok
}

func (a *Attribute) parseMKI(value, length string) bool {
	octets, ok := number(length, 128)
	if !ok {
		return false
	}
	mki, ok := number(value, math.MaxInt64)
	a.MKI, a.MKILen = mki, int(octets)
	return ok && (octets >= 8 || mki < 1<<(8*octets))
}

// number reads a positive number without leading zeros, up to a greatest.
func number(text string, greatest uint64) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && text[0] >= '1' && text[0] <= '9' && n <= greatest
}

// mki is the identifier as it stands in packets.
func (a *Attribute) mki() []byte {
	if a.MKILen == 0 {
		return nil
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 128), a.MKI)
	return b[len(b)-a.MKILen:]
}
