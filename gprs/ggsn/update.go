// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// update changes a context for an SGSN: where it is, what it may use, which packets are
// for it (TS 29.060 section 7.3.3, TS 09.60 section 7.5.3).
func (e *Engine) update(t *transaction) Reason {
	m := &e.scratch.update
	if r := e.request(t, m); r != none {
		return r
	}
	if err := m.CheckFromSGSN(); err != nil {
		return e.unreadable(t, err)
	}
	x, ok := e.toUpdate(t, m)
	if !ok {
		e.respond(t, gtp.CauseNonExistent, 0)
		return none
	}
	s := e.sessions.at(e.contexts.at(x).session)
	if cause := e.applyUpdate(t, m, x, s); cause != 0 {
		e.respond(t, cause, s.peerTEID)
		return none
	}
	e.stats.Updated++
	e.updated(t, x, s, m)
	e.tell(t.call, ContextUpdated, x, 0)
	return none
}

// toUpdate returns the context that an Update Request is for. One that moves to the other
// version is found by its IMSI and NSAPI, for its new SGSN knows no TEID, and of version 0 no
// flow label, which is zero then. Version 0 has no secondary contexts, so that one with others
// stays.
func (e *Engine) toUpdate(t *transaction, m *gtp.UpdateRequest) (handle, bool) {
	if sh := e.sessionHandle(t); sh != 0 {
		nsapi := m.NSAPI
		if t.header.Version == gtp.V0 {
			nsapi = t.header.TID.NSAPI()
		}
		x, _ := e.find(e.sessions.at(sh), nsapi)
		return x, x != 0
	}
	if t.header.Version == gtp.V0 && t.header.FlowLabel != 0 || t.header.Version == gtp.V1 && (t.header.TEID != 0 || !m.IMSI.Present || !m.TEIDControl.Present) {
		return 0, false
	}
	tid := namedTID(t, m)
	x := e.byTID[tid]
	if x == 0 {
		x = e.byTID[tid.Reversed()]
	}
	if x == 0 {
		return 0, false
	}
	s := e.sessions.at(e.contexts.at(x).session)
	return x, s.version != t.header.Version && e.contexts.at(s.first).next == 0
}

// namedTID is the TID of the context that a request names without a tunnel identifier.
func namedTID(t *transaction, m *gtp.UpdateRequest) gtp.TID {
	if t.header.Version == gtp.V0 {
		return t.header.TID
	}
	return gtp.MakeTID(m.IMSI.Value, m.NSAPI)
}

// rename gives the one context of a session that has changed its version the TID by which it
// is known there: a node of version 0 may write it the other way round.
func (e *Engine) rename(h handle, to gtp.TID) {
	x := e.contexts.at(h)
	s := e.sessions.at(x.session)
	delete(e.byTID, tidOf(s, x.nsapi))
	s.tid, x.nsapi = to, to.NSAPI()
	e.byTID[to] = h
}

// applyUpdate applies a request as a whole or not at all.
func (e *Engine) applyUpdate(t *transaction, m *gtp.UpdateRequest, x handle, s *session) gtp.Cause {
	c := e.contexts.at(x)
	a := e.accessPoint(s)
	control, user, cause := e.nodes(t, m.AddressControl.Value, m.AddressUser.Value, a)
	if cause != 0 {
		return cause
	}
	asked, cause := e.filtersOf(s, x, e.filters[x], m.TFT)
	if cause != 0 {
		return cause
	}
	moves := control != s.peer && s.account != t.ph
	if moves && !e.mayHold(t.p, e.size(s)) {
		return gtp.CauseNoResources
	}
	e.heardCounter(t, control, m.Recovery, c.session)
	// A request of this node that is under way gives way to that of the SGSN.
	e.collided(c.session, s, t.call)
	was := e.conditionsOf(x)
	changes, released := t.header.Version != s.version, s.marked(markReleasing)
	e.moveSession(c.session, s, control, t.header.Version)
	if changes {
		e.rename(x, namedTID(t, m))
	}
	if released {
		e.schedule(c.session, s, t.call) // what was due meanwhile was left undone
	}
	if moves {
		e.charge(s, t.ph)
	}
	if m.TEIDControl.Present {
		s.peerTEID = m.TEIDControl.Value
	}
	e.rerouted(x, c, user, m.TEIDData.Value, t.call)
	e.moveUser(x, c, user, m.TEIDData.Value)
	e.askAMBR(s, m.AMBR)
	e.movedTo(c.session, &Origin{RAT: m.RATType, Network: networkOf(m.RAI), Location: m.Location, TimeZone: m.TimeZone})
	e.grant(x, s, c, m.QoS.Value, m.CommonFlags.Value)
	if m.TFT.Present {
		e.setFilters(x, asked)
	} else if s.version == gtp.V0 {
		e.setFilters(x, nil) // it has no templates
	}
	if s.why == EndPath {
		s.marks &^= markEnding // it has a user plane that answers
	}
	e.recharge(x, was, t.call)
	return 0
}

// moveSession gives the control plane of a session to a node, and a session of version 0
// that is spoken of in version 1 the TEIDs of that, or the other way round.
func (e *Engine) moveSession(h handle, s *session, to handle, version gtp.Version) {
	s.claimedAt = e.at
	if s.peer == to && s.version == version && !s.marked(markReleasing) {
		return
	}
	e.unlinkSession(h, s)
	s.marks &^= markReleasing
	if s.version != version {
		e.changeVersion(h, s, version)
	}
	s.peer = to
	e.linkSession(h, s)
}

// moveUser gives the user plane of a context to a node.
func (e *Engine) moveUser(h handle, c *pdpContext, to handle, teid uint32) {
	if c.user != to {
		e.moved.add(e, h, e.sessions.at(c.session).version)
	}
	e.unlinkUser(h, c)
	c.user, c.peerTEID = to, teid
	e.linkUser(h, c)
}

// changeVersion takes a session's contexts to the other version, with new TEIDs or flow
// labels.
func (e *Engine) changeVersion(h handle, s *session, version gtp.Version) {
	old := s.version
	delete(e.changes, h) // version 0 has no request for one
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		e.withdraw(x) // it is found by another TEID, or by none
		c := e.contexts.at(x)
		e.moved.add(e, x, old)
		e.ended.add(endedOf(old, tidOf(s, c.nsapi), c.teid, uint16(c.teid)), e.at)
		e.unlinkUser(x, c)
		if old == gtp.V1 {
			delete(e.byTEID, c.teid)
			c.teid = uint32(uint16(e.random.Uint32()))
		} else {
			c.teid = e.newTEID(e.byTEID)
			e.byTEID[c.teid] = x
		}
	}
	if old == gtp.V1 {
		delete(e.byControl, s.teid)
	}
	s.teid, s.version = e.newControlTEID(version), version
	if version == gtp.V1 {
		e.byControl[s.teid] = h
	}
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		e.linkUser(x, e.contexts.at(x))
	}
}

// updated answers a request that changed a context.
func (e *Engine) updated(t *transaction, x handle, s *session, m *gtp.UpdateRequest) {
	c := e.contexts.at(x)
	r := &e.scratch.updated
	*r = gtp.UpdateResponse{
		Cause: gtp.CauseAccepted, Recovery: gtp.Some(e.settings.RestartCounter),
		TEIDData: gtp.Some(c.teid), TEIDControl: gtp.Some(s.teid), ChargingID: gtp.Some(c.chargingID), QoS: gtp.Some(c.qos),
		AddressControl: gtp.Some(e.own(e.peers.at(s.peer).addr)), AddressUser: gtp.Some(e.own(e.peers.at(c.user).addr)),
	}
	if t.header.Version == gtp.V1 {
		r.EvolvedARP, r.AMBR, r.InfoChangeAction = m.EvolvedARP, e.grantedAMBR(s, m.AMBR), e.reports(t, s)
		e.tellOptions(t, s, m.PCO.Value, false, &r.PCO)
	}
	e.answer(t, gtp.Header{TEID: s.peerTEID, FlowLabel: uint16(s.peerTEID), TID: tidOf(s, c.nsapi)}, r, r.Cause)
}
