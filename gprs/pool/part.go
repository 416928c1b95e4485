// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	spans  []span
	next   uint64 // where it goes on
	size   uint64
	inside uint64 // how many are taken
	held   uint64 // of these, how many are not used
}

// area is a span of a part.
type area struct {
	span
	of *part
}

// areasOf returns the spans of all parts in ascending order.
func areasOf(parts map[string]*part) (list []area) {
	for _, of := range parts {
		of.size, of.inside, of.held = 0, 0, 0
		for _, one := range of.spans {
			of.size += one.last - one.first + 1
			list = append(list, area{one, of})
		}
	}
	slices.SortFunc(list, func(a, b area) int { return cmp.Compare(a.first, b.first) })
	return list
}

// partOf returns the part that has a number; nil: it is none of the settings'.
func (p *Pool) partOf(n uint64) *part {
	if i, ok := slices.BinarySearchFunc(p.areas, n, func(a area, n uint64) int { return a.compare(n) }); ok {
		return p.areas[i].of
	}
	return nil
}

// PartCounters say how full a part is. The one without a name has the leases that are in no other.
type PartCounters struct {
	Name             string
	Used, Held, Free uint64
}

// Parts returns the state of each part that has leases, ordered by name; nothing if the pool has no part with a
// name.
func (p *Pool) Parts() (list []PartCounters) {
	if len(p.parts) == 1 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.parts)) {
		if of := p.parts[name]; of.size > 0 {
			list = append(list, PartCounters{name, of.inside - of.held, of.held, of.size - of.inside})
		}
	}
	return list
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
	if of.size == 0 {
		return
	}
	at := random % of.size
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
	of := p.parts[name]
	if of == nil {
		return netip.Prefix{}, ErrNoPart
	}
	p.release(now, of)
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
	return ok && of != nil && p.partOf(n) == of
}
