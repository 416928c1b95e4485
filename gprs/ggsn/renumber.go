// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/gprs/pool"
)

// A session with prefixes of a pool that the settings no longer have can get others while it lasts: the new
// ones are advertised, and the former deprecated and carried for until their time is over, so that
// connections end of themselves before it does (RFC 4192 section 2).

// MinRenumber is how long a former prefix lasts at least: no host believes a shorter lifetime of one that it
// has (RFC 4862 section 5.5.3).
const MinRenumber = 2 * time.Hour

// maxFormer is how many former prefixes a link can have: as many as it has of now, so that what its terminal
// holds, and hears of, is twice that at most.
const maxFormer = maxLinkPrefixes

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

// former is a lease that a session had before.
type former struct {
	first uint64 // of its prefixes
	more  int    // that follow it
	until time.Duration
}

// lease is what it is of the pool.
func (f *former) lease(a *access) netip.Prefix {
	return netip.PrefixFrom(addr6(f.first, 0), a.six.bits).Masked()
}

func (f *former) has(n uint64) bool { return n-f.first <= uint64(f.more) }

// formers are those of a session, in the order in which it had them.
type formers []former

// size is how many prefixes they are.
func (list formers) size() (n int) {
	for _, f := range list {
		n += 1 + f.more
	}
	return n
}

// formersOf are those of a session.
func (e *Engine) formersOf(s *session) formers {
	if !s.marked(markFormer) {
		return nil
	}
	return e.formers[e.contexts.at(s.first).session]
}

// retired reports whether a prefix of a link, static or not, is to be another.
func (a *access) retired(n uint64, static bool) bool {
	return a.Renumber > 0 && !a.gone && len(a.six.named) > 0 && !static && !a.six.pool.Has(netip.PrefixFrom(addr6(n, 0), a.six.bits).Masked())
}

// renumbers reports whether a session is to get another prefix and may have one more former one.
func (e *Engine) renumbers(s *session) bool {
	if !s.has.has(TypeIPv6) {
		return false
	}
	a, room := e.accessPoint(s), maxFormer-e.formersOf(s).size()
	if a.morePrefixes(s) < room && a.retired(s.prefix, s.marked(markStatic6)) {
		return true
	}
	more := e.furtherOf(s)
	for i, n := range more.prefixes {
		if room > 0 && a.retired(n, more.isStatic(i)) {
			return true
		}
	}
	return false
}

// spreadRenumber has a session get other prefixes soon, if it is to: not all do at once.
func (e *Engine) spreadRenumber(s *session, c call) {
	if e.renumbers(s) {
		if at := c.at + 1 + time.Duration(e.random.Int64N(int64(advertSpread))); s.advertAt == 0 || at < s.advertAt {
			s.advertAt = at
		}
	}
}

// renumber gives a session other prefixes in place of those that are retired, before they are advertised.
func (e *Engine) renumber(h handle, s *session, c call) {
	if !e.renumbers(s) {
		return
	}
	a, before := e.accessPoint(s), e.stats.Renumbered
	if a.retired(s.prefix, s.marked(markStatic6)) {
		for x := s.first; x != 0; x = e.contexts.at(x).next {
			e.withdraw(x) // it is found by another prefix from now on
		}
		s.prefix = e.successor(h, s, s.prefix, a.morePrefixes(s), c)
	}
	more := e.furtherOf(s)
	for i, n := range more.prefixes {
		if a.retired(n, more.isStatic(i)) {
			more.prefixes[i] = e.successor(h, s, n, 0, c)
		}
	}
	if e.stats.Renumbered > before {
		s.linkState = link.State{} // three advertisements, soon (RFC 4861 section 6.2.4)
		e.tellAll(c, s)
	}
}

// successor returns a prefix in place of one of a session's, which becomes a former one with those that follow it. If
// none is free, or there would be too many former ones, that stays, and a later advertisement tries again.
func (e *Engine) successor(h handle, s *session, n uint64, more int, c call) uint64 {
	list := e.formersOf(s)
	if list.size()+1+more > maxFormer {
		return n
	}
	a := e.accessPoint(s)
	p, err := a.six.pool.TakeOf("", c.now)
	if err != nil {
		e.stats.RenumberWaits++
		return n
	}
	e.setFormers(h, s, append(list, former{n, more, c.at + a.Renumber}))
	next := prefix6(p.Addr())
	e.vrfOf(s).by6[next] = h
	e.stats.Renumbered++
	return next
}

func (e *Engine) setFormers(h handle, s *session, list formers) {
	if len(list) == 0 {
		s.marks &^= markFormer
		delete(e.formers, h)
		return
	}
	s.marks |= markFormer
	e.formers[h] = list
}

// nextFormer is when the first of a session's former prefixes ends.
func (e *Engine) nextFormer(s *session) time.Duration {
	at := never
	for _, f := range e.formersOf(s) {
		at = min(at, f.until)
	}
	return at
}

// formersDue ends the former prefixes of a session whose time is over.
func (e *Engine) formersDue(h handle, s *session, c call) {
	if e.nextFormer(s) > c.at {
		return
	}
	e.dropFormers(h, s, func(f former) bool { return f.until <= c.at }, c)
	e.tellAll(c, s)
	e.spreadRenumber(s, c)
}

// dropFormers gives former prefixes of a session back.
func (e *Engine) dropFormers(h handle, s *session, which func(former) bool, c call) {
	if !s.marked(markFormer) {
		return
	}
	a, v := e.accessPoint(s), e.vrfOf(s)
	e.setFormers(h, s, slices.DeleteFunc(e.formers[h], func(f former) bool {
		if !which(f) {
			return false
		}
		if v.by6[f.first] == h {
			delete(v.by6, f.first)
		}
		a.six.pool.Free(f.lease(a), c.now)
		v.giveBackGuest(f.lease(a), c)
		return true
	}))
	e.rest(c)
}

// anyFormer is for [Engine.dropFormers].
func anyFormer(former) bool { return true }

// tellAll tells of all contexts of a session that its prefixes are others.
func (e *Engine) tellAll(c call, s *session) {
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		e.tell(c, ContextUpdated, x, 0)
	}
}

// formerLink are the former prefixes of a session as its link has them, until the next call.
func (e *Engine) formerLink(s *session) []link.Former {
	e.linkFormers = e.linkFormers[:0]
	for _, f := range e.formersOf(s) {
		if left := f.until - e.at; left > 0 {
			e.linkFormers = append(e.linkFormers, link.Former{Prefix: f.first, More: f.more, Valid: left})
		}
	}
	return e.linkFormers
}

// former6 are the former prefixes of a session.
func (e *Engine) former6(s *session) (list []netip.Prefix) {
	for _, f := range e.formersOf(s) {
		for n := range uint64(f.more + 1) {
			list = append(list, prefixAt(f.first+n))
		}
	}
	return list
}

// formerSize is how many former prefixes there are.
func (e *Engine) formerSize() (n int) {
	for _, list := range e.formers {
		n += list.size()
	}
	return n
}

// onLink reports whether a prefix, by its number, is one of those of a session's link, or was.
func (e *Engine) onLink(s *session, n uint64) bool {
	return n-s.prefix <= uint64(e.accessPoint(s).morePrefixes(s)) || slices.ContainsFunc(e.formersOf(s), func(f former) bool { return f.has(n) })
}

// storedFormer is one of a session.
type storedFormer struct {
	First uint64
	More  uint8
	Until int64
}

func (e *Engine) appendFormers(b []byte, h handle) []byte {
	for _, f := range e.formers[h] {
		b = appendRecord(b, &storedFormer{f.first, uint8(f.more), int64(f.until)})
	}
	return b
}

// readFormers reads those of a session; false if they cannot be read.
func (r *resuming) readFormers(n uint8) (list formers, ok bool) {
	for range n {
		var in storedFormer
		if !r.record(&in) {
			return nil, false
		}
		list = append(list, former{in.First, int(in.More), time.Duration(in.Until)})
	}
	return list, true
}

// adoptFormers takes over those of a session. One that cannot be is over.
func (r *resuming) adoptFormers(h handle, s *session, list formers) {
	a, v := r.accessPoint(s), r.vrfOf(s)
	var kept formers
	for _, f := range list {
		p := f.lease(a)
		if !s.has.has(TypeIPv6) || a.six.pool == nil || f.more >= 1<<(prefixBits-a.six.bits) || kept.size()+1+f.more > maxFormer || v.by6[f.first] != 0 ||
			!a.six.has(p.Addr()) || r.otherLength(a.VRF, p, &a.six) || a.six.pool.Adopt(pool.Lease{Prefix: p}, r.call.now) != nil {
			continue
		}
		kept, v.by6[f.first] = append(kept, f), h
	}
	r.setFormers(h, s, kept)
}
