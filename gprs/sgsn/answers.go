// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// maxAnswers bounds the answers to GGSNs that are kept; the oldest goes first.
const maxAnswers = 256

// answerKey tells a request that was repeated from another: by its number, where it came from,
// and its octets, since numbers come round.
type answerKey struct {
	peer     netip.AddrPort
	socket   int
	sequence uint16
	kind     gtp.MessageType
	octets   uint64
}

// answers are those that were sent lately.
type answers struct {
	places map[answerKey]int
	ring   [maxAnswers]answered
	next   int
}

// answered is an answer, and how long it is kept.
type answered struct {
	key    answerKey
	octets []byte
	until  time.Time
}

func keyOf(m *message) answerKey {
	sum := fnv.New64a()
	_, _ = sum.Write(m.TID[:])
	_, _ = sum.Write([]byte{byte(m.TEID >> 24), byte(m.TEID >> 16), byte(m.TEID >> 8), byte(m.TEID)})
	_, _ = sum.Write(m.Payload)
	return answerKey{peer: m.from, socket: m.socket, sequence: m.Sequence, kind: m.Type, octets: sum.Sum64()}
}

// find returns the answer that a request got before.
func (a *answers) find(key answerKey, now time.Time) ([]byte, bool) {
	i, ok := a.places[key]
	if !ok || !now.Before(a.ring[i].until) {
		return nil, false
	}
	return a.ring[i].octets, true
}

// keep keeps an answer; nil: there was none.
func (a *answers) keep(key answerKey, octets []byte, until time.Time) {
	if octets == nil {
		return
	}
	if a.places == nil {
		a.places = make(map[answerKey]int, maxAnswers)
	}
	one := &a.ring[a.next]
	if i, ok := a.places[one.key]; ok && i == a.next {
		delete(a.places, one.key)
	}
	*one = answered{key: key, octets: append(one.octets[:0], octets...), until: until}
	a.places[key] = a.next
	a.next = (a.next + 1) % maxAnswers
}
