// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"time"
)

// Change is one of the path by which data come.
type Change struct {
	From, To Path
	LastOld  time.Time     // data came by the old path; the failure of that lies behind it
	FirstNew time.Time     // and by the new one
	Gap      time.Duration // longest time in which nothing new came, around the change
}

// Receiver measures what comes. The zero value is ready.
type Receiver struct {
	Chunks, Again uint64        // that have come for the first time, and more than once
	Gap           time.Duration // longest time between two chunks that were new
	Changes       []Change      // the first MaxChanges
	Lost          int           // changes beyond these

	path Path
	last time.Time // something new
}

// MaxChanges is how many changes of path a [Receiver] keeps.
const MaxChanges = 10_000

// Add takes a chunk that has come.
func (r *Receiver) Add(c *Chunk) {
	if c.Again {
		r.Again++
		return
	}
	gap := time.Duration(0)
	if r.Chunks++; !r.last.IsZero() {
		gap = c.At.Sub(r.last)
	}
	r.Gap = max(r.Gap, gap)
	switch {
	case r.path == (Path{}), c.Path == r.path:
	case len(r.Changes) == MaxChanges:
		r.Lost++
	default:
		r.Changes = append(r.Changes, Change{From: r.path, To: c.Path, LastOld: r.last, FirstNew: c.At, Gap: gap})
	}
	r.path, r.last = c.Path, c.At
}

// Delay measures one-way delays and their jitter. The clocks of both ends must be equal: those of one host are. The
// zero value is ready.
type Delay struct {
	N           uint64
	Least, Most time.Duration
	jitter      float64 // ns
	mean, m2    float64 // ns; Welford's sums
	last        time.Duration
}

// Add takes a message that was written and has been read.
func (d *Delay) Add(written, read time.Time) {
	transit := read.Sub(written)
	if d.N++; d.N == 1 {
		d.Least, d.Most = transit, transit
	} else {
		d.jitter += (math.Abs(float64(transit-d.last)) - d.jitter) / 16 // RFC 3550 section 6.4.1
	}
	d.last, d.Least, d.Most = transit, min(d.Least, transit), max(d.Most, transit)
	off := float64(transit) - d.mean
	d.mean += off / float64(d.N)
	d.m2 += off * (float64(transit) - d.mean)
}

// Mean is the mean delay.
func (d *Delay) Mean() time.Duration { return time.Duration(d.mean) }

// Jitter is the mean deviation of RFC 3550 section 6.4.1, until now.
func (d *Delay) Jitter() time.Duration { return time.Duration(d.jitter) }

// Deviation is the standard deviation of the delay.
func (d *Delay) Deviation() time.Duration {
	if d.N < 2 {
		return 0
	}
	return time.Duration(math.Sqrt(d.m2 / float64(d.N)))
}

// Sender counts DATA chunks that were sent.
type Sender struct {
	Sent   uint64 // for the first time
	Late   uint64 // again, after a timeout
	Fast   uint64 // again, after three reports
	Copies uint64 // of the early probe
	Moved  uint64 // again, when the early probe was answered
}

// Ratio is that of chunks that were sent again, or by two paths at once, to all that were sent.
func (s *Sender) Ratio() float64 {
	again := s.Late + s.Fast + s.Copies + s.Moved
	if s.Sent+again == 0 {
		return 0
	}
	return float64(again) / float64(s.Sent+again)
}
