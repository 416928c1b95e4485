// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package aka

import "encoding/binary"

// SQN is a sequence number of 48 bits: SEQ, and below it IND of 5 bits, which says which of a
// terminal's places it is compared with (TS 33.102 annex C.1.1.1).
type SQN uint64

// MaxSQN is the largest number.
const MaxSQN SQN = 1<<48 - 1

const (
	indBits = 5
	places  = 1 << indBits
)

// Next returns the number behind s for the next vector: SEQ and IND are one more each (TS
// 33.102 annexes C.1.1.2 and C.3.2). Not ok: the numbers are used up, and the subscriber's key
// with them.
func (s SQN) Next() (next SQN, ok bool) {
	seq, ind := s>>indBits+1, (s+1)%places
	if seq > MaxSQN>>indBits {
		return s, false
	}
	return seq<<indBits | ind, true
}

func (s SQN) octets() [6]byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(s))
	return [6]byte(b[2:])
}

// conceal hides the number by an anonymity key.
func (s SQN) conceal(ak [6]byte) [6]byte {
	b := s.octets()
	for i := range b {
		b[i] ^= ak[i]
	}
	return b
}

// reveal is conceal backwards.
func reveal(b, ak [6]byte) SQN {
	var all [8]byte
	for i := range b {
		all[i+2] = b[i] ^ ak[i]
	}
	return SQN(binary.BigEndian.Uint64(all[:]))
}

// Window are the highest numbers that a terminal has accepted, one for each IND, so that
// vectors may come out of order (TS 33.102 annex C.2.2). Its zero value has accepted none.
type Window struct {
	seq [places]uint64
}

// Accept reports whether a number is fresh, and notes it if so.
func (w *Window) Accept(s SQN) bool {
	seq, place := uint64(s>>indBits), &w.seq[s%places]
	if seq <= *place {
		return false
	}
	*place = seq
	return true
}

// Highest is SQN_MS, which a request for another number names.
func (w *Window) Highest() (highest SQN) {
	for ind, seq := range w.seq {
		highest = max(highest, SQN(seq<<indBits)|SQN(ind))
	}
	if highest>>indBits == 0 { // nothing was accepted
		return 0
	}
	return highest
}
