// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// remove ends a context for an SGSN, or with Teardown all contexts of its session (TS 29.060
// section 7.3.5). A session goes on without the context that it began with.
func (e *Engine) remove(t *transaction) Reason {
	m := &e.scratch.remove
	if r := e.request(t, m); r != none {
		return r
	}
	sh := e.sessionHandle(t)
	if sh == 0 {
		e.respond(t, gtp.CauseNonExistent, 0)
		return none
	}
	s := e.sessions.at(sh)
	nsapi := m.NSAPI
	if t.header.Version == gtp.V0 {
		nsapi = t.header.TID.NSAPI()
	}
	x, _ := e.find(s, nsapi)
	if x == 0 {
		e.respond(t, gtp.CauseNonExistent, s.peerTEID)
		return none
	}
	teid, was := s.peerTEID, e.conditionsOf(x)
	if e.movedTo(sh, &Origin{Location: m.Location, TimeZone: m.TimeZone}) {
		e.recharge(x, was, t.call)
	}
	if m.Teardown.Value {
		e.endSession(sh, EndPeer, t.call)
	} else {
		e.end(x, EndPeer, t.call)
	}
	e.respond(t, gtp.CauseAccepted, teid)
	return none
}

// deleteLimit bounds the Delete Requests of this node, so that the end of many sessions at
// once, by a reload, say, floods no SGSN.
var deleteLimit = ratelimit.PerSecond(10_000, 1000)

// deleteAgain is when a Delete Request that could not be sent is tried again.
const deleteAgain = time.Second

// startDelete asks the SGSN to delete a session, which ends with its answer, or without one.
// It reports whether the request is on its way: there may be too many.
func (e *Engine) startDelete(h handle, why End, c call) bool {
	s := e.sessions.at(h)
	if s.marked(markDeleting) || s.marked(markReleasing) {
		return true
	}
	if !e.deletes.Allow(deleteLimit, c.now) {
		return false
	}
	if s.request != 0 {
		e.endRequest(s.request) // an Update Request means nothing any more
	}
	m := &e.scratch.remove
	*m = gtp.DeleteRequest{}
	if s.version == gtp.V1 {
		m.NSAPI, m.Teardown, m.Cause = e.contexts.at(s.first).nsapi, gtp.Some(true), causeOfEnd(why)
	}
	header := gtp.Header{TEID: s.peerTEID, FlowLabel: uint16(s.peerTEID), TID: tidOf(s, e.contexts.at(s.first).nsapi)}
	r := e.send(s.peer, e.peers.at(s.peer), controlPath(s.version), header, m, h, why, c)
	if r == 0 {
		return false
	}
	s.marks |= markDeleting
	s.request = r
	e.sessionTimes.Stop(h)
	return true
}

// causeOfEnd is what an SGSN is told of the end of a context.
func causeOfEnd(why End) gtp.Optional[gtp.Cause] {
	switch why {
	case EndIdle:
		return gtp.Some(gtp.CausePDPInactivity)
	case EndPath:
		return gtp.Some(gtp.CauseMSNotGPRSResponding)
	case EndSettings, EndRestart, EndSessionLimit:
		return gtp.Some(gtp.CauseReactivationRequested)
	}
	return gtp.Optional[gtp.Cause]{}
}
