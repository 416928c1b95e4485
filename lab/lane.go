// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Limits and choices of a lane.
const (
	// laneFrames bounds the frames under way in one direction.
	laneFrames = 1 << 14
	// A queue of no stated size holds what the rate carries in queueTime, and
	// at least minQueue.
	queueTime = 250 * time.Millisecond
	minQueue  = 32 << 10
)

// LaneConfig describes one direction of a wire. The zero value is a perfect
// line. Sizes count IP bytes, without the Ethernet header, since the rates of
// radio links are stated so.
type LaneConfig struct {
	// Rate in bit/s, unlimited if 0.
	Rate int64
	// Queue in bytes before the line; a packet that does not fit is dropped.
	// If 0, as much as the rate carries in 250 ms, at least 32 KiB.
	Queue int
	// Delay is the mean, Jitter the standard deviation of the one-way delay
	// behind the line. Delays follow a gamma distribution, which is never
	// negative and nearly normal if Jitter is small against Delay. Packets
	// keep their order: one that would overtake waits.
	Delay, Jitter time.Duration
	// Loss is the probability, 0 to 1, that a packet is lost behind the line.
	Loss float64
}

// complete fills in the queue and refuses what cannot be emulated.
func (c LaneConfig) complete() (LaneConfig, error) {
	switch {
	case c.Rate < 0 || c.Queue < 0 || c.Delay < 0 || c.Jitter < 0:
		return c, fmt.Errorf("a wire cannot have a negative rate, queue, delay or jitter: %+v", c)
	case c.Loss < 0 || c.Loss > 1 || math.IsNaN(c.Loss):
		return c, fmt.Errorf("the loss %v of a wire is no probability between 0 and 1", c.Loss)
	case c.Jitter > 0 && c.Delay == 0:
		return c, fmt.Errorf("a wire with jitter %v needs a delay, the mean of the delays", c.Jitter)
	}
	if c.Queue == 0 {
		c.Queue = max(minQueue, int(float64(c.Rate)/8*queueTime.Seconds()))
	}
	return c, nil
}

// LaneCounters counts what became of the packets of one direction.
type LaneCounters struct {
	Packets, Bytes int // taken in
	Sent           int
	QueueFull      int // dropped: no room in the queue
	Lost           int // dropped by the stated loss
	Cut            int // dropped: the direction was cut
	TooMany        int // dropped: more packets under way than the emulator holds
	Refused        int // dropped: the kernel did not take the packet out
	// Latency is the sum of the times that packets sent should have spent
	// under way, Late the sum of what they were late beyond, WorstLate the
	// largest.
	Latency, Late, WorstLate time.Duration
}

// lane decides when each packet of one direction leaves. It knows no clock:
// times are nanoseconds of whatever clock the caller uses.
type lane struct {
	config LaneConfig
	random *rand.Rand
	free   int64 // when the line has sent all it was given
	last   int64 // the latest departure given so far
	cut    bool
	epoch  int // counts cuts, which drop what is under way
	count  LaneCounters
}

func newLane(c LaneConfig, seed, stream uint64) *lane {
	return &lane{config: c, random: rand.New(rand.NewPCG(seed, stream))}
}

// admit takes in a packet that arrived at time at and says when it leaves, or
// that it does not.
func (l *lane) admit(at int64, size int) (leave int64, ok bool) {
	l.count.Packets++
	l.count.Bytes += size
	if l.cut {
		l.count.Cut++
		return 0, false
	}
	leave = at
	if l.config.Rate > 0 {
		start := max(at, l.free)
		backlog := float64(start-at) * float64(l.config.Rate) / 8e9
		if backlog+float64(size) > float64(l.config.Queue) {
			l.count.QueueFull++
			return 0, false
		}
		l.free = start + int64(float64(size)*8e9/float64(l.config.Rate))
		leave = l.free
	}
	// Draw in a fixed order and number, so that one decision does not shift
	// the draws of the next.
	lost := l.random.Float64() < l.config.Loss
	leave += l.delay()
	if lost {
		l.count.Lost++
		return 0, false
	}
	leave = max(leave, l.last)
	l.last = leave
	return leave, true
}

// delay draws a one-way delay in nanoseconds.
func (l *lane) delay() int64 {
	mean, deviation := float64(l.config.Delay), float64(l.config.Jitter)
	if deviation == 0 {
		return int64(mean)
	}
	shape := mean * mean / (deviation * deviation)
	return int64(gamma(l.random, shape) * mean / shape)
}

// gamma draws from a gamma distribution of that shape and scale 1, by the
// method of Marsaglia and Tsang (2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
