// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sdes

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pion/rtp"
)

// example is the key of RFC 4568 section 4.
const example = "PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR"

func TestParse(t *testing.T) {
	key, _ := base64.StdEncoding.DecodeString(example)
	want := func(tag int, s Suite, lifetime, mki uint64, length int) Attribute {
		return Attribute{tag, s, seal((*secret)(key)), lifetime, mki, length}
	}
	good := []struct {
		name, value string
		want        Attribute
	}{
		{"the example of section 4", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|2^20|1:32", want(1, AES80, 1<<20, 1, 32)},
		{"key alone", "1 AES_CM_128_HMAC_SHA1_32 inline:" + example, want(1, AES32, 0, 0, 0)},
		{"in another case", "7 aes_cm_128_hmac_sha1_80 INLINE:" + example, want(7, AES80, 0, 0, 0)},
		{"the greatest tag", "999999999 AES_CM_128_HMAC_SHA1_80 inline:" + example, want(999999999, AES80, 0, 0, 0)},
		{"lifetime in decimals", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|1048576", want(1, AES80, 1<<20, 0, 0)},
		{"the longest lifetime", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|2^48", want(1, AES80, 1<<48, 0, 0)},
		{"identifier without lifetime", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|1066:4", want(1, AES80, 0, 1066, 4)},
		{"a hint of the window", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + " WSH=128", want(1, AES80, 0, 0, 0)},
		{"a parameter that may be ignored", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + " -NEW=1", want(1, AES80, 0, 0, 0)},
	}
	for _, tt := range good {
		got, err := Parse(tt.value)
		if err != nil || got.Tag != tt.want.Tag || !got.Equal(tt.want) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
		if again, err := Parse(got.SDP()); err != nil || !again.Equal(got) {
			t.Errorf("%s: not read again: %v", tt.name, err)
		}
	}
	bad := []struct {
		name, value string
		want        error
	}{
		{"empty", "", ErrSyntax},
		{"no key", "1 AES_CM_128_HMAC_SHA1_80", ErrSyntax},
		{"leading zero of the tag", "01 AES_CM_128_HMAC_SHA1_80 inline:" + example, ErrSyntax},
		{"a tag too long", "1000000000 AES_CM_128_HMAC_SHA1_80 inline:" + example, ErrSyntax},
		{"a tag with a sign", "+1 AES_CM_128_HMAC_SHA1_80 inline:" + example, ErrSyntax},
		{"F8", "1 F8_128_HMAC_SHA1_80 inline:" + example, ErrUnsupported},
		{"another method", "1 AES_CM_128_HMAC_SHA1_80 url:" + example, ErrUnsupported},
		{"a key too short", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example[:36], ErrSyntax},
		{"a key too long", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "AAAA", ErrSyntax},
		{"no base64", "1 AES_CM_128_HMAC_SHA1_80 inline:" + strings.Repeat("?", 40), ErrSyntax},
		{"two keys", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|1:1;inline:" + example + "|2:1", ErrUnsupported},
		{"a lifetime of nothing", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|0", ErrSyntax},
		{"a lifetime too long", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|2^49", ErrSyntax},
		{"a lifetime far too long", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|2^4000000000", ErrSyntax},
		{"an identifier without length", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|2^20|1:", ErrSyntax},
		{"an identifier too long", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|2^20|1:129", ErrSyntax},
		{"an identifier that does not fit", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|256:1", ErrSyntax},
		{"identifier before lifetime", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|1:4|2^20", ErrSyntax},
		{"four parts", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|2^20|1:4|1:4", ErrSyntax},
		{"unencrypted", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + " UNENCRYPTED_SRTP", ErrUnsupported},
		{"unauthenticated", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + " UNAUTHENTICATED_SRTP", ErrUnsupported},
		{"key derivation rate", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + " KDR=1", ErrUnsupported},
		{"an unknown parameter", "1 AES_CM_128_HMAC_SHA1_80 inline:" + example + " NEW", ErrUnsupported},
	}
	for _, tt := range bad {
		if _, err := Parse(tt.value); !errors.Is(err, tt.want) {
			t.Errorf("%s: the error is %v, want %v", tt.name, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1 AES_CM_128_HMAC_SHA1_80 inline:" + example + "|2^20|1:32 WSH=64")
	f.Fuzz(func(t *testing.T, value string) {
		a, err := Parse(value)
		if err != nil {
			return
		}
		if again, err := Parse(a.SDP()); err != nil || again.Tag != a.Tag || !again.Equal(a) {
			t.Errorf("%q is not read again: %v", value, err)
		}
		if _, err := NewContext(a); err != nil {
			t.Errorf("%q makes no context: %v", value, err)
		}
	})
}

// TestNothingPrintsASecret prints an attribute as logs and tests may.
func TestNothingPrintsASecret(t *testing.T) {
	a, err := Parse("1 AES_CM_128_HMAC_SHA1_80 inline:" + example)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewContext(a)
	if err != nil {
		t.Fatal(err)
	}
	holder := struct{ hidden Attribute }{a}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		for _, shown := range []any{a, &a, a.Key, &a.Key, holder, &holder, []Attribute{a}, c.Attribute()} {
			text := fmt.Sprintf(verb, shown)
			for _, secret := range []string{example, "PS1u", "3d2d6e40", "=-n@", "61 45 110 64", "0x3d, 0x2d"} {
				if strings.Contains(text, secret) {
					t.Errorf("%s of %T prints %s", verb, shown, text)
				}
			}
		}
	}
}

// attribute has the key of RFC 3711 appendix B.3.
func attribute(s Suite) Attribute {
	key, _ := hex.DecodeString("e1f97a0d3e018be0d64fa32c06de4139" + "0ec675ad498afeebb6960b3aabe6")
	return Attribute{Tag: 1, Suite: s, Key: seal((*secret)(key))}
}

func contexts(t *testing.T, a Attribute) (send, receive *Context) {
	t.Helper()
	send, err := NewContext(a)
	if err != nil {
		t.Fatal(err)
	}
	if receive, err = NewContext(a); err != nil {
		t.Fatal(err)
	}
	return send, receive
}

// packet makes one of RTP with a payload of n octets.
func packet(t *testing.T, sequence uint16, n int) []byte {
	t.Helper()
	p := rtp.Packet{Header: rtp.Header{Version: 2, SequenceNumber: sequence, SSRC: 0xcafe}, Payload: make([]byte, n)}
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestProtect(t *testing.T) {
	for _, tt := range []struct {
		name   string
		suite  Suite
		mki    int
		longer int
	}{{"80", AES80, 0, 10}, {"32", AES32, 0, 4}, {"with an identifier", AES80, 3, 13}} {
		t.Run(tt.name, func(t *testing.T) {
			a := attribute(tt.suite)
			a.MKI, a.MKILen = 5, tt.mki
			send, receive := contexts(t, a)
			plain := packet(t, 7, 160)
			p, err := send.Protect(make([]byte, 0, len(plain)+send.Overhead()), plain)
			if err != nil || len(p) != len(plain)+tt.longer || bytes.Contains(p, plain[12:]) {
				t.Fatalf("protected: %x, %v", p, err)
			}
			forged := bytes.Clone(p)
			forged[20]++
			if _, err := receive.Open(nil, forged); err == nil {
				t.Error("a changed packet is taken")
			}
			opened, err := receive.Open(nil, p)
			if err != nil || !bytes.Equal(opened, plain) {
				t.Errorf("opened: %x, %v", opened, err)
			}
			if _, err := receive.Open(nil, p); err == nil {
				t.Error("a packet is taken twice")
			}
			if _, err := receive.Open(nil, plain); err == nil {
				t.Error("a plain packet is taken")
			}
		})
	}
}

// TestRollover lets sequence numbers come round, with losses there and packets that come
// late: both sides keep count (RFC 3711 section 3.3.1).
func TestRollover(t *testing.T) {
	send, receive := contexts(t, attribute(AES80))
	var late []byte
	for i := range 3 * 65536 {
		if at := uint16(i + 32000); i%37 != 0 && at > 40 && at < 65500 {
			continue // a loss that changes nothing
		}
		plain := packet(t, uint16(i+32000), 1)
		p, err := send.Protect(nil, plain)
		if err != nil {
			t.Fatal(err)
		}
		switch at := uint16(i + 32000); {
		case at == 65535:
			late = p
			continue
		case at < 4:
			continue // lost
		case at == 6:
			if _, err := receive.Open(nil, late); err != nil {
				t.Fatalf("late, after %d packets: %v", i, err)
			}
		}
		if opened, err := receive.Open(nil, p); err != nil || !bytes.Equal(opened, plain) {
			t.Fatalf("after %d packets: %v", i, err)
		}
	}
}

func TestControl(t *testing.T) {
	send, receive := contexts(t, attribute(AES32))
	plain := []byte{0x80, 201, 0, 1, 0, 0, 0xca, 0xfe}
	p, err := send.ProtectControl(nil, plain)
	if err != nil || len(p) != len(plain)+Overhead { // the tag of RTCP has 80 bits in both suites
		t.Fatalf("protected: %x, %v", p, err)
	}
	if opened, err := receive.OpenControl(nil, p); err != nil || !bytes.Equal(opened, plain) {
		t.Errorf("opened: %x, %v", opened, err)
	}
	if _, err := receive.OpenControl(nil, p); err == nil {
		t.Error("a packet is taken twice")
	}
}

func TestLifetime(t *testing.T) {
	a := attribute(AES80)
	a.Lifetime = 2
	send, _ := contexts(t, a)
	unlimited, receive := contexts(t, attribute(AES80))
	receive.attribute.Lifetime = 2
	for i := range uint16(3) {
		_, err := send.Protect(nil, packet(t, i, 1))
		if (err == nil) != (i < 2) || i == 2 && !errors.Is(err, ErrExpired) {
			t.Errorf("packet %d protected: %v", i, err)
		}
		p, err := unlimited.Protect(nil, packet(t, i, 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = receive.Open(nil, p); (err == nil) != (i < 2) {
			t.Errorf("packet %d opened: %v", i, err)
		}
	}
}

func TestNewKey(t *testing.T) {
	k, err := NewKey(bytes.NewReader(make([]byte, 29)))
	if err == nil || k.Valid() {
		t.Error("a key is made without enough randomness")
	}
	if _, err := NewContext(Attribute{Suite: AES80, Key: k}); err == nil {
		t.Error("a context is made without a key")
	}
	k, err = NewKey(bytes.NewReader(make([]byte, 30)))
	if err != nil || !k.Valid() || k.Equal(Key{}) || !k.Equal(k) {
		t.Errorf("the key is %v, %v", k, err)
	}
}

func BenchmarkProtect(b *testing.B) {
	send, err := NewContext(attribute(AES80))
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 172)
	p[0] = 0x80
	dst := make([]byte, 0, 256)
	var sequence uint16
	b.ReportAllocs()
	for b.Loop() {
		p[2], p[3] = byte(sequence>>8), byte(sequence)
		sequence++
		if _, err := send.Protect(dst, p); err != nil {
			b.Fatal(err)
		}
	}
}
