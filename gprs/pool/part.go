// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Part is a part of a pool with a name. Its leases are given by that name alone; parts of one name are one.
type Part struct {
	Name   string
	Prefix netip.Prefix
}

// ErrNoPart is told where a pool has no part of a name.
var ErrNoPart = errors.New("the pool has no part of this name")

// part are leases among which the search goes round.
type part struct {
	spans []span
	next  uint64 // where it goes on
}

// parts are those with a name, and under the empty one the rest of the spans.
func (s Settings) parts(f form, all []span) (map[string]*part, error) {
	rest, made := all, map[string]*part{}
	for i, one := range s.Parts {
		p := one.Prefix
		if one.Name == "" || !p.IsValid() || p.Addr().Is4() != f.four || p.Bits() > f.length || p != p.Masked() {
			return nil, fmt.Errorf("%s cannot be a part of the pool, named %q, whose leases are of %d bits", p, one.Name, f.length)
		}
		for _, other := range s.Parts[:i] {
			if p.Overlaps(other.Prefix) {
				return nil, fmt.Errorf("%s is named twice: %s and %s", p, other.Name, one.Name)
			}
		}
		own := cut(all, f.touched(p))
		if len(own) == 0 {
			return nil, fmt.Errorf("%s, named %s, has no lease of the pool", p, one.Name)
		}
		if made[one.Name] == nil {
			made[one.Name] = &part{}
		}
		made[one.Name].spans = ordered(append(made[one.Name].spans, own...))
		if rest = without(rest, f.touched(p)); len(rest) > maxSpans {
			return nil, errMany
		}
	}
	made[""] = &part{spans: rest}
	return made, nil
}

// cut returns what of a list lies in a span.
func cut(list []span, in span) (left []span) {
	for _, s := range list {
		if s.first, s.last = max(s.first, in.first), min(s.last, in.last); s.first <= s.last {
			left = append(left, s)
		}
	}
	return left
}

// begin has the search begin somewhere in the part.
func (of *part) begin(random uint64) {
	size := uint64(0)
	for _, one := range of.spans {
		size += one.last - one.first + 1
	}
	if size == 0 {
		return
	}
	at := random % size
	for _, one := range of.spans {
		n := one.last - one.first + 1
		if at < n {
			of.next = one.first + at
			return
		}
		at -= n
	}
}

// TakeOf returns a lease of a part that is free, the next one in its round; without a name, one that is in
// no part. It never waits: the error is [ErrExhausted], or [ErrNoPart].
func (p *Pool) TakeOf(name string, now time.Time) (netip.Prefix, error) {
	p.release(now)
	of := p.parts[name]
	if of == nil {
		return netip.Prefix{}, ErrNoPart
	}
	n, ok := p.search(of)
	if !ok {
		return netip.Prefix{}, ErrExhausted
	}
	of.next = n + 1
	p.use(n)
	return p.form.lease(n), nil
}

// HasOf reports whether a lease is of a part, used or not.
func (p *Pool) HasOf(name string, lease netip.Prefix) bool {
	n, ok := p.form.find(lease)
	of := p.parts[name]
	return ok && of != nil && has(of.spans, n)
}
