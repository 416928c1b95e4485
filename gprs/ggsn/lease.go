// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// leaseTries bounds the search for an address that no context has: they are in the way only
// where settings have moved an address from one pool to another.
const leaseTries = 16

// lease gives a session the addresses that a request asks for, of the types in s.has. The
// cause says why it cannot.
func (e *Engine) lease(s *session, want *gtp.EndUserAddress, c call) gtp.Cause {
	a := e.accessPoint(s)
	v := e.vrfOf(s)
	if s.has.has(TypeIPv4) {
		fixed, isFixed := want.Static4()
		lease, cause := take(&a.four, &a.fixed4, fixed, isFixed, c, func(p netip.Prefix) bool {
			_, used := v.by4[number4(p.Addr())]
			return used
		})
		if cause != 0 {
			return cause
		}
		s.address = number4(lease.Addr())
		if isFixed {
			s.marks |= markStatic4
		}
	}
	if s.has.has(TypeIPv6) {
		fixed, isFixed := want.Static6()
		lease, cause := take(&a.six, &a.fixed6, fixed, isFixed, c, func(p netip.Prefix) bool {
			_, used := v.by6[prefix6(p.Addr())]
			return used
		})
		if cause != 0 {
			if s.has.has(TypeIPv4) { // no one has had it
				a.leases4(s).pool.Return(s.lease4())
			}
			return cause
		}
		s.prefix, s.interfaceID = prefix6(lease.Addr()), e.newInterfaceID()
		if isFixed {
			s.marks |= markStatic6
		}
	}
	return 0
}

// take takes the lease that a terminal asks for from the static ones, or any of the others.
func take(free, fixed *leases, asked netip.Addr, isFixed bool, c call, used func(netip.Prefix) bool) (netip.Prefix, gtp.Cause) {
	if isFixed {
		bits := asked.BitLen()
		if asked.Is6() {
			bits = prefixBits
		}
		p, err := asked.Prefix(bits)
		if err != nil || len(fixed.named) == 0 || used(p) || fixed.pool.TakeExact(p, c.now) != nil {
			return netip.Prefix{}, gtp.CauseUnknownPDPType
		}
		return p, 0
	}
	if len(free.named) == 0 {
		return netip.Prefix{}, gtp.CauseAddressesOccupied
	}
	var inWay [leaseTries]netip.Prefix
	for i := range inWay {
		p, err := free.pool.Take(c.now)
		if err == nil && !used(p) {
			returnAll(free, inWay[:i])
			return p, 0
		}
		if err != nil {
			returnAll(free, inWay[:i])
			break
		}
		inWay[i] = p
	}
	return netip.Prefix{}, gtp.CauseAddressesOccupied
}

// returnAll gives back leases that were not used.
func returnAll(l *leases, all []netip.Prefix) {
	for _, p := range all {
		l.pool.Return(p)
	}
}

// giveBack ends the leases of a session.
func (e *Engine) giveBack(s *session, c call) {
	a := e.accessPoint(s)
	if s.has.has(TypeIPv4) {
		a.leases4(s).pool.Free(s.lease4(), c.now)
	}
	if s.has.has(TypeIPv6) {
		a.leases6(s).pool.Free(s.prefixOf(), c.now)
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

// lease4 is the address of a session as a prefix.
func (s *session) lease4() netip.Prefix { return netip.PrefixFrom(addr4(s.address), 32) }
