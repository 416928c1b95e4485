// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// MaxSize is that of a message: what every protocol here carries as one.
const MaxSize = 32 << 10

// Kind is how a size is drawn.
type Kind string

// The kinds.
const (
	Constant    Kind = "constant"
	Uniform     Kind = "uniform"
	Exponential Kind = "exponential"
)

// Size says how many octets messages have, header included: Mean, of Uniform from Min to Max. What would be smaller
// than a header, or larger than MaxSize, is cut to that.
type Size struct {
	Kind           Kind
	Mean, Min, Max int
}

// Flow is what traffic to send.
type Flow struct {
	ID uint32 // from 1
	// Rate of messages a second, from 1e-6 to 1e7; with Poisson the times between them are exponential, else all the same.
	Rate    float64
	Poisson bool
	Size    Size
	Seed    uint64
	// Duration and Count end the flow, whichever comes first; 0 is none.
	Duration time.Duration
	Count    int
}

// Bounds of a rate, in messages a second: of a lower one the times of departure would not fit into a Duration, and of a
// higher one nothing could be sent in time.
const (
	leastRate = 1e-6
	mostRate  = 1e7
)

// Check says what cannot be sent.
func (f *Flow) Check() error {
	s := f.Size
	switch {
	case f.ID < 1 || f.ID > 9999:
		return fmt.Errorf("flow %d: flows are numbered from 1 to 9999", f.ID)
	case !(f.Rate >= leastRate && f.Rate <= mostRate):
		return fmt.Errorf("%v messages a second cannot be sent: give a rate from %v to %d", f.Rate, leastRate, int(mostRate))
	case f.Duration < 0 || f.Count < 0 || f.Duration == 0 && f.Count == 0:
		return errors.New("a flow needs an end: give its duration or the number of its messages")
	case s.Kind == Uniform && (s.Min < HeaderSize || s.Max > MaxSize || s.Min > s.Max):
		return fmt.Errorf("sizes from %d to %d octets cannot be sent: they lie between %d and %d", s.Min, s.Max, HeaderSize, MaxSize)
	case s.Kind != Uniform && (s.Mean < HeaderSize || s.Mean > MaxSize):
		return fmt.Errorf("messages of %d octets cannot be sent: sizes lie between %d and %d", s.Mean, HeaderSize, MaxSize)
	case s.Kind != Constant && s.Kind != Uniform && s.Kind != Exponential:
		return fmt.Errorf("there is no size %q: write %s, %s or %s", s.Kind, Constant, Uniform, Exponential)
	}
	return nil
}

// Departure is when a message is to leave, counted from the beginning of the flow, and how large it is.
type Departure struct {
	At   time.Duration
	Size int
}

// Schedule is all departures of a flow, the same for the same seed.
type Schedule struct {
	flow   Flow
	random *rand.Rand
	number int
	at     float64 // of the next one, in seconds; of Poisson flows alone
}

// Schedule begins the flow.
func (f *Flow) Schedule() *Schedule {
	return &Schedule{flow: *f, random: rand.New(rand.NewPCG(f.Seed, uint64(f.ID)))}
}

// Next gives the next departure; ok is false behind the last.
func (s *Schedule) Next() (d Departure, ok bool) {
	at := float64(s.number) / s.flow.Rate // not a sum, which would drift
	if s.flow.Poisson {
		at = s.at
		s.at += s.random.ExpFloat64() / s.flow.Rate
	}
	d = Departure{At: time.Duration(at * float64(time.Second)), Size: s.size()}
	if s.flow.Count > 0 && s.number >= s.flow.Count || s.flow.Duration > 0 && d.At >= s.flow.Duration {
		return Departure{}, false
	}
	s.number++
	return d, true
}

func (s *Schedule) size() int {
	switch size := s.flow.Size; size.Kind {
	case Uniform:
		return size.Min + s.random.IntN(size.Max-size.Min+1)
	case Exponential:
		return int(min(max(s.random.ExpFloat64()*float64(size.Mean), HeaderSize), MaxSize))
	default:
		return size.Mean
	}
}
