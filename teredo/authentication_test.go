// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func algorithm(t testing.TB, name string) Algorithm {
	t.Helper()
	for a := range numAlgorithms {
		if a.String() == name {
			return a
		}
	}
	t.Fatalf("no algorithm %q", name)
	return 0
}

// TestAuthenticationValues compares with what Python's hmac computes; see
// testdata/authentication.py.
func TestAuthenticationValues(t *testing.T) {
	text, err := os.ReadFile("testdata/authentication.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		f := strings.Split(line, " | ")
		if len(f) != 8 {
			t.Fatalf("line with %d fields: %s", len(f), line)
		}
		t.Run(f[0]+", "+f[1], func(t *testing.T) {
			secret, nonce, confirmation, want := testutil.Unhex(t, f[2]), [8]byte(testutil.Unhex(t, f[3])), testutil.Unhex(t, f[4])[0], testutil.Unhex(t, f[7])
			wire := testutil.Unhex(t, f[5]+f[6])
			p, err := Parse(wire)
			if err != nil {
				t.Fatal(err)
			}
			key := NewKey(algorithm(t, f[1]), secret)
			for range 2 { // the second value is made from the kept state
				if got := key.Value(nonce, confirmation, p.Origin, p.IPv6); !bytes.Equal(got, want) {
					t.Fatalf("value %x, want %x", got, want)
				}
			}
			auth := Auth{ClientID: []byte("north"), Value: want, Nonce: nonce, Confirmation: confirmation}
			if p, err = Parse(append(auth.AppendTo(nil), wire...)); err != nil || !key.Verify(&p) {
				t.Errorf("the packet with its value is not verified, %v", err)
			}
		})
	}
}

// TestAuthenticationPublished checks the vectors of RFC 2202 and RFC 4231, whose
// text is cut into the parts that a value covers.
func TestAuthenticationPublished(t *testing.T) {
	const text = "Test Using Larger Than Block-Size Key - Hash Key First"
	for _, tt := range []struct {
		name      string
		algorithm Algorithm
		key       int // bytes 0xaa
		want      string
	}{
		{"RFC 2202, HMAC-SHA1 case 6", HMACSHA1, 80, "aa4ae5e15272d00e95705637ce8a3b55ed402112"},
		{"RFC 4231, HMAC-SHA256 case 6", HMACSHA256, 131, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := NewKey(tt.algorithm, bytes.Repeat([]byte{0xaa}, tt.key))
			if got := hex.EncodeToString(key.Value([8]byte([]byte(text[:8])), text[8], netip.AddrPort{}, []byte(text[9:]))); got != tt.want {
				t.Errorf("value %s, want %s", got, tt.want)
			}
		})
	}
}

// authenticated is a solicitation with the value of the key, taken apart.
func authenticated(t testing.TB, key *Key) Packet {
	t.Helper()
	rs := AppendRouterSolicitation(nil, netip.MustParseAddr("fe80::1"))
	auth := Auth{ClientID: []byte("north"), Nonce: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}}
	auth.Value = key.Value(auth.Nonce, 0, netip.AddrPort{}, rs)
	p, err := Parse(append(auth.AppendTo(nil), rs...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAuthenticationRefuses(t *testing.T) {
	key := NewKey(HMACSHA1, []byte("correct horse battery staple"))
	for _, tt := range []struct {
		name  string
		spoil func(*Packet)
	}{
		{"another nonce", func(p *Packet) { p.Auth.Nonce[7]++ }},
		{"another confirmation byte", func(p *Packet) { p.Auth.Confirmation = 1 }},
		{"an origin added", func(p *Packet) { p.Origin = netip.MustParseAddrPort("192.0.2.1:1") }},
		{"another source", func(p *Packet) { p.IPv6[23]++ }},
		{"a byte of the value", func(p *Packet) { p.Auth.Value[0]++ }},
		{"value cut short", func(p *Packet) { p.Auth.Value = p.Auth.Value[:19] }},
		{"value too long", func(p *Packet) { p.Auth.Value = append(p.Auth.Value[:20:20], 0) }},
		{"no value", func(p *Packet) { p.Auth.Value = nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := authenticated(t, key)
			if !key.Verify(&p) {
				t.Fatal("refused before it was spoilt")
			}
			if tt.spoil(&p); key.Verify(&p) {
				t.Error("accepted")
			}
		})
	}
	t.Run("another secret", func(t *testing.T) {
		if p := authenticated(t, key); NewKey(HMACSHA1, []byte("correct horse battery stable")).Verify(&p) {
			t.Error("accepted")
		}
	})
	t.Run("another algorithm", func(t *testing.T) {
		if p := authenticated(t, key); NewKey(HMACSHA256, []byte("correct horse battery staple")).Verify(&p) {
			t.Error("accepted")
		}
	})
}

// Identifier and trailers are not covered (RFC 4380 section 5.2.2).
func TestAuthenticationCoversNoMore(t *testing.T) {
	key := NewKey(HMACSHA256, []byte("correct horse battery staple"))
	p := authenticated(t, key)
	p.Auth.ClientID = []byte("south")
	p.Trailers = []byte{1, 4, 1, 2, 3, 4}
	if !key.Verify(&p) {
		t.Error("refused")
	}
}

func TestCredentialCheck(t *testing.T) {
	secret := []byte("0123456789abcdef")
	for _, tt := range []struct {
		name string
		c    Credential
		want string // part of the error
	}{
		{"whole", Credential{"north", secret, HMACSHA256}, ""},
		{"longest identifier", Credential{strings.Repeat("n", 255), secret, HMACSHA1}, ""},
		{"no identifier", Credential{"", secret, HMACSHA1}, "cannot be sent"},
		{"identifier too long", Credential{strings.Repeat("n", 256), secret, HMACSHA1}, "cannot be sent"},
		{"secret too short", Credential{"north", secret[:15], HMACSHA1}, "use at least 16"},
		{"unknown algorithm", Credential{"north", secret, numAlgorithms}, "not known"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.c.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAuthenticationAllocatesNothing(t *testing.T) {
	for a := range numAlgorithms {
		key := NewKey(a, []byte("correct horse battery staple"))
		p := authenticated(t, key)
		ok := true
		if n := testing.AllocsPerRun(100, func() { ok = key.Verify(&p) && ok }); n != 0 || !ok {
			t.Errorf("%s: %v allocations, verified: %v", a, n, ok)
		}
	}
}

// FuzzAuthentication compares Verify with the words of RFC 4380 section 5.2.2
// applied to the bytes on the wire.
func FuzzAuthentication(f *testing.F) {
	secret := []byte("correct horse battery staple")
	for a := range numAlgorithms {
		p := authenticated(f, NewKey(a, secret))
		wire := append(p.Auth.AppendTo(nil), p.IPv6...)
		f.Add(wire, uint8(a))
		f.Add(append(wire, 1, 4, 1, 2, 3, 4), uint8(a))
	}
	f.Fuzz(func(t *testing.T, wire []byte, a uint8) {
		p, err := Parse(wire)
		if err != nil || !p.HasAuth {
			return
		}
		new := sha1.New
		alg := Algorithm(a % uint8(numAlgorithms))
		if alg == HMACSHA256 {
			new = sha256.New
		}
		behind := 4 + len(p.Auth.ClientID) + len(p.Auth.Value)
		mac := hmac.New(new, secret)
		mac.Write(wire[behind : len(wire)-len(p.Trailers)])
		want := mac.Sum(nil)
		if got := NewKey(alg, secret).Verify(&p); got != bytes.Equal(want, p.Auth.Value) {
			t.Fatalf("verified: %v, value %x, want %x", got, p.Auth.Value, want)
		}
	})
}
