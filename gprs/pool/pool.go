// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package pool leases IPv4 addresses and IPv6 prefixes to PDP contexts. A lease is a
// prefix: a /32 of IPv4, a /64 of IPv6, or shorter where one is delegated. Leases go
// round: none is given again before the others have had their turn, nor before its hold
// time has passed. Memory is taken by leases that are used or held alone, some bits of
// each in a row: a pool of a /8 or a /32 costs nothing until it is used.
//
//house:part
package pool

import (
	"errors"
	"net/netip"
	"slices"
	"time"
)

// Why there is no lease.
var (
	// ErrExhausted is told when all leases are used or held.
	ErrExhausted = errors.New("no lease of the pool is free")
	// ErrOutside is told of what is not one of the pool's leases.
	ErrOutside = errors.New("this is no lease of the pool")
	// ErrUsed is told of a lease that somebody has.
	ErrUsed = errors.New("the lease is used")

	errForm = errors.New("the pool has leases of another family or length")
)

// Pool leases prefixes. A lease that is used stays so until it is freed, also where a
// change of the settings no longer has it.
type Pool struct {
	form  form
	hold  time.Duration
	parts map[string]*part
	areas []area
	size  uint64

	taken  numbers // used or held
	inside uint64  // of these, how many are in the areas

	// held are leases that were freed and are not for reuse yet, each with its ticket. The
	// queue has them in the order of these, and some that were taken since.
	held   map[uint64]uint64
	queue  []freed
	ticket uint64 // the last that was given; the first is 1
	used   uint64
}

// freed is a lease, and when it was freed, in nanoseconds since 1970.
type freed struct {
	number uint64
	at     int64
	ticket uint64
}

// New returns a pool. random is where the round begins, so that a gateway that was
// started again does not give its first leases to others at once.
func New(s Settings, random uint64) (*Pool, error) {
	f, err := s.form()
	if err != nil {
		return nil, err
	}
	p := &Pool{form: f, held: make(map[uint64]uint64)}
	if err := p.Resize(s); err != nil {
		return nil, err
	}
	for _, of := range p.parts {
		of.begin(random)
	}
	return p, nil
}

// Resize takes other settings of the same family and length. Leases that are used and in
// no range any more are not given again once they are freed. After an error all is as
// before.
func (p *Pool) Resize(s Settings) error {
	f, err := s.form()
	if err != nil {
		return err
	}
	if f != p.form {
		return errForm
	}
	spans, err := s.spans(f)
	if err != nil {
		return err
	}
	parts, err := s.parts(f, spans)
	if err != nil {
		return err
	}
	for name, of := range parts {
		if was := p.parts[name]; was != nil {
			of.next = was.next
		}
	}
	p.parts, p.areas, p.hold = parts, areasOf(parts), s.Hold
	p.size, p.inside = 0, 0
	for _, of := range parts {
		p.size += of.size
	}
	for n := range p.taken.all() {
		p.enter(n)
		if _, held := p.held[n]; held {
			p.rest(n, 1)
		}
	}
	return nil
}

// Take is [Pool.TakeOf] without a name.
func (p *Pool) Take(now time.Time) (netip.Prefix, error) { return p.TakeOf("", now) }

// TakeExact takes one lease for who owns it. Its hold time does not matter, since it
// keeps others away.
func (p *Pool) TakeExact(lease netip.Prefix, now time.Time) error {
	p.release(now, nil)
	n, ok := p.form.find(lease)
	if !ok || !p.has(n) {
		return ErrOutside
	}
	return p.takeNumber(n)
}

func (p *Pool) takeNumber(n uint64) error {
	if !p.taken.has(n) {
		p.use(n)
		return nil
	}
	if _, held := p.held[n]; !held {
		return ErrUsed
	}
	delete(p.held, n)
	p.rest(n, -1)
	p.used++
	return nil
}

// Free ends a lease, and reports whether it was used.
func (p *Pool) Free(lease netip.Prefix, now time.Time) bool {
	p.release(now, nil)
	n, ok := p.using(lease)
	if !ok {
		return false
	}
	p.used--
	p.keep(n, now.UnixNano())
	return true
}

// Return ends a lease that was taken and given to no one, and reports whether it was used. It
// is free at once, since there is no one to keep others from.
func (p *Pool) Return(lease netip.Prefix) bool {
	n, ok := p.using(lease)
	if !ok {
		return false
	}
	p.used--
	p.drop(n)
	return true
}

// Has reports whether a lease is one of the settings', used or not.
func (p *Pool) Has(lease netip.Prefix) bool {
	n, ok := p.form.find(lease)
	return ok && p.has(n)
}

// Used reports whether a lease is used.
func (p *Pool) Used(lease netip.Prefix) bool {
	_, ok := p.using(lease)
	return ok
}

// using returns the number of a lease; ok is false if it is not used.
func (p *Pool) using(lease netip.Prefix) (n uint64, ok bool) {
	if n, ok = p.form.find(lease); !ok || !p.taken.has(n) {
		return 0, false
	}
	_, held := p.held[n]
	return n, !held
}

// search returns a number that is free, the next one in the round of a part.
func (p *Pool) search(of *part) (uint64, bool) {
	if of.inside == of.size {
		return 0, false
	}
	at, _ := find(of.spans, of.next)
	for i := range len(of.spans) + 1 {
		in := of.spans[(at+i)%len(of.spans)]
		if i == 0 {
			in.first = max(in.first, of.next)
		}
		if n, ok := p.taken.free(in); ok {
			return n, true
		}
	}
	return 0, false
}

// find returns the index of the span that holds a number, or of the one behind it.
func find(list []span, n uint64) (int, bool) {
	return slices.BinarySearchFunc(list, n, span.compare)
}

// compare orders a span and a number: 0 if it holds it.
func (s span) compare(n uint64) int {
	switch {
	case s.last < n:
		return -1
	case s.first > n:
		return 1
	}
	return 0
}

func (p *Pool) has(n uint64) bool { return p.partOf(n) != nil }

// use notes a free number as used.
func (p *Pool) use(n uint64) {
	p.used++
	p.note(n)
}

// note notes a free number as taken.
func (p *Pool) note(n uint64) {
	p.taken.add(n)
	p.enter(n)
}

// enter counts a number that is taken.
func (p *Pool) enter(n uint64) {
	if of := p.partOf(n); of != nil {
		p.inside++
		of.inside++
	}
}

// rest counts a taken number as held, or with -1 as used again.
func (p *Pool) rest(n uint64, by int) {
	if of := p.partOf(n); of != nil {
		of.held += uint64(by)
	}
}

// drop notes a taken number that is used as free.
func (p *Pool) drop(n uint64) {
	p.taken.remove(n)
	if of := p.partOf(n); of != nil {
		p.inside--
		of.inside--
	}
}
