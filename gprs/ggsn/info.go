// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// infoChange takes word of where a terminal has gone (TS 29.060 section 7.5B.1), which its accounts are told.
// It is a sign as well that its SGSN has the session.
func (e *Engine) infoChange(t *transaction) Reason {
	m := &e.scratch.changed
	if r := e.request(t, m); r != none {
		return r
	}
	if t.header.TEID == 0 && m.IMSI.Present {
		return e.infoChangeOf(t, m)
	}
	h := e.sessionHandle(t)
	if h == 0 {
		e.respond(t, gtp.CauseNonExistent, 0)
		return none
	}
	e.relocate(h, m, t.call)
	s := e.sessions.at(h)
	r := &e.scratch.changeAnswered
	*r = gtp.InfoChangeResponse{Cause: gtp.CauseAccepted, InfoChangeAction: e.noReports(s)}
	e.answer(t, gtp.Header{TEID: s.peerTEID}, r, r.Cause)
	return none
}

// reports is what the SGSN that sends a request is to report of a session from now on, if it has said that it can
// (TS 29.060 sections 7.3.2 and 7.3.4).
func (e *Engine) reports(t *transaction, s *session) (a gtp.Optional[gtp.InfoChangeAction]) {
	if _, can := t.header.Extensions.Find(gtp.ExtensionInfoChangeSupport); can && e.accessPoint(s).Report != gtp.InfoChangeStop {
		a = gtp.Some(e.accessPoint(s).Report)
	}
	return a
}

// noReports ends the reports of an SGSN that nobody wants any more (TS 29.060 section 7.5B.2).
func (e *Engine) noReports(s *session) (a gtp.Optional[gtp.InfoChangeAction]) {
	if e.accessPoint(s).Report == gtp.InfoChangeStop {
		a = gtp.Some(gtp.InfoChangeStop)
	}
	return a
}

// infoChangeOf takes one that names the terminal by its IMSI, and by NSAPI one of its contexts: whose session has
// it, or all that this SGSN has of the terminal. The answer names them likewise.
func (e *Engine) infoChangeOf(t *transaction, m *gtp.InfoChangeRequest) Reason {
	r := &e.scratch.changeAnswered
	*r = gtp.InfoChangeResponse{Cause: gtp.CauseNonExistent, IMSI: m.IMSI, LinkedNSAPI: m.LinkedNSAPI}
	for nsapi := range uint8(16) {
		x := e.byTID[gtp.MakeTID(m.IMSI.Value, nsapi)]
		if x == 0 || m.LinkedNSAPI.Present && m.LinkedNSAPI.Value != nsapi {
			continue
		}
		h := e.contexts.at(x).session
		s := e.sessions.at(h)
		if s.peer != t.ph || s.version != gtp.V1 {
			continue
		}
		r.Cause, r.InfoChangeAction = gtp.CauseAccepted, e.noReports(s)
		e.relocate(h, m, t.call)
	}
	e.answer(t, gtp.Header{}, r, r.Cause)
	return none
}

// relocate has a session's terminal be where a notification says, and its accounts told if that is elsewhere.
func (e *Engine) relocate(h handle, m *gtp.InfoChangeRequest, c call) {
	first := e.sessions.at(h).first
	was := e.conditionsOf(first)
	if !e.movedTo(h, &Origin{RAT: gtp.Some(m.RATType), Location: m.Location}) {
		return
	}
	e.recharge(first, was, c)
	for x := first; x != 0; x = e.contexts.at(x).next {
		e.tell(c, ContextUpdated, x, 0)
	}
}
