// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"sync/atomic"
	"time"
)

// policer keeps traffic below a rate by the generic cell rate algorithm (ITU-T I.371 annex A),
// in its form of virtual scheduling. All that changes is one word, when the next packet would come if
// all had come at the rate, so that a fast path may spend from it as well, by compare-and-swap.
// The zero value lets everything pass.
type policer = SharedRate

const (
	// costBits leave a cost at 10 Gbit/s right by 1 in 50,000, and that of 64 KiB at 1 kbit/s in
	// 64 bits.
	costBits = 16
	// nothing is the cost of a rate of zero: no packet passes.
	nothing = ^uint64(0)
)

// A context may be ahead of its rate by a fifth of a second, or by policedMTU octets twice if
// that is more, the packet that passes included: as long as a TCP waits
// that has lost all its segments, so that this time is not lost as well, and one fiftieth of what passes
// in ten seconds (docs/decisions/0039-ahead-of-the-rate.md).
const (
	policedAhead = uint64(200 * time.Millisecond)
	policedMTU   = 1500
)

// setRate gives the policer a rate in kbit/s; limited tells whether there is one. What was spent
// stays so.
func (p *SharedRate) setRate(rate uint32, limited bool) {
	switch {
	case !limited:
		p.Cost = 0
	case rate == 0:
		p.Cost = nothing
	default:
		p.Cost = uint64(8*time.Millisecond) << costBits / uint64(rate)
	}
}

// rate returns the rate in kbit/s; 0: none, or that of no traffic.
func (p *SharedRate) rate() uint32 {
	if p.Cost == 0 || p.Cost == nothing {
		return 0
	}
	return uint32((uint64(8*time.Millisecond)<<costBits + p.Cost/2) / p.Cost)
}

// slack is how far ahead of its time a packet may come: it passes whatever its size, so that
// large ones do not wait behind small ones.
func (p *SharedRate) slack() uint64 {
	one := p.Cost * policedMTU >> costBits
	return max(policedAhead, 2*one) - one
}

// open reports whether a packet may pass.
func (p *SharedRate) open(now time.Duration) bool {
	return p.Cost == 0 || p.Cost != nothing && atomic.LoadUint64(&p.Arrival) <= uint64(now)+p.slack()
}

// take spends the octets of a packet, if it may pass.
func (p *SharedRate) take(octets int, now time.Duration) bool {
	switch p.Cost {
	case 0:
		return true
	case nothing:
		return false
	}
	latest, cost := uint64(now)+p.slack(), p.Cost*uint64(octets)>>costBits
	for {
		was := atomic.LoadUint64(&p.Arrival)
		if was > latest {
			return false
		}
		if atomic.CompareAndSwapUint64(&p.Arrival, was, max(was, uint64(now))+cost) {
			return true
		}
	}
}
