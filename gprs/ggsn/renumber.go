// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/gprs/pool"
)

// A session whose prefix is of a pool that the settings no longer have can get another one while it
// lasts: the new one is advertised, and the former deprecated and carried for until its time is over, so
// that connections end of themselves before it does (RFC 4192 section 2).

// MinRenumber is how long a former prefix lasts at least: no host believes a shorter lifetime of one that it
// has (RFC 4862 section 5.5.3).
const MinRenumber = 2 * time.Hour

func (a *APN) checkRenumber() error {
	switch {
	case a.Renumber == 0:
		return nil
	case a.Renumber < MinRenumber:
		return fmt.Errorf("prefixes are renumbered within %s or more", MinRenumber)
	case a.Delegate > 0:
		return errors.New("it delegates prefixes, which cannot be renumbered")
	}
	return nil
}

// former is the prefix that a session had before.
type former struct {
	first uint64 // of its link
	more  int    // that follow it there
	until time.Duration
}

// lease is what a former prefix is of the pool.
func (f *former) lease(a *access) netip.Prefix {
	return netip.PrefixFrom(addr6(f.first, 0), a.six.bits).Masked()
}

// retired reports whether the prefix of a session is to be another.
func (a *access) retired(s *session) bool {
	return a.Renumber > 0 && !a.gone && len(a.six.named) > 0 && s.has.has(TypeIPv6) && !s.marked(markStatic6) && !a.six.pool.Has(a.lease6(s))
}

// spreadRenumber has a session get another prefix soon, if it is to: not all do at once.
func (e *Engine) spreadRenumber(s *session, c call) {
	if !s.marked(markFormer) && e.accessPoint(s).retired(s) {
		if at := c.at + 1 + time.Duration(e.random.Int64N(int64(advertSpread))); s.advertAt == 0 || at < s.advertAt {
			s.advertAt = at
		}
	}
}

// renumber gives a session another prefix, if it is to have one, before that is advertised. If none is free, the
// next advertisement tries again. Who was renumbered lately keeps what he has until the former prefix ends.
func (e *Engine) renumber(h handle, s *session, c call) {
	a, v := e.accessPoint(s), e.vrfOf(s)
	if s.marked(markFormer) || !a.retired(s) {
		return
	}
	p, err := a.six.pool.TakeOf("", c.now)
	if err != nil {
		e.stats.RenumberWaits++
		return
	}
	e.formers[h] = former{s.prefix, a.morePrefixes(s), c.at + a.Renumber}
	s.marks |= markFormer
	s.prefix, s.linkState = prefix6(p.Addr()), link.State{}
	v.by6[s.prefix] = h
	e.stats.Renumbered++
	e.tellAll(c, s)
}

// formerDue ends the former prefix of a session when its time is over.
func (e *Engine) formerDue(h handle, s *session, c call) {
	if !s.marked(markFormer) || e.formers[h].until > c.at {
		return
	}
	e.dropFormer(h, s, c)
	e.tellAll(c, s)
	e.spreadRenumber(s, c)
}

// dropFormer gives the former prefix of a session back, if there is one.
func (e *Engine) dropFormer(h handle, s *session, c call) {
	if !s.marked(markFormer) {
		return
	}
	f, a, v := e.formers[h], e.accessPoint(s), e.vrfOf(s)
	if v.by6[f.first] == h {
		delete(v.by6, f.first)
	}
	a.six.pool.Free(f.lease(a), c.now)
	v.giveBackGuest(f.lease(a), c)
	delete(e.formers, h)
	s.marks &^= markFormer
	e.rest(c)
}

// tellAll tells of all contexts of a session that its prefixes are others.
func (e *Engine) tellAll(c call, s *session) {
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		e.tell(c, ContextUpdated, x, 0)
	}
}

// formerLink is the former prefix of a session as its link has it.
func (e *Engine) formerLink(s *session) (l link.Former) {
	if s.marked(markFormer) {
		f := e.formers[e.contexts.at(s.first).session]
		l = link.Former{Prefix: f.first, More: f.more, Valid: max(f.until-e.at, 0)}
	}
	return l
}

// former6 is the former prefix of a session; not valid: there is none.
func (e *Engine) former6(h handle, s *session) netip.Prefix {
	if !s.marked(markFormer) {
		return netip.Prefix{}
	}
	f := e.formers[h]
	if f.more > 0 {
		return f.lease(e.accessPoint(s))
	}
	return prefixAt(f.first)
}

// onLink reports whether a prefix, by its number, is one of those of a session's link, or was.
func (e *Engine) onLink(h handle, s *session, n uint64) bool {
	if n-s.prefix <= uint64(e.accessPoint(s).morePrefixes(s)) {
		return true
	}
	if !s.marked(markFormer) {
		return false
	}
	f := e.formers[h]
	return n-f.first <= uint64(f.more)
}

// storedFormer is that of a session; Until 0: it has none.
type storedFormer struct {
	First uint64
	More  uint8
	Until int64
}

func (e *Engine) storedFormer(h handle) storedFormer {
	f := e.formers[h]
	return storedFormer{f.first, uint8(f.more), int64(f.until)}
}

// former takes over that of a session. One that cannot be is over.
func (r *resuming) former(h handle, s *session, in storedFormer) {
	f, a, v := former{in.First, int(in.More), time.Duration(in.Until)}, r.accessPoint(s), r.vrfOf(s)
	if in.Until == 0 || !s.has.has(TypeIPv6) || a.six.pool == nil || f.more >= maxLinkPrefixes || v.by6[f.first] != 0 {
		return
	}
	p := f.lease(a)
	if !a.six.has(p.Addr()) || r.otherLength(a.VRF, p, &a.six) || a.six.pool.Adopt(pool.Lease{Prefix: p}, r.call.now) != nil {
		return
	}
	r.formers[h], v.by6[f.first] = f, h
	s.marks |= markFormer
}
