// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// change is what this node asks an SGSN to change of a context (TS 29.060 section 7.3.3).
type change struct {
	context handle
	qos     gtp.QoS // not of indicate, nor of limits, whose profile is that of when the request leaves
	// indicate tells that the node that has the user plane did not know the context, so
	// that the SGSN gives it another (TS 23.060 section 9.2.3.5).
	indicate bool
	limits   bool // what the settings allow has changed, and so may other contexts of the session
	again    bool // they have changed since: in the end all contexts of the session are looked at
	tries    int
	at       time.Duration // when it is asked for again, while no request is on its way
}

// SetQoS asks the SGSNs of the contexts that match for another profile; contexts of version
// 0 and those that an earlier order waits for are left out. It returns how many were
// asked. A context has the profile of its SGSN's answer.
func (e *Engine) SetQoS(sel Selection, q gtp.QoS, now time.Time, out *Output) (n int) {
	c := e.begin(now, out)
	e.each(sel, func(x handle, u *pdpContext) {
		if e.startChange(u.session, change{context: x, qos: q}, c) {
			n++
		}
	})
	return n
}

// requalifyGap is the time between two requests of a reload that has changed profiles.
const requalifyGap = time.Second / 500

// startChange sends an Update Request, unless a session has to wait for that.
func (e *Engine) startChange(h handle, to change, c call) bool {
	s := e.sessions.at(h)
	if e.changing(h, s) || s.marked(markReleasing) {
		return false
	}
	_, to.again = e.changes[h] // what a reload has left to do is done afterwards
	return e.sendChange(h, to, c)
}

// changing reports whether a session has a request on its way, or waits with one that cannot be found again
// from its profiles, as those of a reload can, which may wait for minutes.
func (e *Engine) changing(h handle, s *session) bool {
	queued, waiting := e.changes[h]
	return s.request != 0 || waiting && !queued.limits
}

// changeDue asks for a change that has waited, if it is one still.
func (e *Engine) changeDue(h handle, s *session, c call) {
	to, waiting := e.changes[h]
	if !waiting || s.request != 0 || to.at > c.at {
		return
	}
	if u := e.contexts.at(to.context); to.limits && e.grantable(s, u) == u.qos {
		e.endChange(h, c)
		return
	}
	if !e.sendChange(h, to, c) {
		delete(e.changes, h)
	}
}

// sendChange sends an Update Request, which a GGSN has in version 1 alone (TS 09.60 section 7.5.3).
func (e *Engine) sendChange(h handle, to change, c call) bool {
	s, u := e.sessions.at(h), e.contexts.at(to.context)
	if s.version == gtp.V0 {
		return false
	}
	m := &e.scratch.update
	*m = gtp.UpdateRequest{NSAPI: u.nsapi}
	switch {
	case to.indicate:
		m.DirectTunnelFlags = gtp.Some(gtp.FlagErrorIndication)
	case to.limits:
		m.QoS = gtp.Some(e.grantable(s, u))
	default:
		m.QoS = gtp.Some(to.qos)
	}
	r := e.send(s.peer, e.peers.at(s.peer), pathControl, gtp.Header{TEID: s.peerTEID}, m, h, 0, c)
	if r == 0 {
		return false
	}
	to.tries++
	s.request = r
	e.changes[h] = to
	return true
}

// collided has a request of this node give way to one of the SGSN, which wins (TS 29.060
// section 7.3.3): it is made again later.
func (e *Engine) collided(h handle, s *session, c call) {
	if s.request == 0 {
		return
	}
	done := *e.requests.at(s.request)
	e.endRequest(s.request)
	if done.kind == gtp.TypeDeleteRequest {
		s.marks &^= markDeleting
		e.endLater(h, done.why, c.at+e.settings.T3Response)
		return
	}
	e.changeLater(h, c)
}

// changeLater has a change asked for again, as often as a request is sent.
func (e *Engine) changeLater(h handle, c call) {
	to := e.changes[h]
	if to.tries >= e.settings.N3Requests {
		e.endChange(h, c)
		return
	}
	to.at = c.at + e.settings.T3Response
	e.changes[h] = to
	e.schedule(h, e.sessions.at(h), c)
}

// endChange forgets a change, done or not.
func (e *Engine) endChange(h handle, c call) {
	done, s := e.changes[h], e.sessions.at(h)
	delete(e.changes, h)
	switch {
	case done.again:
		e.changeLimits(h, s, s.first, c.at+requalifyGap)
	case done.limits:
		e.changeLimits(h, s, e.contexts.at(done.context).next, c.at+requalifyGap)
	}
	e.schedule(h, s, c)
}

// dropChange ends a change, and the request for it, whose context has left its session.
func (e *Engine) dropChange(h handle, s *session, c call) {
	if s.request != 0 && e.requests.at(s.request).kind == gtp.TypeUpdateRequest {
		e.endRequest(s.request)
	}
	e.endChange(h, c)
}

// rerouted ends an Indicate that waits when the SGSN has given the context another end by itself meanwhile: it
// would take away that one.
func (e *Engine) rerouted(x handle, u *pdpContext, to handle, teid uint32, c call) {
	if e.changes[u.session].indicate && e.changes[u.session].context == x && (u.user != to || u.peerTEID != teid) {
		e.endChange(u.session, c)
	}
}

// updateResponse takes the answer of an SGSN to a change.
func (e *Engine) updateResponse(t *transaction, rh handle) Reason {
	m := &e.scratch.updated
	if r := e.parse(t, m); r != none {
		return r
	}
	h := e.requests.at(rh).session
	e.endRequest(rh)
	to := e.changes[h]
	switch {
	case to.context == 0:
		return ResponseUnknown
	case m.Cause == gtp.CauseCollision:
		e.changeLater(h, t.call)
		return none
	case m.Cause == gtp.CauseNonExistent, m.Cause == gtp.CauseContextNotFound:
		e.end(to.context, EndPeerUnknown, t.call)
		return none
	case m.Cause.Accepted():
		e.changed(t, &to, m)
	}
	e.endChange(h, t.call)
	return none
}

// changed takes over what the SGSN's answer says of a context.
func (e *Engine) changed(t *transaction, to *change, m *gtp.UpdateResponse) {
	x, was := e.contexts.at(to.context), e.conditionsOf(to.context)
	if m.QoS.Present {
		x.qos = m.QoS.Value
		if !to.limits {
			x.asked = x.qos
		}
		e.police(to.context, e.sessions.at(x.session), x)
	}
	if m.TEIDData.Present && m.AddressUser.Present {
		a := e.accessPoint(e.sessions.at(x.session))
		if user, cause := e.node(t, m.AddressUser.Value, a.DirectTunnel); cause == 0 {
			e.moveUser(to.context, x, user, m.TEIDData.Value)
		}
	}
	e.recharge(to.context, was, t.call)
	e.stats.Updated++
	e.tell(t.call, ContextUpdated, to.context, 0)
}
