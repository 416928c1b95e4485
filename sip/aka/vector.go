// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package aka

import "crypto/subtle"

// AMF is the authentication management field.
type AMF [2]byte

// Vector is what the network asks a terminal with and expects of it (TS 33.102 section 6.3.2).
type Vector struct {
	RAND [16]byte
	AUTN [16]byte
	XRES [8]byte
	CK   [16]byte
	IK   [16]byte
}

// Vector makes the vector of a random number and a sequence number.
func (m *Milenage) Vector(random [16]byte, sqn SQN, amf AMF) Vector {
	v := Vector{RAND: random, CK: m.f3(random), IK: m.f4(random)}
	var ak [6]byte
	v.XRES, ak = m.f25(random)
	mac, _ := m.f1(random, sqn, amf)
	concealed := sqn.conceal(ak)
	copy(v.AUTN[:], concealed[:])
	copy(v.AUTN[6:], amf[:])
	copy(v.AUTN[8:], mac[:])
	return v
}

// Answer is what a terminal has of a challenge that came from its network.
type Answer struct {
	RES [8]byte
	CK  [16]byte
	IK  [16]byte
	SQN SQN
	AMF AMF
}

// Answer checks the network's token, without its freshness (TS 33.102 section 6.3.3). Not ok:
// it is not from the terminal's network.
func (m *Milenage) Answer(random, autn [16]byte) (a Answer, ok bool) {
	res, ak := m.f25(random)
	a = Answer{RES: res, CK: m.f3(random), IK: m.f4(random), SQN: reveal([6]byte(autn[:6]), ak), AMF: AMF(autn[6:8])}
	mac, _ := m.f1(random, a.SQN, a.AMF)
	if subtle.ConstantTimeCompare(mac[:], autn[8:]) != 1 {
		return Answer{}, false
	}
	return a, true
}

// AUTS is a terminal's request for another sequence number.
type AUTS [14]byte

// AUTS returns what a terminal sends whose last number was sqn (TS 33.102 section 6.3.3). The
// field AMF in its MAC-S is zero.
func (m *Milenage) AUTS(random [16]byte, sqn SQN) (auts AUTS) {
	concealed := sqn.conceal(m.f5star(random))
	_, mac := m.f1(random, sqn, AMF{})
	copy(auts[:], concealed[:])
	copy(auts[6:], mac[:])
	return auts
}

// Resynchronise returns the last number of a terminal that has asked for another (TS 33.102
// section 6.3.5). Not ok: it is not from that terminal, or answers another challenge.
func (m *Milenage) Resynchronise(random [16]byte, auts AUTS) (sqn SQN, ok bool) {
	sqn = reveal([6]byte(auts[:6]), m.f5star(random))
	_, mac := m.f1(random, sqn, AMF{})
	if subtle.ConstantTimeCompare(mac[:], auts[6:]) != 1 {
		return 0, false
	}
	return sqn, true
}
