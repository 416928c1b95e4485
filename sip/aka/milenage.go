// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package aka

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"
)

// Key is a subscriber's key K, or an operator's OP or OPc.
type Key [16]byte

// String hides the key.
func (Key) String() string { return "(secret)" }

// GoString hides the key.
func (Key) GoString() string { return "(secret)" }

// Format hides the key from every verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("(secret)")) }

// DeriveOPc returns OPc, which binds the operator's OP to one subscriber (TS 35.206 section 4.1).
func DeriveOPc(k, op Key) Key {
	return Key(xor(encrypt(cipherOf(k), op), op))
}

// Milenage are the functions f1 to f5* of one subscriber (TS 35.206 section 4.1).
type Milenage struct {
	cipher cipher.Block
	opc    [16]byte
}

// NewMilenage returns the functions of a subscriber.
func NewMilenage(k, opc Key) *Milenage { return &Milenage{cipherOf(k), opc} }

// MilenageOf returns those of a subscriber of whom OPc is known or, if that is nil, the operator's OP.
func MilenageOf(k Key, op, opc *Key) *Milenage {
	if opc == nil {
		derived := DeriveOPc(k, *op)
		opc = &derived
	}
	return NewMilenage(k, *opc)
}

// f1 returns MAC-A of f1, and MAC-S of f1*.
func (m *Milenage) f1(random [16]byte, sqn SQN, amf [2]byte) (macA, macS [8]byte) {
	var in [16]byte
	s := sqn.octets()
	copy(in[:], s[:])
	copy(in[6:], amf[:])
	copy(in[8:], in[:8])
	out := xor(encrypt(m.cipher, xor(m.temp(random), rotate(xor(in, m.opc), 8))), m.opc)
	return [8]byte(out[:8]), [8]byte(out[8:])
}

// f25 returns the result of f2 and the anonymity key of f5.
func (m *Milenage) f25(random [16]byte) (res [8]byte, ak [6]byte) {
	out := m.out(random, 0, 1)
	return [8]byte(out[8:]), [6]byte(out[:6])
}

// f3 returns the cipher key.
func (m *Milenage) f3(random [16]byte) [16]byte { return m.out(random, 4, 2) }

// f4 returns the integrity key.
func (m *Milenage) f4(random [16]byte) [16]byte { return m.out(random, 8, 4) }

// f5star returns the anonymity key of a resynchronisation.
func (m *Milenage) f5star(random [16]byte) [6]byte {
	out := m.out(random, 12, 8)
	return [6]byte(out[:6])
}

// temp is TEMP of TS 35.206 section 4.1.
func (m *Milenage) temp(random [16]byte) [16]byte { return encrypt(m.cipher, xor(random, m.opc)) }

// out is one of OUT2 to OUT5, of a rotation in octets and of a constant's last octet.
func (m *Milenage) out(random [16]byte, r int, c byte) [16]byte {
	in := rotate(xor(m.temp(random), m.opc), r)
	in[15] ^= c
	return xor(encrypt(m.cipher, in), m.opc)
}

// cipherOf is AES-128, which takes every key of its size.
func cipherOf(k Key) cipher.Block {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // of no key of 16 octets
	}
	return block
}

func encrypt(by cipher.Block, in [16]byte) (out [16]byte) {
	by.Encrypt(out[:], in[:])
	return out
}

func xor(a, b [16]byte) (c [16]byte) {
	subtle.XORBytes(c[:], a[:], b[:])
	return c
}

// rotate turns by octets to the left, which all rotations of the algorithm are.
func rotate(in [16]byte, n int) (out [16]byte) {
	for i := range out {
		out[i] = in[(i+n)%16]
	}
	return out
}
