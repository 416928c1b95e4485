// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"sync/atomic"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// aggregate are the rates of a terminal's contexts at one access point together, those of all its sessions
// there but for contexts with a guaranteed rate (APN-AMBR, TS 29.060 section 7.7.98).
type aggregate struct {
	up, down policer
	asked    Rates // by its SGSNs, the last time
	sessions int   // that share it
	shared   int   // records of contexts that are: then programs spend from these rates, where Engine.shared has them
}

// The NSAPIs that contexts may have (TS 24.008 section 10.5.6.2).
const (
	firstNSAPI = 5
	lastNSAPI  = 15
)

// askAMBR notes what an SGSN asks for of all contexts of a session's terminal at its access point.
func (e *Engine) askAMBR(s *session, asked gtp.Optional[gtp.AMBR]) {
	if !asked.Present {
		return
	}
	s.askedAMBR = Rates(asked.Value)
	if s.aggregate != 0 {
		e.aggregates.at(s.aggregate).asked = s.askedAMBR
	}
}

// askedAMBR is what counts of that.
func (e *Engine) askedAMBR(s *session) Rates {
	if s.aggregate != 0 {
		return e.aggregates.at(s.aggregate).asked
	}
	return s.askedAMBR
}

// ambrOf are the rates that a session's contexts without a guaranteed one share: no more than its SGSN
// has asked for.
func (e *Engine) ambrOf(s *session) Rates {
	a, asked := e.accessPoint(s), e.askedAMBR(s)
	r := Rates{a.AMBRUp, a.AMBRDown}
	if r.Up != 0 {
		r.Up = lower(asked.Up, r.Up)
	}
	if r.Down != 0 {
		r.Down = lower(asked.Down, r.Down)
	}
	return r
}

// policeAll has the contexts of a session held to the rates that they share, if there are any.
func (e *Engine) policeAll(s *session) {
	if a := e.accessPoint(s); a.AMBRUp == 0 && a.AMBRDown == 0 {
		e.leaveAggregate(s)
		return
	}
	if s.aggregate == 0 {
		e.joinAggregate(s)
	}
	all, g := e.ambrOf(s), e.aggregates.at(s.aggregate)
	g.up.setRate(all.Up, all.Up != 0)
	g.down.setRate(all.Down, all.Down != 0)
	if g.shared > 0 {
		up, down := e.ratesOfAll(s.aggregate)
		atomic.StoreUint64(&up.Cost, g.up.Cost)
		atomic.StoreUint64(&down.Cost, g.down.Cost)
	}
}

// joinAggregate has a session share the rates of another one of its terminal at its access point; if
// there is none, it begins them.
func (e *Engine) joinAggregate(s *session) {
	contexts := e.contextsOf(s.marks)
	for nsapi := uint8(firstNSAPI); nsapi <= lastNSAPI && s.aggregate == 0; nsapi++ {
		if x := contexts[tidOf(s, nsapi)]; x != 0 {
			if other := e.sessions.at(e.contexts.at(x).session); other.apn == s.apn {
				s.aggregate = other.aggregate
			}
		}
	}
	if s.aggregate == 0 {
		s.aggregate, _ = e.aggregates.take()
	}
	g := e.aggregates.at(s.aggregate)
	g.sessions++
	if s.askedAMBR != (Rates{}) {
		g.asked = s.askedAMBR
	}
}

// leaveAggregate ends a session's part in such rates, of which it keeps what was asked for.
func (e *Engine) leaveAggregate(s *session) {
	if s.aggregate == 0 {
		return
	}
	g := e.aggregates.at(s.aggregate)
	s.askedAMBR = g.asked
	if g.sessions--; g.sessions == 0 {
		e.aggregates.give(s.aggregate)
	}
	s.aggregate = 0
}

// spent has rates that a session shares go on where they stood.
func (e *Engine) spent(s *session, up, down uint64) {
	if s.aggregate != 0 {
		g := e.aggregates.at(s.aggregate)
		g.up.Arrival, g.down.Arrival = max(g.up.Arrival, up), max(g.down.Arrival, down)
	}
}

// together returns the rates that a context's traffic counts for beside its own; nil: none.
func (e *Engine) together(s *session, u *pdpContext) (up, down *policer) {
	if !u.aggregate || s.aggregate == 0 {
		return nil, nil
	}
	return e.ratesOfAll(s.aggregate)
}
