// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"iter"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"time"
)

// Counters say how full a pool is.
type Counters struct {
	Size     uint64 // leases that its settings have
	Used     uint64
	Held     uint64 // freed, and not for reuse yet
	Free     uint64 // of Size
	Draining uint64 // used or held, and not of Size any more
}

// Counters returns the state of the pool. Leases whose hold time has passed since the
// last call of another method still count as held.
func (p *Pool) Counters() Counters {
	held := uint64(len(p.held))
	return Counters{Size: p.size, Used: p.used, Held: held, Free: p.size - p.inside, Draining: p.used + held - p.inside}
}

// Lease is one that is used or held.
type Lease struct {
	Prefix netip.Prefix
	Freed  time.Time // zero of one that is used
}

// Leases returns those that are used, in ascending order, and then those that are held,
// in the order in which they were freed: what [Pool.Adopt] takes after a restart.
func (p *Pool) Leases() iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		for n := range p.taken.all() {
			if _, held := p.held[n]; !held && !yield(Lease{Prefix: p.form.lease(n)}) {
				return
			}
		}
		for _, f := range p.queue {
			if p.counts(f) && !yield(Lease{p.form.lease(f.number), time.Unix(0, f.at)}) {
				return
			}
		}
	}
}

// Adopt takes a lease of a pool that was before this one, also one that is in no range
// any more. The error is [ErrOutside] for what is no lease of the family and length of
// this pool, and [ErrUsed] for one that is taken.
func (p *Pool) Adopt(l Lease, now time.Time) error {
	n, ok := p.form.find(l.Prefix)
	if !ok {
		return ErrOutside
	}
	if l.Freed.IsZero() {
		return p.takeNumber(n)
	}
	if p.taken.has(n) {
		return ErrUsed
	}
	p.note(n)
	p.keep(n, min(l.Freed.UnixNano(), now.UnixNano()))
	return nil
}

// Uses reports whether a lease of a prefix is used.
func (p *Pool) Uses(of netip.Prefix) bool {
	if !of.IsValid() || of.Addr().Is4() != p.form.four {
		return false
	}
	for n := range p.taken.within(p.form.touched(of)) {
		if _, held := p.held[n]; !held {
			return true
		}
	}
	return false
}

// all returns the numbers in ascending order.
func (s *numbers) all() iter.Seq[uint64] { return s.within(span{0, ^uint64(0)}) }

// within returns those of a span.
func (s *numbers) within(in span) iter.Seq[uint64] {
	first, last := in.first>>wordBits, in.last>>wordBits
	return func(yield func(uint64) bool) {
		for _, at := range slices.Sorted(maps.Keys(s.levels[0])) {
			if at < first || at > last {
				continue
			}
			for word := s.levels[0][at]; word != 0; word &= word - 1 {
				n := at<<wordBits + uint64(bits.TrailingZeros64(word))
				if in.first <= n && n <= in.last && !yield(n) {
					return
				}
			}
		}
	}
}
