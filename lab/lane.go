// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
	// Overhead is what the line carries with each packet, in bytes, and Least
	// what it carries at least of a packet and its overhead.
	Overhead, Least int
	// Queue in bytes before the line; a packet that does not fit is dropped.
	// If 0, as much as the rate carries in 250 ms, at least 32 KiB.
	Queue int
	// Delay is the mean, Jitter the standard deviation of the one-way delay
	// behind the line. Delays are lognormal, which is never negative and
	// nearly normal if Jitter is small against Delay, and change steadily:
	// those of packets a time t apart have the correlation
	// (1+t/τ)·exp(-t/τ) of their logarithms, τ being Correlation, six times
	// Jitter if 0. Packets keep their order: one that would overtake waits.
	Delay, Jitter, Correlation time.Duration
	// Loss is the probability, 0 to 1, that a packet is lost behind the line.
	// With Lossy, only packets that it chooses are.
	Loss  float64
	Lossy Filter
	// Rewrite changes packets as they enter; nil changes none.
	Rewrite Rewriter
}

// complete fills in the queue and refuses what cannot be emulated.
func (c LaneConfig) complete() (LaneConfig, error) {
	switch {
	case c.Rate < 0 || c.Queue < 0 || c.Delay < 0 || c.Jitter < 0 || c.Correlation < 0 || c.Overhead < 0 || c.Least < 0:
		return c, fmt.Errorf("a wire cannot have a negative rate, size or time: %+v", c)
	case c.Loss < 0 || c.Loss > 1 || math.IsNaN(c.Loss):
		return c, fmt.Errorf("the loss %v of a wire is no probability between 0 and 1", c.Loss)
	case c.Jitter > 0 && c.Delay == 0:
		return c, fmt.Errorf("a wire with jitter %v needs a delay, the mean of the delays", c.Jitter)
	}
	if c.Queue == 0 {
		c.Queue = max(minQueue, int(float64(c.Rate)/8*queueTime.Seconds()))
	}
	if c.Correlation == 0 {
		c.Correlation = jitterMemory * c.Jitter
	}
	return c, nil
}

// LaneCounters counts what became of the packets of one direction.
type LaneCounters struct {
	Packets, Bytes int // taken in
	Sent           int
	QueueFull      int // dropped: no room in the queue
	Lost           int // dropped by the stated loss, or by Lose
	Cut            int // dropped: the direction was cut
	TooMany        int // dropped: more packets under way than the emulator holds
	Refused        int // dropped: the kernel did not take the packet out
	Rewritten      int // changed by Rewrite
	// Latency is the sum of the times that packets sent should have spent
	// under way, Late the sum of what they were late beyond, WorstLate the
	// largest. Waited is the part of Latency that kept packets in order.
	Latency, Late, WorstLate, Waited time.Duration
}

// losing is what is left of a Lose.
type losing struct {
	left int
	of   Filter
}

// lane decides when each packet of one direction leaves. It knows no clock:
// times are nanoseconds of whatever clock the caller uses.
type lane struct {
	config LaneConfig
	random *rand.Rand
	jitter *jitter // nil without
	lose   []losing
	free   int64 // when the line has sent all it was given
	last   int64 // the latest departure given so far
	cut    bool
	epoch  int // counts cuts, which drop what is under way
	count  LaneCounters
}

func newLane(c LaneConfig, seed, stream uint64) *lane {
	l := &lane{config: c, random: rand.New(rand.NewPCG(seed, stream))}
	if c.Jitter > 0 {
		l.jitter = newJitter(c, seed, ^stream)
	}
	return l
}

// setCut cuts the lane, or restores it. What a cut drops holds up nothing that comes later; but the
// delay of the medium stays that of the last frame in the queue until as late as that would have left.
func (l *lane) setCut(cut bool) {
	if cut && !l.cut {
		l.epoch++
		l.free, l.last = 0, 0
	}
	l.cut = cut
}

// admit takes in a frame that arrived at time at and says when it leaves, or
// that it does not.
func (l *lane) admit(at int64, frame []byte) (leave int64, ok bool) {
	size := max(len(frame)-ethernetHeader, 0)
	l.count.Packets++
	l.count.Bytes += size
	if l.config.Rewrite != nil && l.config.Rewrite(frame) {
		l.count.Rewritten++
	}
	if l.cut {
		l.count.Cut++
		return 0, false
	}
	if leave, ok = l.line(at, max(size+l.config.Overhead, l.config.Least)); !ok {
		l.count.QueueFull++
		return 0, false
	}
	if l.loses(frame) {
		l.count.Lost++
		return 0, false
	}
	if leave += l.delay(leave); leave < l.last {
		l.count.Waited += time.Duration(l.last - leave)
		leave = l.last
	}
	l.last = leave
	return leave, true
}

// line says when the line has sent so many bytes, unless its queue has no room.
func (l *lane) line(at int64, size int) (sent int64, ok bool) {
	if l.config.Rate == 0 {
		return at, true
	}
	start := max(at, l.free)
	backlog := float64(start-at) * float64(l.config.Rate) / 8e9
	if backlog+float64(size) > float64(l.config.Queue) {
		return 0, false
	}
	l.free = start + int64(float64(size)*8e9/float64(l.config.Rate))
	return l.free, true
}

// loses says whether a frame is lost. It draws for each, so that one decision
// does not shift the draws of the next.
func (l *lane) loses(frame []byte) bool {
	lost := l.random.Float64() < l.config.Loss && (l.config.Lossy == nil || l.config.Lossy(frame))
	for i := range l.lose {
		if lose := &l.lose[i]; lose.of(frame) {
			if lose.left--; lose.left == 0 {
				l.lose = slices.Delete(l.lose, i, i+1)
			}
			return true
		}
	}
	return lost
}

// delay is that of a packet behind the line, in nanoseconds.
func (l *lane) delay(at int64) int64 {
	if l.jitter == nil {
		return int64(l.config.Delay)
	}
	return l.jitter.delay(at)
}
