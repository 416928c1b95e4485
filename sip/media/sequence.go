// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

// Limits of sequence numbers (RFC 3550 appendix A.1).
const (
	// maxDropout is how far ahead a packet may be of the last, unless more have had the time to be lost.
	maxDropout = 3000
	// window is how far behind one may be and still be told from one that came before.
	window = 1024
	// maxMisorder is how far behind a packet may be that has come before. Beyond it, as many as misordered in
	// sequence show that the source has begun again: not only two, which an old path may still deliver twice.
	maxMisorder = 100
	misordered  = 10
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
	// bad is the number that continues a jump: the one behind that jumped (0x10000: none); run is how many have.
	bad   uint32
	run   int
	begun int // how often the source has begun
	// What was expected and came before the source began anew.
	pastExpected, pastUnique, pastReceived uint64
	// since is the highest number at the last mark; came are those above it that have come, and pastSince how many were
	// expected above it before the source began anew.
	since           int64
	came, pastSince uint64
}

// arrival is what a number turns out to be.
type arrival uint8

const (
	arrivalNext      arrival = iota // ahead of all
	arrivalLate                     // behind some that have come
	arrivalDuplicate                // it has come before
	arrivalJump                     // too far ahead, or behind, of a known source
)

const noBad = 1 << 16

// ahead is how far a number is ahead of the highest, without regard to turns.
func (q *sequence) ahead(number uint16) int { return int(int16(number - uint16(q.highest))) }

// take takes the number of a packet, which may be so far ahead: maxDropout, or what the time allows.
func (q *sequence) take(number uint16, dropout int) arrival {
	if !q.started {
		q.begin(number)
		return arrivalNext
	}
	ahead := q.ahead(number)
	at := q.highest + int64(ahead)
	far := ahead > dropout || ahead <= -window
	again := !far && ahead <= 0 && q.has(at)
	switch {
	case far:
		if !q.jumps(number, probation) {
			return arrivalJump
		}
		q.begin(number)
		return arrivalNext
	case again && ahead < -maxMisorder:
		if q.jumps(number, misordered) {
			q.begin(number)
			return arrivalNext
		}
	default:
		q.bad = noBad
	}
	q.received++
	if again {
		return arrivalDuplicate
	}
	if ahead > 0 {
		q.forget(at)
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

// jumps reports whether a number that does not continue the others shows, with those just before it, that the
// source has begun again: if enough of them are in sequence.
func (q *sequence) jumps(number uint16, enough int) bool {
	if uint32(number) != q.bad {
		q.run = 0
	}
	q.bad = uint32(number + 1)
	q.run++
	return q.run >= enough
}

// begin starts with a number, after whatever was before.
func (q *sequence) begin(number uint16) {
	if q.started {
		q.pastSince += uint64(q.highest - q.since)
	}
	q.pastExpected, q.pastUnique = q.expected(), q.pastUnique+q.unique
	q.started, q.bad, q.run, q.unique, q.pastReceived = true, noBad, 0, 0, q.received
	q.begun++
	q.received++
	q.first = int64(number)
	q.highest, q.since = q.first, q.first-1
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
	if at > q.since {
		q.came++
	}
}

// sinceHere has [sequence.lostSince] count from the highest number on. What is below it and under way comes late, if at all, and
// says nothing of what is above.
func (q *sequence) sinceHere() { q.since, q.came, q.pastSince = q.highest, 0, 0 }

// lostSince is how many above the mark have not come.
func (q *sequence) lostSince() int64 { return int64(q.pastSince) + q.highest - q.since - int64(q.came) }

// expected is how many packets the source has sent, as far as is known.
func (q *sequence) expected() uint64 {
	if !q.started {
		return q.pastExpected
	}
	return q.pastExpected + uint64(q.highest-q.first+1)
}

// lost is how many of them have not come.
func (q *sequence) lost() int64 { return int64(q.expected()) - int64(q.pastUnique+q.unique) }
