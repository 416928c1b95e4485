// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// maxAnswers is how many answers are kept for one node: what it repeats comes soon, and
// what is forgotten early is answered anew.
const maxAnswers = 4096

// answers are the latest answers to a node, for requests that come again: a ring in the
// order of their time, which grows to what the node's rate needs.
type answers struct {
	index map[answerKey]uint16
	ring  []answer
	head  int // the oldest
}

// answerKey is what tells requests of one node apart, with the hash of their octets, since
// sequence numbers come round within seconds.
type answerKey struct {
	port, sequence uint16
	path           uint8
	kind           gtp.MessageType
}

type answer struct {
	key     answerKey
	hash    uint64
	until   time.Duration
	message []byte
}

// find returns the answer to a request that came before.
func (a *answers) find(k answerKey, hash uint64, now time.Duration) ([]byte, bool) {
	i, ok := a.index[k]
	if !ok || a.ring[i].hash != hash || a.ring[i].until <= now {
		return nil, false
	}
	return a.ring[i].message, true
}

// keep keeps a copy of an answer.
func (a *answers) keep(k answerKey, hash uint64, now, until time.Duration, message []byte) {
	if a.index == nil {
		a.index = make(map[answerKey]uint16)
	}
	var slot *answer
	if len(a.ring) < maxAnswers && a.head == 0 && (len(a.ring) == 0 || a.ring[0].until > now) {
		a.index[k] = uint16(len(a.ring))
		a.ring = append(a.ring, answer{})
		slot = &a.ring[len(a.ring)-1]
	} else {
		slot = &a.ring[a.head]
		if a.index[slot.key] == uint16(a.head) {
			delete(a.index, slot.key)
		}
		a.index[k] = uint16(a.head)
		a.head = (a.head + 1) % len(a.ring)
	}
	*slot = answer{k, hash, until, append(slot.message[:0], message...)}
}

// hash tells requests apart whose sequence numbers are equal.
func (e *Engine) hash(b []byte) uint64 {
	x := e.hashSeed[0] ^ uint64(len(b))
	for len(b) >= 8 {
		x = mix(x, binary.LittleEndian.Uint64(b), e.hashSeed[1])
		b = b[8:]
	}
	var tail [8]byte
	copy(tail[:], b)
	return mix(x, binary.LittleEndian.Uint64(tail[:]), e.hashSeed[1])
}

func mix(x, word, seed uint64) uint64 {
	high, low := bits.Mul64(x^word, seed|1)
	return high ^ low ^ word<<1
}
