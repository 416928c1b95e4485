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
		{"one that must be understood", "0001 0010 " + transaction + "0006 0009 6162636465666768 69000000", from4, "0111 0010 " + transaction + "0009 0004 00000414 000a 0002 0006 0000"},
		{"two, one of them twice", "0001 0018 " + transaction + "0006 0003 61626300 0024 0004 00000001 0006 0003 61626300", from4, "0111 0014 " + transaction + "0009 0004 00000414 000a 0006 0006 0024 0006 0000"},
		{"one in a request that the error would be larger than", "0001 0008 " + transaction + "0006 0003 61626300", from4, ""},
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

// signed appends the fingerprint of a message without one.
func signed(t testing.TB, text string) []byte { return finish(octets(t, text), 0, true) }

// TestFingerprint has who sends a fingerprint get one, and who sends a wrong one nothing (RFC 8489 section 14.7).
func TestFingerprint(t *testing.T) {
	from := netip.MustParseAddrPort("192.0.2.1:1")
	plain := signed(t, "0001 0000 "+transaction)
	got := AppendAnswer(nil, plain, from)
	if len(got) != 40 || got[3] != 20 || !bytes.Equal(got[32:36], octets(t, "80280004")) {
		t.Errorf("%x", got)
	}
	unknown := signed(t, "0001 0000 "+transaction+"0006 0009 6162636465666768 69000000")
	for name, answer := range map[string][]byte{"an address": got, "an error": AppendAnswer(nil, unknown, from)} {
		if has, ok := read(answer); !ok || !has.fingerprint {
			t.Errorf("%s has a wrong fingerprint: %x", name, answer)
		}
	}
	for i := range plain {
		if i == headerSize || i == headerSize+1 { // else it is another attribute
			continue
		}
		wrong := bytes.Clone(plain)
		wrong[i] ^= 1
		if got := AppendAnswer(nil, wrong, from); len(got) > 0 {
			t.Errorf("octet %d is wrong, and the answer is %x", i, got)
		}
	}
	last := append(bytes.Clone(plain), octets(t, "8022 0000")...)
	last[3] += 4
	if got := AppendAnswer(nil, last, from); len(got) > 0 {
		t.Errorf("the fingerprint is not the last attribute, and the answer is %x", got)
	}
	// The request of RFC 5769 section 2.1.
	vector := octets(t, "0001 0058 "+transaction+"8022 0010 5354554e 20746573 7420636c 69656e74"+
		"0024 0004 6e0001ff 8029 0008 932ff9b1 51263b36 0006 0009 6576746a 3a683676 59202020"+
		"0008 0014 9aeaa70c bfd8cb56 781ef2b5 b2d3f249 c1b571a2 8028 0004 e57a3bcf")
	if has, ok := read(vector); !ok || !has.fingerprint || has.count != 3 {
		t.Errorf("the vector: %+v, %t", has, ok)
	}
}

// TestManyUnknown names no more attributes than there is room for.
func TestManyUnknown(t *testing.T) {
	request := octets(t, "0001 0050 "+transaction+strings.Repeat("0006 0000", 20))
	got := AppendAnswer(nil, request, netip.MustParseAddrPort("192.0.2.1:1"))
	if want := octets(t, "0111 001c "+transaction+"0009 0004 00000414 000a 0010"+strings.Repeat("0006", maxUnknown)); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// FuzzAnswer neither panics nor answers with more than twice and some of what has come.
func FuzzAnswer(f *testing.F) {
	f.Add(signed(f, "0001 0000 "+transaction))
	f.Add(octets(f, "0001 0010 "+transaction+"0006 0009 6162636465666768 69000000"))
	f.Fuzz(func(t *testing.T, request []byte) {
		from := netip.MustParseAddrPort("[2001:db8::1]:5060")
		_, _ = Mapped(request, [12]byte{})
		if got := AppendAnswer(nil, request, from); len(got) > 2*headerSize+24+8 || len(got) > 0 && !IsMessage(got) || len(got) > len(request) && got[1] == bindingError&0xff {
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
