// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math"
	"math/rand/v2"
)

// Choices of the process.
const (
	// jitterMemory is how long delays resemble each other if nothing is stated, in standard
	// deviations: long enough that a packet hardly ever overtakes another.
	jitterMemory = 6
	// jitterKnots are drawn in a correlation time, and joined by straight lines.
	jitterKnots = 20
	// jitterForgets is the number of correlation times after which nothing is left of a delay.
	jitterForgets = 40
	// jitterBlock knots are drawn from one seed, so that those behind a pause are found without
	// those of the pause: so few that a packet does not wait for them.
	jitterBlock = 4 * jitterForgets * jitterKnots
	// jitterStride is between the seeds of blocks, far from each other and from those of wires.
	jitterStride = 0x9e3779b97f4a7c15
)

// jitter is the one-way delay as a process in time: at each instant it is lognormal with the
// stated mean and deviation, and its logarithm is a Gaussian process with the correlation
// (1+t/τ)·exp(-t/τ), that of a critically damped oscillator pushed by white noise. It has a
// slope at each instant, which is what keeps packets in order: a delay drawn again for each of
// them does so by making them wait, and raises the mean the more, the more packets there are.
//
// It is the medium's: whatever is sent, and with whatever pauses, one seed gives one delay at one
// instant after the first packet.
type jitter struct {
	source         *rand.PCG
	random         *rand.Rand // of the source
	seed, stream   uint64
	median, spread float64 // of the lognormal: its median in nanoseconds, the deviation of its logarithm
	step           float64 // between two knots, in nanoseconds
	keep, cross    float64 // how a knot follows from the last one, see next
	noise          [3]float64
	begin          int64 // of the first knot
	begun          bool
	knot           float64 // number of the knot before now
	drawn          uint64  // knots that have been, or were left out
	value, slope   float64 // of the process at the knot behind now; the slope in 1/τ
	before         float64 // value at the knot before now
}

func newJitter(c LaneConfig, seed, stream uint64) *jitter {
	ratio := float64(c.Jitter) / float64(c.Delay)
	variance := math.Log1p(ratio * ratio)
	source := rand.NewPCG(seed, stream)
	j := &jitter{
		source: source, random: rand.New(source), seed: seed, stream: stream,
		median: float64(c.Delay) * math.Exp(-variance/2), spread: math.Sqrt(variance),
		step: float64(c.Correlation) / jitterKnots,
	}
	// The oscillator's exact transition over s correlation times: value and slope become
	// keep·[[1+s, s], [-s, 1-s]], and the noise brings the covariance back to the unit matrix.
	const s = 1.0 / jitterKnots
	j.keep, j.cross = math.Exp(-s), s
	rest := math.Exp(-2 * s)
	j.noise[0] = math.Sqrt(1 - rest*((1+s)*(1+s)+s*s))
	j.noise[1] = rest * 2 * s * s / j.noise[0]
	j.noise[2] = math.Sqrt(1 - rest*(s*s+(1-s)*(1-s)) - j.noise[1]*j.noise[1])
	return j
}

// delay is that of a packet at an instant, in nanoseconds. Instants do not go back.
func (j *jitter) delay(at int64) int64 {
	if !j.begun {
		j.begin, j.begun = at, true
		j.value, j.slope = j.random.NormFloat64(), j.random.NormFloat64()
		j.next()
	}
	now := float64(at-j.begin) / j.step
	if block := math.Floor((now - jitterForgets*jitterKnots) / jitterBlock); block*jitterBlock > j.knot {
		j.skip(block)
	}
	for ; now >= j.knot+1; j.knot++ {
		j.next()
	}
	value := j.before + (j.value-j.before)*max(now-j.knot, 0)
	return int64(j.median * math.Exp(j.spread*value))
}

// skip goes to the begin of a block, far enough before now that where the process begins there is
// forgotten by then.
func (j *jitter) skip(block float64) {
	j.knot, j.drawn = block*jitterBlock, uint64(block)*jitterBlock
	j.value, j.slope = 0, 0
	j.next()
}

// next goes on by a knot.
func (j *jitter) next() {
	if block := j.drawn / jitterBlock; block > 0 && j.drawn%jitterBlock == 0 {
		j.source.Seed(j.seed+block*jitterStride, j.stream)
	}
	j.drawn++
	a, b, s := j.random.NormFloat64(), j.random.NormFloat64(), j.cross
	j.before = j.value
	j.value, j.slope = j.keep*((1+s)*j.value+s*j.slope)+j.noise[0]*a,
		j.keep*((1-s)*j.slope-s*j.value)+j.noise[1]*a+j.noise[2]*b
}
