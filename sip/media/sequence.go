// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

// Limits of sequence numbers (RFC 3550 appendix A.1).
const (
	// maxDropout is how far ahead a packet may be of the last.
	maxDropout = 3000
	// window is how far behind one may be and still be told from one that came before.
	window = 1024
)

// sequence follows the numbers of one source, and knows exactly which of the last have come.
type sequence struct {
	started   bool
	first     int64 // numbers that do not come round
	highest   int64
	seen      [window / 64]uint64
	unique    uint64
	received  uint64
	reordered uint64
	// bad is the number that proves a jump: the one behind that jumped (0x10000: none).
	bad uint32
	// What was expected and came before the source began anew.
	pastExpected, pastUnique, pastReceived uint64
}

// arrival is what a number turns out to be.
type arrival uint8

const (
	arrivalNext      arrival = iota // ahead of all
	arrivalLate                     // behind some that have come
	arrivalDuplicate                // it has come before
	arrivalOld                      // too far behind to know
	arrivalJump                     // too far ahead, or behind, of a known source
)

const noBad = 1 << 16

// ahead is how far a number is ahead of the highest, without regard to turns.
func (q *sequence) ahead(number uint16) int { return int(int16(number - uint16(q.highest))) }

// take takes the number of a packet.
func (q *sequence) take(number uint16) arrival {
	if !q.started {
		q.begin(number)
		return arrivalNext
	}
	ahead := q.ahead(number)
	switch {
	case ahead > maxDropout || ahead <= -maxDropout:
		// Two in sequence show that the source has begun anew.
		if uint32(number) != q.bad {
			q.bad = uint32(number + 1)
			return arrivalJump
		}
		q.begin(number)
		return arrivalNext
	case ahead <= -window:
		return arrivalOld
	}
	q.bad = noBad
	q.received++
	at := q.highest + int64(ahead)
	if ahead > 0 {
		q.forget(at)
	} else if q.has(at) {
		return arrivalDuplicate
	}
	q.mark(at)
	if ahead > 0 {
		q.highest = at
		return arrivalNext
	}
	q.first = min(q.first, at)
	q.reordered++
	return arrivalLate
}

// begin starts with a number, after whatever was before.
func (q *sequence) begin(number uint16) {
	q.pastExpected, q.pastUnique = q.expected(), q.pastUnique+q.unique
	q.started, q.bad, q.unique, q.pastReceived = true, noBad, 0, q.received
	q.received++
	q.first = int64(number)
	q.highest = q.first
	q.seen = [window / 64]uint64{}
	q.mark(q.first)
}

// forget clears the marks between the highest and a new one.
func (q *sequence) forget(until int64) {
	for at := max(q.highest+1, until-window+1); at <= until; at++ {
		q.seen[at>>6&(window/64-1)] &^= 1 << (at & 63)
	}
}

func (q *sequence) has(at int64) bool { return q.seen[at>>6&(window/64-1)]>>(at&63)&1 != 0 }

func (q *sequence) mark(at int64) {
	q.seen[at>>6&(window/64-1)] |= 1 << (at & 63)
	q.unique++
}

// expected is how many packets the source has sent, as far as is known.
func (q *sequence) expected() uint64 {
	if !q.started {
		return q.pastExpected
	}
	return q.pastExpected + uint64(q.highest-q.first+1)
}

// lost is how many of them have not come.
func (q *sequence) lost() int64 { return int64(q.expected()) - int64(q.pastUnique+q.unique) }
