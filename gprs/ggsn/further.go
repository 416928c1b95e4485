// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/pool"
)

// further are prefixes that a session was granted for its link, beside the first (RFC 3162 section 2.3): each is
// a /64 of the pools of its access point, or of the static ones.
type further struct {
	prefixes []uint64
	static   uint16 // a bit for each: it is of Static6
}

func (f *further) add(n uint64, static bool) {
	if static {
		f.static |= 1 << len(f.prefixes)
	}
	f.prefixes = append(f.prefixes, n)
}

func (f *further) isStatic(i int) bool { return f.static>>i&1 != 0 }

// has reports whether a prefix is among them, of those leases.
func (f *further) has(n uint64, static bool) bool {
	i := slices.Index(f.prefixes, n)
	return i >= 0 && f.isStatic(i) == static
}

// lease returns the leases that one of them is of, and the one that it is.
func (f *further) lease(i int, a *access) (*leases, netip.Prefix) {
	return a.single6(f.isStatic(i)), prefixAt(f.prefixes[i])
}

// single6 are the leases of which a prefix is granted by itself.
func (a *access) single6(static bool) *leases {
	if static {
		return &a.fixed6
	}
	return &a.six
}

// furtherOf are those of a session; of nil there are none.
func (e *Engine) furtherOf(s *session) further {
	if s == nil || !s.marked(markFurther) {
		return further{}
	}
	return e.further[e.contexts.at(s.first).session]
}

// takeFurther takes all that a session was granted, or none of it. What prev has, in whose place it comes, it
// goes on with.
func (e *Engine) takeFurther(s, prev *session, g *Grant, c call) (f further, cause gtp.Cause) {
	if g == nil {
		return f, 0
	}
	a := e.accessPoint(s)
	var taken further
	for _, p := range g.Further6 {
		n, static := prefix6(p.Addr()), a.fixed6.has(p.Addr())
		if n == s.prefix || slices.Contains(f.prefixes, n) {
			continue
		}
		l := a.single6(static)
		switch {
		case len(f.prefixes) == maxLinkPrefixes-1 || len(l.named) == 0 || e.foreign(s, a, p):
			cause = gtp.CauseUnknownPDPType
		case l.pool.TakeExact(p, c.now) == nil:
			taken.add(n, static)
		case !e.hands(prev, s, n, static):
			cause = gtp.CauseUnknownPDPType
		}
		if cause != 0 {
			taken.giveBack(a)
			return further{}, cause
		}
		f.add(n, static)
	}
	return f, 0
}

// giveBack ends leases that no one has had.
func (f *further) giveBack(a *access) {
	for i := range f.prefixes {
		l, p := f.lease(i, a)
		l.pool.Return(p)
	}
}

// hands reports whether prev has a /64 that the session in its place may have of the same leases: of those that the
// settings still have, and that are no other subscriber's by now.
func (e *Engine) hands(prev, next *session, n uint64, static bool) bool {
	if prev == nil || prev.apn != next.apn || !prev.has.has(TypeIPv6) {
		return false
	}
	a, p := e.accessPoint(prev), prefixAt(n)
	if l := a.single6(static); l.pool == nil || !l.pool.Has(p) || e.foreign(next, a, p) {
		return false
	}
	more := e.furtherOf(prev)
	return more.has(n, static) || prev.prefix == n && prev.marked(markStatic6) == static && a.leases6(prev).bits == prefixBits ||
		!static && slices.ContainsFunc(e.formersOf(prev), func(f former) bool { return f.has(n) })
}

// hand has prev, in whose place a session comes, let go of the prefixes that this goes on with.
func (e *Engine) hand(prev, next *session, more *further) {
	if prev == nil || prev.apn != next.apn || !prev.has.has(TypeIPv6) {
		return
	}
	if slices.Contains(more.prefixes, prev.prefix) {
		prev.marks |= markHanded6
	}
	goesOn := func(n uint64) bool { return n == next.prefix || slices.Contains(more.prefixes, n) }
	h, had := e.contexts.at(prev.first).session, e.furtherOf(prev)
	var left further
	for i, n := range had.prefixes {
		if !goesOn(n) {
			left.add(n, had.isStatic(i))
		}
	}
	e.setFurther(h, prev, left)
	e.setFormers(h, prev, slices.DeleteFunc(e.formersOf(prev), func(f former) bool { return goesOn(f.first) }))
}

// setFurther gives a session prefixes that it has leases of.
func (e *Engine) setFurther(h handle, s *session, f further) {
	if len(f.prefixes) == 0 {
		s.marks &^= markFurther
		delete(e.further, h)
		return
	}
	s.marks |= markFurther
	e.further[h] = f
	for _, n := range f.prefixes {
		e.vrfOf(s).by6[n] = h
	}
}

// dropFurther gives those of a session back.
func (e *Engine) dropFurther(h handle, s *session, c call) {
	if !s.marked(markFurther) {
		return
	}
	a, v, f := e.accessPoint(s), e.vrfOf(s), e.further[h]
	for i, n := range f.prefixes {
		l, p := f.lease(i, a)
		if v.by6[n] == h {
			delete(v.by6, n)
		}
		l.pool.Free(p, c.now)
		v.giveBackGuest(p, c)
	}
	delete(e.further, h)
	e.rest(c)
}

// further6 are the prefixes of a session's link beside the first: those that follow it, and those that it was
// granted.
func (e *Engine) further6(s *session) (list []netip.Prefix) {
	for n := range uint64(e.accessPoint(s).morePrefixes(s)) {
		list = append(list, prefixAt(s.prefix+1+n))
	}
	for _, n := range e.furtherOf(s).prefixes {
		list = append(list, prefixAt(n))
	}
	return list
}

// storedFurther is one of a session.
type storedFurther struct {
	Prefix uint64
	Static bool
}

func (e *Engine) appendFurther(b []byte, h handle) []byte {
	f := e.further[h]
	for i, n := range f.prefixes {
		b = appendRecord(b, &storedFurther{n, f.isStatic(i)})
	}
	return b
}

// readFurther reads those of a session; false if they cannot be read.
func (r *resuming) readFurther(n uint8) (list []storedFurther, ok bool) {
	for range n {
		var in storedFurther
		if !r.record(&in) {
			return nil, false
		}
		list = append(list, in)
	}
	return list, true
}

// adoptFurther takes over those of a session. One that cannot be is over.
func (r *resuming) adoptFurther(h handle, s *session, list []storedFurther) {
	a, v := r.accessPoint(s), r.vrfOf(s)
	var f further
	for _, in := range list {
		l, p := a.single6(in.Static), prefixAt(in.Prefix)
		if !s.has.has(TypeIPv6) || len(f.prefixes) == maxLinkPrefixes-1 || v.by6[in.Prefix] != 0 || slices.Contains(f.prefixes, in.Prefix) ||
			l.pool == nil || !l.has(p.Addr()) || r.otherLength(a.VRF, p, l) || l.pool.Adopt(pool.Lease{Prefix: p}, r.call.now) != nil {
			continue
		}
		f.add(in.Prefix, in.Static)
	}
	r.setFurther(h, s, f)
}
