// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package aka

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// set is a set of test data of TS 35.207 and TS 35.208.
type set struct {
	name                        string
	k, random, sqn, amf, op     string
	opc, macA, macS, res, ck    string
	ik, ak, akStar, wantedToken string
}

var sets = []set{
	{
		"set 1", "465b5ce8b199b49faa5f0a2ee238a6bc", "23553cbe9637a89d218ae64dae47bf35", "ff9bb4d0b607", "b9b9", "cdc202d5123e20f62b6d676ac72cb318",
		"cd63cb71954a9f4e48a5994e37a02baf", "4a9ffac354dfafb3", "01cfaf9ec4e871e9", "a54211d5e3ba50bf", "b40ba9a3c58b2a05bbf0d987b21bf8cb",
		"f769bcd751044604127672711c6d3441", "aa689c648370", "451e8beca43b", "55f328b43577b9b94a9ffac354dfafb3",
	},
	{
		"set 3", "0396eb317b6d1c36f19c1c84cd6ffd16", "c00d603103dcee52c4478119494202e8", "fd8eef40df7d", "af17", "ff53bade17df5d4e793073ce9d7579fa",
		"53c15671c60a4b731c55b4a441c0bde2", "5df5b31807e258b0", "a8c016e51ef4a343", "d3a628ed988620f0", "58c433ff7a7082acd424220f2b67c556",
		"21a8c1f929702adb3e738488b9f5c5da", "c47783995f72", "30f1197061c1", "39f96cd9800faf175df5b31807e258b0",
	},
	{
		"set 4", "fec86ba6eb707ed08905757b1bb44b8f", "9f7c8d021accf4db213ccff0c7f71a6a", "9d0277595ffc", "725c", "dbc59adcb6f9a0ef735477b7fadf8374",
		"1006020f0a478bf6b699f15c062e42b3", "9cabc3e99baf7281", "95814ba2b3044324", "8011c48c0c214ed2", "5dbdbb2954e8f3cde665b046179a5098",
		"59a92d3b476a0443487055cf88b2307b", "33484dc2136b", "deacdd848cc6", "",
	},
	{
		"set 5", "9e5944aea94b81165c82fbf9f32db751", "ce83dbc54ac0274a157c17f80d017bd6", "0b604a81eca8", "9e09", "223014c5806694c007ca1eeef57f004f",
		"a64a507ae1a2a98bb88eb4210135dc87", "74a58220cba84c49", "ac2cc74a96871837", "f365cd683cd92e96", "e203edb3971574f5a94b0d61b816345d",
		"0c4524adeac041c4dd830d20854fc46b", "f0b9c08ad02e", "6085a86c6f63", "",
	},
	{
		"set 6", "4ab1deb05ca6ceb051fc98e77d026a84", "74b0cd6031a1c8339b2b6ce2b8c4a186", "e880a1b580b6", "9f07", "2d16c5cd1fdf6b22383584e3bef2a8d8",
		"dcf07cbd51855290b92a07a9891e523e", "49e785dd12626ef2", "9e85790336bb3fa2", "5860fc1bce351e7e", "7657766b373d1c2138f307e3de9242f9",
		"1c42e960d89b8fa99f2744e0708ccb53", "31e11a609118", "fe2555e54aa9", "",
	},
}

func octets(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *set) milenage(t *testing.T) (m *Milenage, random [16]byte, sqn SQN, amf AMF) {
	t.Helper()
	m = NewMilenage(Key(octets(t, s.k)), Key(octets(t, s.opc)))
	return m, [16]byte(octets(t, s.random)), SQN(binary.BigEndian.Uint64(append([]byte{0, 0}, octets(t, s.sqn)...))), AMF(octets(t, s.amf))
}

// TestMilenage computes every function of the published sets.
func TestMilenage(t *testing.T) {
	for _, tt := range sets {
		t.Run(tt.name, func(t *testing.T) {
			m, random, sqn, amf := tt.milenage(t)
			opc := DeriveOPc(Key(octets(t, tt.k)), Key(octets(t, tt.op)))
			macA, macS := m.f1(random, sqn, amf)
			res, ak := m.f25(random)
			ck, ik, akStar := m.f3(random), m.f4(random), m.f5star(random)
			for _, f := range []struct {
				name string
				got  []byte
				want string
			}{
				{"OPc", opc[:], tt.opc}, {"f1", macA[:], tt.macA}, {"f1*", macS[:], tt.macS}, {"f2", res[:], tt.res},
				{"f3", ck[:], tt.ck}, {"f4", ik[:], tt.ik}, {"f5", ak[:], tt.ak}, {"f5*", akStar[:], tt.akStar},
			} {
				if got := hex.EncodeToString(f.got); got != f.want {
					t.Errorf("%s is %s, want %s", f.name, got, f.want)
				}
			}
			v := m.Vector(random, sqn, amf)
			if got := hex.EncodeToString(v.AUTN[:]); tt.wantedToken != "" && got != tt.wantedToken {
				t.Errorf("AUTN is %s, want %s", got, tt.wantedToken)
			}
			if v.Password() != string(res[:]) || v.CK != ck || v.IK != ik {
				t.Error("the vector differs from the functions")
			}
		})
	}
}

// TestAgreement has a terminal answer its network, and no other.
func TestAgreement(t *testing.T) {
	m, random, sqn, amf := sets[0].milenage(t)
	v := m.Vector(random, sqn, amf)
	a, ok := m.Answer(v.RAND, v.AUTN)
	if !ok || a.RES != v.XRES || a.CK != v.CK || a.IK != v.IK || a.SQN != sqn || a.AMF != amf {
		t.Errorf("the terminal has %+v of %+v, ok %t", a, v, ok)
	}
	other, _, _, _ := sets[1].milenage(t)
	if _, ok := other.Answer(v.RAND, v.AUTN); ok {
		t.Error("a terminal of another key took the challenge")
	}
	for i := range v.AUTN {
		forged := v.AUTN
		forged[i] ^= 1
		if a, ok := m.Answer(v.RAND, forged); ok || a != (Answer{}) {
			t.Errorf("a token with octet %d changed was taken: %+v", i, a)
		}
	}
}

// TestResynchronisation tells the network the terminal's number, for the challenge asked and by
// its own terminal alone.
func TestResynchronisation(t *testing.T) {
	m, random, sqn, _ := sets[0].milenage(t)
	auts := m.AUTS(random, sqn)
	if got, ok := m.Resynchronise(random, auts); !ok || got != sqn {
		t.Errorf("the network reads %x, ok %t; want %x", got, ok, sqn)
	}
	if _, ok := m.Resynchronise([16]byte{1}, auts); ok {
		t.Error("an answer to another challenge was taken")
	}
	for i := range auts {
		forged := auts
		forged[i] ^= 1
		if _, ok := m.Resynchronise(random, forged); ok {
			t.Errorf("an answer with octet %d changed was taken", i)
		}
	}
}

// TestSequenceNumbers counts as TS 33.102 annex C does.
func TestSequenceNumbers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sqn    SQN
		next   SQN
		usedUp bool
	}{
		{name: "the first", sqn: 0, next: 1<<5 | 1},
		{name: "the last place", sqn: 7<<5 | 31, next: 8 << 5},
		{name: "the last number", sqn: MaxSQN &^ 31, next: MaxSQN &^ 31, usedUp: true},
	} {
		if next, ok := tt.sqn.Next(); next != tt.next || ok == tt.usedUp {
			t.Errorf("%s: %#x is followed by %#x, ok %t", tt.name, tt.sqn, next, ok)
		}
	}
}

// TestWindow accepts numbers once each, out of order within their places.
func TestWindow(t *testing.T) {
	at := func(seq, ind SQN) SQN { return seq<<5 | ind }
	var w Window
	if w.Highest() != 0 {
		t.Errorf("an empty window has accepted %x", w.Highest())
	}
	for _, tt := range []struct {
		name string
		sqn  SQN
		want bool
	}{
		{"the first", at(5, 3), true},
		{"the same again", at(5, 3), false},
		{"an older one in another place", at(4, 2), true},
		{"an older one in the same place", at(4, 3), false},
		{"a newer one", at(6, 3), true},
		{"none", 0, false},
	} {
		if got := w.Accept(tt.sqn); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
	if w.Highest() != at(6, 3) {
		t.Errorf("the highest is %x, want %x", w.Highest(), at(6, 3))
	}
	// What the network makes of the highest is accepted.
	if next, ok := w.Highest().Next(); !ok || !w.Accept(next) {
		t.Errorf("the number behind the highest, %x, is refused", next)
	}
}

// TestNonce carries a challenge in a digest.
func TestNonce(t *testing.T) {
	n := Nonce{RAND: [16]byte{1, 2}, AUTN: [16]byte{3, 4}, Data: []byte("own")}
	got, ok := ParseNonce(n.String())
	if !ok || got.RAND != n.RAND || got.AUTN != n.AUTN || string(got.Data) != "own" {
		t.Errorf("%+v, ok %t", got, ok)
	}
	for name, s := range map[string]string{
		"empty": "", "no base64": "***", "too short for a challenge": "AAAAAAAAAAAAAAAAAAAAAA==",
		"cut": n.String()[:43],
	} {
		if _, ok := ParseNonce(s); ok {
			t.Errorf("%s: taken", name)
		}
	}
	auts := AUTS{1, 2, 3}
	if got, ok := ParseAUTS(auts.String()); !ok || got != auts {
		t.Errorf("AUTS %x, ok %t", got, ok)
	}
	for _, s := range []string{"", "AAAA", strings.Repeat("A", 24)} {
		if _, ok := ParseAUTS(s); ok {
			t.Errorf("AUTS %q was taken", s)
		}
	}
}

// TestKeysDoNotPrint keeps keys out of logs.
func TestKeysDoNotPrint(t *testing.T) {
	k := Key(octets(t, sets[0].k))
	for _, format := range []string{"%v", "%s", "%x", "%+v", "%#v", "%d"} {
		if got := fmt.Sprintf(format, struct{ K Key }{k}); strings.Contains(strings.ToLower(got), "5c") || strings.Contains(got, "91") {
			t.Errorf("%s prints %s", format, got)
		}
	}
}
