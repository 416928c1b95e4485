// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package stun

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

// The transaction of the vectors of RFC 5769.
const transaction = "2112a442 b7e7a701 bc34d686 fa87dfae"

func octets(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAnswer compares answers by octets; the addresses are written as in RFC 5769 sections 2.2 and 2.3.
func TestAnswer(t *testing.T) {
	const from4, from6 = "192.0.2.1:32853", "[2001:db8:1234:5678:11:2233:4455:6677]:32853"
	for _, tt := range []struct{ name, request, from, want string }{
		{"IPv4", "0001 0000 " + transaction, from4, "0101 000c " + transaction + "0020 0008 0001 a147 e112a643"},
		{"IPv6", "0001 0000 " + transaction, from6, "0101 0018 " + transaction + "0020 0014 0002 a147 0113a9fa a5d3f179 bc25f4b5 bed2b9d9"},
		{"an attribute that may be passed over", "0001 0008 " + transaction + "8022 0003 61626300", from4, "0101 000c " + transaction + "0020 0008 0001 a147 e112a643"},
		{"one that must be understood", "0001 0008 " + transaction + "0006 0003 61626300", from4, ""},
		{"an attribute cut short", "0001 0008 " + transaction + "8022 0008 61626300", from4, ""},
		{"half an attribute", "0001 0002 " + transaction + "8022", from4, ""},
		{"another length", "0001 0004 " + transaction, from4, ""},
		{"an indication", "0011 0000 " + transaction, from4, ""},
		{"an answer", "0101 0000 " + transaction, from4, ""},
		{"another cookie", "0001 0000 2112a443 b7e7a701 bc34d686 fa87dfae", from4, ""},
		{"cut short", "0001 0000 2112a442", from4, ""},
	} {
		if got := AppendAnswer(nil, octets(t, tt.request), netip.MustParseAddrPort(tt.from)); !bytes.Equal(got, octets(t, tt.want)) {
			t.Errorf("%s: %x, want %s", tt.name, got, tt.want)
		}
	}
}

// TestFingerprint has who sends a fingerprint get one: that of the request of RFC 5769 is right by
// the same rule.
func TestFingerprint(t *testing.T) {
	got := AppendAnswer(nil, octets(t, "0001 0008 "+transaction+"8028 0004 00000000"), netip.MustParseAddrPort("192.0.2.1:1"))
	if len(got) != 40 || got[3] != 20 || !bytes.Equal(got[32:36], octets(t, "80280004")) {
		t.Errorf("%x", got)
	}
}

// FuzzAnswer neither panics nor answers with more than twice and some of what has come.
func FuzzAnswer(f *testing.F) {
	f.Add(octets(f, "0001 0008 "+transaction+"8028 0004 00000000"))
	f.Fuzz(func(t *testing.T, request []byte) {
		from := netip.MustParseAddrPort("[2001:db8::1]:5060")
		_, _ = Mapped(request, [12]byte{})
		if got := AppendAnswer(nil, request, from); len(got) > 2*headerSize+24+8 || len(got) > 0 && !IsMessage(got) {
			t.Errorf("%x is answered by %x", request, got)
		}
	})
}

// TestMapped asks, and reads what is answered.
func TestMapped(t *testing.T) {
	id := [12]byte{1, 2, 3, 12}
	for _, text := range []string{"192.0.2.1:5060", "[2001:db8::1]:40000"} {
		from := netip.MustParseAddrPort(text)
		answer := AppendAnswer(nil, AppendRequest(nil, id), from)
		if at, ok := Mapped(answer, id); !ok || at != from {
			t.Errorf("%v, %t, want %v", at, ok, from)
		}
		if _, ok := Mapped(answer, [12]byte{}); ok {
			t.Error("the answer to another request is taken")
		}
		if _, ok := Mapped(AppendRequest(nil, id), id); ok {
			t.Error("a request is taken")
		}
		for n := range answer {
			if at, _ := Mapped(answer[:n], id); at.IsValid() {
				t.Errorf("%v in %d octets of %d", at, n, len(answer))
			}
		}
	}
}
