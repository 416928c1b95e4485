// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/binary"
	"math"

	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// Silence is a source of nothing.
type Silence struct{}

// Frame fills b with silence.
func (Silence) Frame(b []byte, law g711.Law, _ int64) {
	for i := range b {
		b[i] = law.Silence()
	}
}

// Tone is a source of one frequency, in hertz, at -10 dBm0.
type Tone float64

// Frame fills b with the tone.
func (t Tone) Frame(b []byte, law g711.Law, at int64) {
	const amplitude = 7200 // a sine that fills the range has about +3 dBm0
	for i := range b {
		turns := math.Mod(float64(t)*float64(at+int64(i))/g711.Rate, 1)
		b[i] = law.Encode(int16(amplitude * math.Sin(2*math.Pi*turns)))
	}
}

// Numbered is a source for measurements: each packet says which it is, and a [Tally] at the
// other end knows exactly what is missing. To ears it is noise.
type Numbered struct{}

// Of a numbered frame: a mark, its number, and octets that follow from it.
const (
	numberedMark = 0x15734d05
	numberedHead = 8
)

// Frame fills b with the frame's number and what follows from it.
func (Numbered) Frame(b []byte, _ g711.Law, at int64) {
	number := uint32(at / Samples)
	binary.BigEndian.PutUint32(b, numberedMark)
	binary.BigEndian.PutUint32(b[4:], number)
	for i := numberedHead; i < len(b); i++ {
		b[i] = byte(number) ^ byte(i)
	}
}

// tallied bounds the frames that a tally can tell apart: 11 hours.
const tallied = 1 << 21

// Tally is the sink for what [Numbered] sends.
type Tally struct {
	// Frames came, each counted once. Repeated came again, Displaced at another place than
	// the others, Damaged are no numbered frames.
	Frames, Repeated, Displaced, Damaged uint64

	seen          []uint64
	first, last   uint32
	shift         int64
	previous      uint32
	outOfOrder    uint64
	longestAbsent uint32
}

// Write takes a frame.
func (t *Tally) Write(at int64, _ g711.Law, b []byte) {
	number, ok := numberOf(b)
	if !ok || number >= tallied {
		t.Damaged++
		return
	}
	shift := at - int64(number)*Samples
	if t.Frames == 0 {
		t.first, t.last, t.shift = number, number, shift
	} else if number < t.previous {
		t.outOfOrder++
	}
	if shift != t.shift {
		t.Displaced++
	}
	for len(t.seen) <= int(number/64) {
		t.seen = append(t.seen, 0)
	}
	if t.seen[number/64]>>(number%64)&1 != 0 {
		t.Repeated++
		return
	}
	t.seen[number/64] |= 1 << (number % 64)
	if t.Frames > 0 && number > t.last {
		t.longestAbsent = max(t.longestAbsent, number-t.last-1)
	}
	t.first, t.last, t.previous = min(t.first, number), max(t.last, number), number
	t.Frames++
}

// numberOf reads a numbered frame.
func numberOf(b []byte) (uint32, bool) {
	if len(b) != Samples || binary.BigEndian.Uint32(b) != numberedMark {
		return 0, false
	}
	number := binary.BigEndian.Uint32(b[4:])
	for i := numberedHead; i < len(b); i++ {
		if b[i] != byte(number)^byte(i) {
			return 0, false
		}
	}
	return number, true
}

// Missing is how many frames are missing between the first and the last that came.
func (t *Tally) Missing() uint64 {
	if t.Frames == 0 {
		return 0
	}
	return uint64(t.last-t.first+1) - t.Frames
}

// OutOfOrder is how many frames came behind later ones.
func (t *Tally) OutOfOrder() uint64 { return t.outOfOrder }

// LongestAbsence is the longest run of frames that were missing when the next one came.
func (t *Tally) LongestAbsence() uint32 { return t.longestAbsent }
