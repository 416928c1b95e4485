// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/pool"
)

// lease gives a session the addresses that it was granted, or that a request asks for, of the types in s.has. Where there
// is none for it, it goes on with that of prev, the session in whose place it comes, if there is
// one: kept are the types of which it does. more are further prefixes of its link. The cause says why it cannot.
func (e *Engine) lease(s, prev *session, asks *gtp.EndUserAddress, g *Grant, c call) (kept Types, more further, cause gtp.Cause) {
	a := e.accessPoint(s)
	own := e.service(s, a)
	want, given := g.wanted(*asks, &own)
	if s.has.has(TypeIPv4) {
		asked, isFixed := want.Static4()
		if isFixed && (!given.has(TypeIPv4) || a.fixed4.has(asked)) {
			s.marks |= markStatic4
		}
		part := g.partOf(TypeIPv4)
		p, cause := e.take(s, a, a.leases4(s), part, asked, isFixed, c)
		if cause != 0 && prev.mayHand(TypeIPv4, markStatic4, s) && e.mayKeep(s, a.leases4(s), prev.lease4(), part, asked, isFixed) {
			p, cause, kept = prev.lease4(), 0, TypeIPv4
		}
		if cause != 0 {
			return 0, more, cause
		}
		s.address = number4(p.Addr())
	}
	if s.has.has(TypeIPv6) {
		asked, isFixed := want.Static6()
		if isFixed && (!given.has(TypeIPv6) || a.fixed6.has(asked)) {
			s.marks |= markStatic6
		}
		part := g.partOf(TypeIPv6)
		p, cause := e.take(s, a, a.leases6(s), part, asked, isFixed, c)
		if cause != 0 && prev.mayHand(TypeIPv6, markStatic6, s) && e.mayKeep(s, a.leases6(s), a.lease6(prev), part, asked, isFixed) {
			p, cause, kept = a.lease6(prev), 0, kept|TypeIPv6
		}
		fresh := (TypeIPv4 | TypeIPv6) &^ kept
		if cause != 0 && isFixed && e.hands(prev, s, prefix6(asked), s.marked(markStatic6)) {
			p, cause, fresh = leaseOf(asked), 0, fresh&^TypeIPv6
		}
		if cause != 0 {
			e.returnLeases(s, fresh&^TypeIPv6)
			return 0, more, cause
		}
		s.prefix, s.interfaceID = prefix6(p.Addr()), e.interfaceID(g)
		if more, cause = e.takeFurther(s, prev, g, c); cause != 0 {
			e.returnLeases(s, fresh)
			return 0, more, cause
		}
	}
	return kept, more, 0
}

// returnLeases ends those of a session that no one has had.
func (e *Engine) returnLeases(s *session, of Types) {
	a := e.accessPoint(s)
	if of.has(TypeIPv4) && s.has.has(TypeIPv4) {
		a.leases4(s).pool.Return(s.lease4())
	}
	if of.has(TypeIPv6) && s.has.has(TypeIPv6) {
		a.leases6(s).pool.Return(a.lease6(s))
	}
}

// take takes the lease that a terminal asks for, unless it is another's, from the static ones, or any of the
// others.
func (e *Engine) take(s *session, a *access, l *leases, part string, asked netip.Addr, isFixed bool, c call) (p netip.Prefix, cause gtp.Cause) {
	if isFixed {
		if p = leaseOf(asked); len(l.named) == 0 || e.foreign(s, a, p) || l.pool.TakeExact(p, c.now) != nil {
			return netip.Prefix{}, gtp.CauseUnknownPDPType
		}
		return p, 0
	}
	if len(l.named) > 0 {
		var err error
		switch p, err = l.pool.TakeOf(part, c.now); {
		case err == nil:
			return p, 0
		case errors.Is(err, pool.ErrNoPart):
			e.stats.PoolsUnknown++
			return p, gtp.CauseUnknownPDPType
		}
	}
	return netip.Prefix{}, gtp.CauseAddressesOccupied
}

// leaseOf is the lease that holds an address.
func leaseOf(a netip.Addr) netip.Prefix {
	if a.Is6() {
		return netip.PrefixFrom(a, prefixBits).Masked()
	}
	return netip.PrefixFrom(a, 32)
}

// mayHand reports whether a session has an address of a type, static or not, that the next one,
// in its place, may have of the same leases.
func (s *session) mayHand(t Types, static marks, next *session) bool {
	return s != nil && s.has.has(t) && s.apn == next.apn && s.marked(static) == next.marked(static)
}

// mayKeep reports whether a lease that is used can be what a terminal asks for. One that is another subscriber's by
// now cannot, or he would never get it.
func (e *Engine) mayKeep(s *session, l *leases, p netip.Prefix, part string, asked netip.Addr, isFixed bool) bool {
	return len(l.named) > 0 && !e.foreign(s, e.accessPoint(s), p) && (isFixed && l.pool.Has(p) && p == leaseOf(asked) || !isFixed && l.pool.HasOf(part, p))
}

// giveBack ends the leases of a session, but for those that another goes on with.
func (e *Engine) giveBack(s *session, c call) {
	a, v := e.accessPoint(s), e.vrfOf(s)
	if s.has.has(TypeIPv4) && !s.marked(markHanded4) {
		a.leases4(s).pool.Free(s.lease4(), c.now)
		v.giveBackGuest(s.lease4(), c)
	}
	if s.has.has(TypeIPv6) && !s.marked(markHanded6) {
		a.leases6(s).pool.Free(a.lease6(s), c.now)
		v.giveBackGuest(a.lease6(s), c)
	}
	e.rest(c)
}

// Leases that rest are looked after so often, and of each pool no more of them at once.
const (
	restEvery = time.Second
	restBurst = 10_000
)

// rest has leases that are held looked after.
func (e *Engine) rest(c call) {
	if e.restAt == never {
		e.restAt = c.at + restEvery
	}
}

// restDue ends the rest of leases whose time is over, also where nobody asks for others.
func (e *Engine) restDue(c call) {
	if e.restAt > c.at {
		return
	}
	e.restAt = never
	for _, a := range e.apns {
		for _, l := range a.all() {
			if l.pool != nil && l.pool.Expire(c.now, restBurst) {
				e.rest(c)
			}
		}
	}
}

// leases4 and leases6 are those that a session's addresses are of.
func (a *access) leases4(s *session) *leases {
	if s.marked(markStatic4) {
		return &a.fixed4
	}
	return &a.four
}

func (a *access) leases6(s *session) *leases {
	if s.marked(markStatic6) {
		return &a.fixed6
	}
	return &a.six
}

// lease6 is the prefix that a session has, in which its link is.
func (a *access) lease6(s *session) netip.Prefix {
	return netip.PrefixFrom(addr6(s.prefix, 0), a.leases6(s).bits).Masked()
}

// lease4 is the address of a session as a prefix.
func (s *session) lease4() netip.Prefix { return netip.PrefixFrom(addr4(s.address), 32) }
