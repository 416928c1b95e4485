// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// create makes a context, or answers again for one that the same request has made.
func (e *Engine) create(t *transaction) Reason {
	m := &e.scratch.create
	if r := e.request(t, m); r != none {
		return r
	}
	if m.LinkedNSAPI.Present {
		return e.createSecondary(t, m)
	}
	tid, marked := e.tidOfRequest(t, m)
	old := e.contextsOf(marked)[tid]
	if old != 0 && e.contexts.at(old).madeBy(t) {
		e.stats.Repeated++
		t.repeated = true
		e.created(t, old, m)
		return none
	}
	if e.late.has(t) {
		return CreateLate
	}
	if t.grant == nil && e.held.byKey[t.heldKey()] != nil {
		return CreateWaiting
	}
	made := session{tid: tid, version: t.header.Version, peerTEID: m.TEIDControl.Value, msisdn: m.MSISDN.Value, createdAt: t.seconds(), marks: marked}
	before := e.held.byOf[heldContextOf(tid, marked)]
	x, cause := e.createPrimary(t, m, &made, old)
	switch {
	case cause != 0:
		e.refuse(t, cause, m)
	case x != 0:
		e.created(t, x, m)
		e.greet(x, t.call)
	}
	if cause == 0 && before != nil {
		e.supersede(before, t.call)
	}
	return none
}

// refuse answers a request by a cause, and a terminal that was refused by what it can read itself.
func (e *Engine) refuse(t *transaction, cause gtp.Cause, m *gtp.CreateRequest) {
	r, teid := &e.scratch.created, m.TEIDControl.Value
	*r = gtp.CreateResponse{Cause: cause}
	if cause == gtp.CauseUserAuthentication {
		e.refuseProof(m.PCO.Value, &r.PCO)
	}
	e.answer(t, gtp.Header{TEID: teid, FlowLabel: uint16(teid), TID: t.header.TID}, r, cause)
}

// tidOfRequest returns the key of the context that is asked for. A terminal that has no IMSI
// has an IMEI.
func (e *Engine) tidOfRequest(t *transaction, m *gtp.CreateRequest) (gtp.TID, marks) {
	switch {
	case t.header.Version == gtp.V0:
		return t.header.TID, 0
	case m.IMSI.Present:
		return gtp.MakeTID(m.IMSI.Value, m.NSAPI), 0
	}
	return gtp.MakeTID(gtp.IMSI(m.IMEI.Value), m.NSAPI), markIMEI
}

// madeBy reports whether the context was made by the request, which came again.
func (u *pdpContext) madeBy(t *transaction) bool {
	return u.sequence == t.header.Sequence && u.port == t.from.Port() && u.hash == t.hash
}

// createPrimary makes a session with its first context. old is the context that has the
// IMSI and NSAPI until now. There is neither a context nor a cause where the request is to be
// authorized first.
func (e *Engine) createPrimary(t *transaction, m *gtp.CreateRequest, made *session, old handle) (handle, gtp.Cause) {
	if e.drain.refusing {
		return 0, gtp.CauseNoResources
	}
	apn, ok := e.accessOf(m.APN.Value)
	if !ok {
		return 0, gtp.CauseUnknownAPN
	}
	a := e.apns[apn]
	control, user, cause := e.nodes(t, m.AddressControl, m.AddressUser, a)
	if cause != 0 {
		return 0, cause
	}
	made.apn, made.peer, made.account = apn, control, t.ph
	may, cause := e.subscribed(made, a)
	if cause != 0 {
		return 0, cause
	}
	made.limits = e.service(made, a).Rates
	if made.has, cause = a.choose(m, may); !cause.Accepted() {
		return 0, cause
	}
	if cause := t.grant.cause(a); cause != 0 {
		return 0, cause
	}
	if made.has.has(TypeIPv6) && !t.grant.settle(a) {
		e.stats.PoolsUnknown++
		return 0, gtp.CauseUnknownPDPType
	}
	if t.grant == nil { // of one that has waited, it was heard when it came
		e.heardCounter(t, control, m.Recovery, 0)
	}
	if !e.room(t.ph, old, t.call) {
		return 0, gtp.CauseNoResources
	}
	if a.Authorize && t.grant == nil {
		return 0, e.ask(t, m, made)
	}
	kept, more, cause := e.lease(made, e.wholeOf(old), &m.EndUserAddress.Value, t.grant, t.call)
	if cause != 0 && e.releasing != 0 {
		e.releaseFor(made, m.EndUserAddress.Value, t.grant, t.call)
		old = e.contextsOf(made.marks)[made.tid] // it may have been one of those
		kept, more, cause = e.lease(made, e.wholeOf(old), &m.EndUserAddress.Value, t.grant, t.call)
	}
	if cause != 0 {
		return 0, cause
	}
	if old != 0 {
		e.hand(e.wholeOf(old), made, &more)
		e.replace(old, kept, t.call)
	}
	made.teid = e.newControlTEID(made.version)
	made.claimedAt = t.at
	sh, s := e.addSession(made)
	e.setFurther(sh, s, more)
	e.setLink(sh, s, t.grant)
	if t.grant != nil && t.grant.Terms != (Terms{}) {
		e.terms[sh] = t.grant.Terms
	}
	e.giveRoutes(sh, s, t.grant, t.call)
	e.account(sh, a, m, t.grant, t.call)
	x := e.addCreated(t, m, sh, s, user)
	e.schedule(sh, s, t.call)
	e.tell(t.call, ContextCreated, x, 0)
	return x, 0
}

// wholeOf returns the session that ends as a whole with a context that another replaces: that
// began with it. Of no context, and of a secondary one, it is nil.
func (e *Engine) wholeOf(old handle) *session {
	if old == 0 {
		return nil
	}
	x := e.contexts.at(old)
	if s := e.sessions.at(x.session); s.tid.NSAPI() == x.nsapi {
		return s
	}
	return nil
}

// replace ends what has the IMSI and NSAPI of a request, once it is sure that this is granted: a
// secondary context alone, or with the context that a session began with all of it, but for the
// addresses of the types in kept.
func (e *Engine) replace(old handle, kept Types, c call) {
	s := e.wholeOf(old)
	if s == nil {
		e.end(old, EndRecreated, c)
		return
	}
	if kept.has(TypeIPv4) {
		s.marks |= markHanded4
	}
	if kept.has(TypeIPv6) {
		s.marks |= markHanded6
	}
	e.endSession(e.contexts.at(old).session, EndRecreated, c)
}

// room reports whether there may be one more context that counts as a node's, in the place of old
// if there is one. What is to go makes room.
func (e *Engine) room(account, old handle, c call) bool {
	for range releaseBurst {
		if old != 0 || e.releasing == 0 || !e.full(account, old) {
			break
		}
		e.release(1, c) // which may count as another node's
	}
	return !e.full(account, old)
}

// full reports whether there may be no more contexts, or none that count as a node's, but in the
// place of old.
func (e *Engine) full(account, old handle) bool {
	if old == 0 {
		return e.contexts.used() >= e.settings.Limits.Contexts || !e.mayHold(e.peers.at(account), 1)
	}
	was := e.sessions.at(e.contexts.at(old).session).account
	return was != account && !e.mayHold(e.peers.at(account), 1)
}

// mayHold reports whether so many more contexts may count as a node's: those that it has asked
// for, whichever node it names, so that none uses up what is another's.
func (e *Engine) mayHold(p *peer, more int) bool {
	most := e.settings.Limits.ContextsPerPeer
	return most == 0 || p.held+more <= most
}

// addCreated adds the context of a request to a session.
func (e *Engine) addCreated(t *transaction, m *gtp.CreateRequest, sh handle, s *session, user handle) handle {
	x := pdpContext{
		session: sh, user: user, peerTEID: m.TEIDData, nsapi: m.NSAPI,
		hash: t.hash, sequence: t.header.Sequence, port: t.from.Port(),
		lastSeen: t.seconds(), createdAt: t.at,
	}
	if s.version == gtp.V0 {
		x.nsapi, x.teid = s.tid.NSAPI(), uint32(uint16(e.random.Uint32()))
	} else {
		x.teid = e.newTEID(e.byTEID)
	}
	x.chargingID = e.newChargingID()
	e.askAMBR(s, m.AMBR)
	e.grant(0, s, &x, m.QoS, m.CommonFlags.Value)
	h, _ := e.addContext(sh, s, &x)
	e.limitVolume(h)
	return h
}

func (e *Engine) newControlTEID(v gtp.Version) uint32 {
	if v == gtp.V0 {
		return uint32(uint16(e.random.Uint32())) // a flow label
	}
	return e.newTEID(e.byControl)
}

// nodes returns the nodes that are to have control and user plane.
func (e *Engine) nodes(t *transaction, control, user netip.Addr, a *access) (ch, uh handle, cause gtp.Cause) {
	if ch, cause = e.node(t, control, false); cause == 0 {
		uh, cause = e.node(t, user, a.DirectTunnel)
	}
	return ch, uh, cause
}

// node returns the node of an address in a message, which must be a peer unless any may be
// named.
func (e *Engine) node(t *transaction, a netip.Addr, anyone bool) (handle, gtp.Cause) {
	if !e.reachable(a) || e.isNoNode(a, t.from.Addr()) || !e.isPeer(a) && (!anyone || e.isTerminals(a)) {
		return 0, gtp.CauseMandatoryIncorrect
	}
	h, ok := e.namedPeer(t.ph, a)
	if !ok {
		return 0, gtp.CauseNoResources
	}
	return h, 0
}

// choose returns the families that a context gets of a subscriber who may have these types, and the cause
// of its answer. Who may have both at once may have each.
func (a *access) choose(m *gtp.CreateRequest, may Types) (has Types, cause gtp.Cause) {
	both := func(of Types) bool { return a.Types&of != 0 && may&of != 0 }
	four, six := both(TypeIPv4|TypeIPv4v6), both(TypeIPv6|TypeIPv4v6)
	switch m.EndUserAddress.Value.Type {
	case gtp.PDPTypeIPv4:
		if four {
			return TypeIPv4, gtp.CauseAccepted
		}
	case gtp.PDPTypeIPv6:
		if six {
			return TypeIPv6, gtp.CauseAccepted
		}
	case gtp.PDPTypeIPv4v6:
		switch {
		case !four && !six:
		case !six:
			return TypeIPv4, gtp.CauseNewPDPTypeNetwork
		case !four:
			return TypeIPv6, gtp.CauseNewPDPTypeNetwork
		case both(TypeIPv4v6) && m.CommonFlags.Value&gtp.FlagDualAddressBearer != 0:
			return TypeIPv4 | TypeIPv6, gtp.CauseAccepted
		default:
			return TypeIPv6, gtp.CauseNewPDPTypeSingle
		}
	}
	return 0, gtp.CauseUnknownPDPType
}

// created answers the request that made a context.
func (e *Engine) created(t *transaction, x handle, m *gtp.CreateRequest) {
	c := e.contexts.at(x)
	s := e.sessions.at(c.session)
	r := &e.scratch.created
	*r = gtp.CreateResponse{
		Cause: gtp.CauseAccepted, Reordering: gtp.Some(false), Recovery: gtp.Some(e.settings.RestartCounter),
		TEIDData: gtp.Some(c.teid), ChargingID: gtp.Some(c.chargingID), QoS: gtp.Some(c.qos),
		AddressControl: gtp.Some(e.own(e.peers.at(s.peer).addr)), AddressUser: gtp.Some(e.own(e.peers.at(c.user).addr)),
	}
	if s.version == gtp.V1 {
		r.EvolvedARP, r.AMBR, r.InfoChangeAction = m.EvolvedARP, e.grantedAMBR(s, m.AMBR), e.reports(t, s)
	}
	if !m.LinkedNSAPI.Present {
		r.Cause = e.acceptance(s, m)
		r.TEIDControl, r.EndUserAddress = gtp.Some(s.teid), gtp.Some(s.endUserAddress())
	}
	e.tellOptions(t, s, m.PCO.Value, !m.LinkedNSAPI.Present, &r.PCO)
	e.stats.Answers[r.Cause]++
	e.write(t, gtp.Header{TEID: s.peerTEID, FlowLabel: uint16(s.peerTEID), TID: tidOf(s, c.nsapi)}, r)
}

// acceptance returns the cause with which a session was accepted. What it was refused for today, after a
// change of the settings, it was not.
func (e *Engine) acceptance(s *session, m *gtp.CreateRequest) gtp.Cause {
	if m.EndUserAddress.Value.Type != gtp.PDPTypeIPv4v6 || s.has == TypeIPv4|TypeIPv6 {
		return gtp.CauseAccepted
	}
	a := e.accessPoint(s)
	may, _ := e.subscribed(s, a)
	if _, cause := a.choose(m, may); cause.Accepted() {
		return cause
	}
	return gtp.CauseNewPDPTypeNetwork
}

// pdpType is the type of a session's contexts.
func (s *session) pdpType() gtp.PDPType {
	switch s.has {
	case TypeIPv4:
		return gtp.PDPTypeIPv4
	case TypeIPv6:
		return gtp.PDPTypeIPv6
	}
	return gtp.PDPTypeIPv4v6
}

func (s *session) endUserAddress() gtp.EndUserAddress {
	a := gtp.EndUserAddress{Type: s.pdpType()}
	if s.has.has(TypeIPv4) {
		a.IPv4 = addr4(s.address)
	}
	if s.has.has(TypeIPv6) {
		a.IPv6 = addr6(s.prefix, s.interfaceID)
	}
	return a
}
