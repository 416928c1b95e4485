// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"time"

	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// Of timestamps, in samples.
const (
	// leap is how far one may be from the time that has gone: more is a clock that was set.
	leap = 2 * g711.Rate
	// farEvent is how long before this time the timestamp of a pressed key may be.
	farEvent = 8 * g711.Rate
	// lateness is how much later than others a packet may come before it counts as late: a
	// telephone would have played past it.
	lateness = g711.Rate / 10
)

// timing puts packets to their places in the sound, and measures how evenly they come.
type timing struct {
	started bool
	fresh   bool // a new source, whose timestamps have nothing to do with the last ones
	stamp   uint32
	at      int64     // the place of stamp
	came    time.Time // when it came

	jitter  float64 // RFC 3550 section 6.4.1, in samples
	transit int64   // of the last packet, against the place it has
	usual   int64   // of packets that were quick
	began   time.Time
	late    uint64
	leaps   uint64
}

// anew begins with another source, at the place that the time gives it.
func (t *timing) anew() { t.fresh = t.started }

// samples is how many there are in a time. Seconds are counted apart, for 13 days times the rate do not fit.
func samples(d time.Duration) int64 {
	return int64(d/time.Second)*g711.Rate + int64(d%time.Second*g711.Rate/time.Second)
}

// take returns the place of a packet of sound.
func (t *timing) take(stamp uint32, newest bool, now time.Time) int64 {
	if !t.started {
		*t = timing{started: true, stamp: stamp, came: now, began: now}
		return 0
	}
	gone := samples(now.Sub(t.came))
	step := int64(int32(stamp - t.stamp))
	if t.fresh || step-gone > leap || gone-step > leap && newest {
		if !t.fresh {
			t.leaps++
		}
		t.fresh = false
		t.stamp, t.at, t.came = stamp, t.at+max((gone+Samples/2)/Samples, 1)*Samples, now
		t.transit = samples(now.Sub(t.began)) - t.at
		t.usual = t.transit
		return t.at
	}
	at := t.at + step
	t.measure(at, now)
	if step > 0 {
		t.stamp, t.at, t.came = stamp, at, now
	}
	return at
}

// measure follows the transit of packets (RFC 3550 appendix A.8).
func (t *timing) measure(at int64, now time.Time) {
	transit := samples(now.Sub(t.began)) - at
	change := transit - t.transit
	if change < 0 {
		change = -change
	}
	t.jitter += (float64(change) - t.jitter) / 16
	t.transit = transit
	if transit < t.usual {
		t.usual = transit
	} else if transit-t.usual > lateness {
		t.late++
	} else {
		t.usual += (transit - t.usual) >> 6 // as clocks drift
	}
}

// near reports whether a timestamp is of about this time.
func (t *timing) near(stamp uint32, now time.Time) bool {
	if !t.started {
		return true
	}
	ahead := int64(int32(stamp-t.stamp)) - samples(now.Sub(t.came))
	return ahead < g711.Rate && ahead > -farEvent
}
