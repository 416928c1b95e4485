// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// createSecondary adds a context to a session. It has the session's addresses and control
// plane, and a TEID, a profile and filters of its own.
func (e *Engine) createSecondary(t *transaction, m *gtp.CreateRequest) Reason {
	sh := e.byControl[t.header.TEID]
	if sh == 0 || e.sessions.at(sh).marked(markReleasing) { // no word would be said of its end
		e.respond(t, gtp.CauseNonExistent, 0)
		return none
	}
	s := e.sessions.at(sh)
	old, there := e.find(s, m.NSAPI)
	if there != nil && there.madeBy(t) {
		e.stats.Repeated++
		t.repeated = true
		e.created(t, old, m)
		return none
	}
	if e.late.has(t) {
		return CreateLate
	}
	if x, cause := e.addSecondary(t, m, sh, s); cause != 0 {
		e.respond(t, cause, s.peerTEID)
	} else {
		e.created(t, x, m)
	}
	return none
}

func (e *Engine) addSecondary(t *transaction, m *gtp.CreateRequest, sh handle, s *session) (handle, gtp.Cause) {
	old, _ := e.find(s, m.NSAPI)
	linked, _ := e.find(s, m.LinkedNSAPI.Value)
	switch {
	case e.drain.refusing:
		return 0, gtp.CauseNoResources
	case linked == 0:
		return 0, gtp.CauseContextNotFound
	case old == linked:
		return 0, gtp.CauseMandatoryIncorrect
	}
	user, cause := e.node(t, m.AddressUser, e.accessPoint(s).DirectTunnel)
	if cause != 0 {
		return 0, cause
	}
	asked, cause := e.filtersOf(s, old, nil, m.TFT)
	if cause != 0 {
		return 0, cause
	}
	replaced := old
	if replaced == 0 { // one of another session of the terminal
		replaced = e.contextsOf(s.marks)[tidOf(s, m.NSAPI)]
	}
	switch {
	case e.full(s.account, replaced):
		return 0, gtp.CauseNoResources
	case old != 0:
		e.end(old, EndRecreated, t.call)
	case replaced != 0:
		e.replace(replaced, 0, t.call)
	}
	s.claimedAt = t.at
	x := e.addCreated(t, m, sh, s, user)
	e.setFilters(x, asked)
	e.schedule(sh, s, t.call)
	e.tell(t.call, ContextCreated, x, 0)
	return x, 0
}
