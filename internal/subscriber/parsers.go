// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// Key is a key of AKA.
type Key [16]byte

// String hides the key.
func (Key) String() string { return "(secret)" }

// Format hides the key from every verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("(secret)")) }

// The faults of secrets do not repeat them.

var secretKey = key.Text("…", func(s string) (*Key, *key.Fault) {
	var k Key
	if n, err := hex.Decode(k[:], []byte(s[:min(len(s), 32)])); err != nil || n != len(k) || len(s) != 32 {
		return nil, key.Wrong("write 16 octets as 32 hexadecimal digits: openssl rand -hex 16", "this is not a key of 16 octets")
	}
	return &k, nil
})

// digest parses a digest of so many hexadecimal digits.
func digest(digits int) key.Parser[config.Secret] {
	return key.Text("…", func(s string) (config.Secret, *key.Fault) {
		if _, err := hex.DecodeString(s); err != nil || len(s) != digits {
			return "", key.Wrong(fmt.Sprintf("write %d hexadecimal digits", digits), "this is not such a digest")
		}
		return config.Secret(strings.ToLower(s)), nil
	})
}

// maxPassword bounds a password, in octets.
const maxPassword = 256

var password = key.Text("…", func(s string) (config.Secret, *key.Fault) {
	if len(s) > maxPassword {
		return "", key.Wrong(fmt.Sprintf("choose one of up to %d octets", maxPassword), "this password is too long")
	}
	return config.Secret(s), nil
})

// hexNumber parses a number of so many hexadecimal digits.
func hexNumber(example string) key.Parser[uint64] {
	return key.Text(example, func(s string) (uint64, *key.Fault) {
		b, err := hex.DecodeString(s)
		if err != nil || len(s) != len(example) {
			return 0, key.Wrong(fmt.Sprintf("write %d of them, like %s", len(example), example), "%q are not %d hexadecimal digits", s, len(example))
		}
		var all [8]byte
		copy(all[8-len(b):], b)
		return binary.BigEndian.Uint64(all[:]), nil
	})
}

var sequenceNumber = hexNumber("000000000020")

func managementField(raw any) (amf [2]byte, f *key.Fault) {
	n, f := hexNumber("8000")(raw)
	binary.BigEndian.PutUint16(amf[:], uint16(n))
	return amf, f
}

// matching parses text of a form, which is compiled for the first of them: most programs read none.
func matching(example, form, what string) key.Parser[string] {
	syntax := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^" + form + "$") })
	return key.Text(example, func(s string) (string, *key.Fault) {
		if !syntax().MatchString(s) {
			return "", key.Wrong("write it like "+example, "%q is not %s", s, what)
		}
		return s, nil
	})
}

// digits parses a number of so many digits.
func digits(example string, least, most int, what string) key.Parser[string] {
	return key.Text(example, func(s string) (string, *key.Fault) {
		if len(s) < least || len(s) > most || strings.ContainsFunc(s, func(r rune) bool { return !isDigit(r) }) {
			return "", key.Wrong("write it like "+example, "%q is not %s", s, what)
		}
		return s, nil
	})
}

const (
	userSyntax = `[A-Za-z0-9._~!$&'()*+,=%-]{1,64}`
	hostSyntax = `(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)`
	portSyntax = `(:[0-9]{1,5})?`
)

var (
	imsi      = digits("001010123456789", 6, 15, "an IMSI")
	msisdn    = matching("15550100", `[1-9][0-9]{2,14}`, "a number to dial")
	privateID = matching("alice@ims.example", userSyntax+`(@`+hostSyntax+`)?`, "a private identity")
	publicID  = matching("sip:alice@ims.example", `(sips?:`+userSyntax+`@`+hostSyntax+portSyntax+`|tel:\+?[0-9]{1,15})`, "an address of record")
	sipURI    = matching("sip:scscf.ims.example:5060", `sips?:(`+userSyntax+`@)?`+hostSyntax+portSyntax+`(;lr)?`, "the SIP URI of a server")
)

// apnName parses the name of an access point.
var apnName = key.Text("internet", func(s string) (string, *key.Fault) {
	if s == "" || len(s) > 99 || !isAlphanumeric(rune(s[0])) || !isAlphanumeric(rune(s[len(s)-1])) ||
		strings.ContainsFunc(s, func(r rune) bool { return !isAlphanumeric(r) && r != '-' && r != '.' }) {
		return "", key.Wrong("write it like internet", "%q is not the name of an access point", s)
	}
	return s, nil
})

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

func isAlphanumeric(r rune) bool {
	return isDigit(r) || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// prefix64 parses the prefix of a link.
var prefix64 = key.Text("2001:db8:6f00:9::/64", func(s string) (netip.Prefix, *key.Fault) {
	p, f := key.PrefixLike(s, "2001:db8:6f00:9::/64")
	if f == nil && (!p.Addr().Is6() || p.Bits() != 64) {
		f = key.Wrong("write one like 2001:db8:6f00:9::/64", "%s is no /64", p)
	}
	return p, f
})

// Of a file of a hundred thousand subscribers each parser is made once.
var (
	optionalIMSI, optionalMSISDN, optionalPrivateID = key.Optional(imsi), key.Optional(msisdn), key.Optional(privateID)
	publicIDs, optionalURI                          = key.List(publicID), key.Optional(sipURI)
	optionalKey, optionalPassword                   = key.Optional(secretKey), key.Optional(password)
	optionalMD5, optionalSHA256                     = key.Optional(digest(32)), key.Optional(digest(64))
	optionalAddress, optionalPrefix                 = key.Optional(key.Address4), key.Optional(prefix64)
	apnTypes, rate                                  = key.List(key.OneOf(IPv4, IPv6, IPv4v6)), key.Integer[int](0, maxRate)
)
