// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package digest

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example are the credentials of RFC 7616 section 3.9.1, folded as a message may have them.
const example = "Digest username=\"Mufasa\",\r\n realm=\"http-auth@example.org\", uri=\"/dir/index.html\" , algorithm=ALGORITHM,\t" +
	"nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", nc=00000001, cnonce=\"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ\", " +
	"qop=auth, response=\"RESPONSE\", opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""

// TestResponses computes what RFCs print, and finds each change of it.
func TestResponses(t *testing.T) {
	for _, tt := range []struct{ name, header, password, method, want string }{
		{
			"RFC 7616 section 3.9.1, MD5", strings.Replace(example, "ALGORITHM", "MD5", 1), "Circle of Life", "GET",
			"8ca523f5e9506fed4657c9700eebdbec",
		},
		{
			"RFC 7616 section 3.9.1, SHA-256", strings.Replace(example, "ALGORITHM", "sha-256", 1), "Circle of Life", "GET",
			"753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
		},
		{
			"RFC 2617 section 3.5, without an algorithm",
			`Digest username="Mufasa", realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", uri="/dir/index.html", qop=auth, nc=00000001, cnonce="0a4f113b", response="RESPONSE", opaque="5ccc069c403ebaf9f0171e9517f40e41"`,
			"Circle Of Life", "GET", "6629fae49393a05397450978507c4ef1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseCredentials(strings.Replace(tt.header, "RESPONSE", strings.ToUpper(tt.want), 1))
			if err != nil {
				t.Fatal(err)
			}
			ha1 := c.Algorithm.HA1(c.Username, c.Realm, tt.password)
			if got := c.Expected(ha1, tt.method, nil); got != tt.want || !c.Matches(ha1, tt.method, nil) {
				t.Errorf("the response is %s, want %s", got, tt.want)
			}
			other := c
			other.Count++
			for name, wrong := range map[string]bool{
				"another password": c.Matches(c.Algorithm.HA1(c.Username, c.Realm, "other"), tt.method, nil),
				"another method":   c.Matches(ha1, "PUT", nil),
				"another count":    other.Matches(ha1, tt.method, nil),
			} {
				if wrong {
					t.Errorf("%s matches", name)
				}
			}
		})
	}
}

// TestIntegrity covers the body with auth-int, and an empty one by its digest (RFC 8760 section
// 2.6, number 7).
func TestIntegrity(t *testing.T) {
	c := Credentials{Username: "a", Realm: "r", Nonce: "n", URI: "sip:r", Algorithm: SHA256, QOP: "auth-int", CNonce: "c", Count: 1}
	ha1 := c.Algorithm.HA1("a", "r", "p")
	c.Response = c.Expected(ha1, "REGISTER", []byte("body"))
	if !c.Matches(ha1, "REGISTER", []byte("body")) || c.Matches(ha1, "REGISTER", []byte("bodY")) || c.Matches(ha1, "REGISTER", nil) {
		t.Error("the response does not follow the body")
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got := SHA256.sum(""); got != empty {
		t.Errorf("the digest of nothing is %s", got)
	}
}

// TestAnswer answers challenges as their servers expect it.
func TestAnswer(t *testing.T) {
	for _, a := range algorithms {
		for _, qop := range [][]string{nil, {"auth"}, {"auth-int", "auth"}} {
			made := Challenge{Realm: `a "realm"`, Nonce: "nonce", Opaque: "opaque", Algorithm: a, QOP: qop, Stale: len(qop) > 0}
			c, ok := Choose([]string{"Basic realm=x", "Digest realm=x, nonce=y, algorithm=SHA-1", made.String()}, true)
			if !ok || !reflect.DeepEqual(c, made) {
				t.Fatalf("the challenge %s reads %+v", made, c)
			}
			ha1 := a.HA1("al\\ice", made.Realm, "password")
			answer := c.Answer("al\\ice", ha1, "REGISTER", "sip:[2001:db8::1]", "cnonce", 0x1f)
			got, err := ParseCredentials(answer.String())
			if diff := cmp.Diff(answer, got); err != nil || diff != "" {
				t.Errorf("%v, (-want +got):\n%s", err, diff)
			}
			if !got.Matches(ha1, "REGISTER", nil) || (got.QOP == "auth") != (len(qop) > 0) {
				t.Errorf("the answer %s to %s does not match", answer, made)
			}
		}
	}
}

// TestChoose takes the topmost challenge that can be answered (RFC 8760 section 2.4).
func TestChoose(t *testing.T) {
	const aka, sha, md5, integrity = `Digest realm="a", nonce="1", algorithm=AKAv1-MD5, qop="auth"`, `Digest realm="a", nonce="2", algorithm=SHA-256, qop="auth"`,
		`Digest realm="a", nonce="3", qop="auth"`, `Digest realm="a", nonce="4", qop="auth-int"`
	for _, tt := range []struct {
		name    string
		headers []string
		aka     bool
		want    string // the nonce
	}{
		{"the first", []string{sha, md5}, false, "2"},
		{"not the strongest", []string{md5, sha}, false, "3"},
		{"AKA for a SIM", []string{aka, sha}, true, "1"},
		{"AKA without a SIM", []string{aka, sha}, false, "2"},
		{"a quality that is not known", []string{integrity, md5}, false, "3"},
		{"none", []string{integrity, "Basic realm=a", "Digest"}, true, ""},
	} {
		c, ok := Choose(tt.headers, tt.aka)
		if c.Nonce != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %+v, ok %t", tt.name, c, ok)
		}
	}
}

// TestBadCredentials refuses what would leave the response undefined.
func TestBadCredentials(t *testing.T) {
	const good = `Digest username="a", realm="r", nonce="n", uri="sip:r", response="00"`
	for _, tt := range []struct {
		name, header string
		want         error
	}{
		{"good", good, nil},
		{"good, small letters", strings.Replace(good, "Digest", "digest", 1), nil},
		{"a comma at the end", good + ",", nil},
		{"another scheme", strings.Replace(good, "Digest", "Basic", 1), ErrNotDigest},
		{"empty", "", ErrNotDigest},
		{"no parameters", "Digest", ErrMissing},
		{"no name", strings.Replace(good, "username", "user", 1), ErrMissing},
		{"a parameter twice", good + `, NONCE="m"`, ErrTwice},
		{"an open quotation", good + `, opaque="x`, ErrMalformed},
		{"an escape at the end", good + `, opaque="x\`, ErrMalformed},
		{"no comma", good + ` opaque="x"`, ErrMalformed},
		{"no value", good + `, opaque=`, ErrMalformed},
		{"no name of a parameter", good + `, ="x"`, ErrMalformed},
		{"no equals sign", good + `, opaque`, ErrMalformed},
		{"an algorithm of a session", good + ", algorithm=MD5-sess", ErrUnknown},
		{"a quality without a count", good + `, qop=auth, cnonce="c"`, ErrMissing},
		{"a quality without a nonce of the client", good + `, qop=auth, nc=00000001`, ErrMissing},
		{"a quality that is not known", good + `, qop=x, cnonce="c", nc=00000001`, ErrMalformed},
		{"a count of 0", good + `, qop=auth, cnonce="c", nc=00000000`, ErrMalformed},
		{"a count that is too short", good + `, qop=auth, cnonce="c", nc=1`, ErrMalformed},
		{"a count that is none", good + `, qop=auth, cnonce="c", nc=-0000001`, ErrMalformed},
		{"too long", good + `, opaque="` + strings.Repeat("x", maxHeader) + `"`, ErrMalformed},
	} {
		if _, err := ParseCredentials(tt.header); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// FuzzCredentials writes what it reads so that it reads the same again.
func FuzzCredentials(f *testing.F) {
	f.Add(strings.Replace(example, "ALGORITHM", "MD5", 1))
	f.Add(`Digest username="", realm="\\\"", nonce="n", uri="sip:r", response="00", auts="x"`)
	f.Fuzz(func(t *testing.T, header string) {
		c, err := ParseCredentials(header)
		if err != nil {
			return
		}
		if c.Realm == "" || c.Nonce == "" || c.URI == "" || c.Response == "" || c.QOP == "" {
			return // an empty parameter is not written
		}
		again, err := ParseCredentials(c.String())
		if err == nil && again != c || err != nil && len(c.String()) <= maxHeader {
			t.Errorf("%q\nreads as %+v\nand then as %+v, %v", header, c, again, err)
		}
	})
}
