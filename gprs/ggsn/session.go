// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
)

// session is what a terminal has by one primary context. It holds no pointer, so that the
// collector need not look at it.
type session struct {
	tid         gtp.TID // of the context that it began with
	interfaceID uint64
	advertAt    time.Duration // when the next router advertisement is due; 0: none is
	away        time.Duration // how long there was no node since its last packet, if none came after the last restart
	claimedAt   time.Duration // when an SGSN last said that its node has it
	prefix      uint64        // the upper half of IPv6 addresses
	address     uint32        // IPv4
	teid        uint32        // ours, of the control plane; of version 0 a flow label
	peerTEID    uint32
	createdAt   uint32 // seconds since the epoch
	apn         uint16
	version     gtp.Version
	has         Types // of TypeIPv4 and TypeIPv6, one or both
	marks       marks
	why         End    // it is to go
	peer        handle // the node that has the control plane
	account     handle // the node that asked for it, or moved it: its contexts count as that one's
	next, prev  handle // sessions of that node, or those that are to go
	first       handle // contexts
	request     handle // ours, that waits for its answer
	user        uint32 // see [Engine.userOf]
	msisdn      gtp.MSISDN
	limits      Rates  // of its contexts, by its subscription when it began
	askedAMBR   Rates  // by its SGSN
	aggregate   handle // of the rates that its contexts share; 0: none
	linkState   link.State
	guesses     guesses
}

// marks are what is to be remembered of a session.
type marks uint16

const (
	markIMEI      marks = 1 << iota // the TID has digits of an IMEI, for the terminal has no IMSI
	markReleasing                   // it is in the list of sessions that are to go
	markStatic4                     // the address is one that the terminal asked for
	markStatic6
	markDeleting // a Delete Request is on its way
	markEnding   // it is to be deleted in good order, at its next deadline
	markHeard    // the terminal has had an answer to a Router Solicitation
	markHanded4  // another session goes on with the address
	markHanded6
	markFormer  // it has former prefixes besides, until their time is over: in Engine.formers
	markFurther // it has further prefixes on its link: in Engine.further
	markOwn     // it was granted name servers, or an MTU: in Engine.ownLinks
)

func (s *session) marked(m marks) bool { return s.marks&m != 0 }

// pdpContext is one context of a session.
type pdpContext struct {
	session    handle
	next       handle // of the session
	user       handle // the node that has the user plane
	userNext   handle // contexts of that node
	userPrev   handle
	twin       handle // another context with the same TEID there: byPeer has the first
	twinPrev   handle
	teid       uint32 // ours; of version 0 a flow label
	peerTEID   uint32
	chargingID uint32
	lastSeen   uint32 // seconds since the epoch
	sharing    sharing
	refused    uint16 // with sharingRefused: when, in the low bits of seconds since the epoch
	createdAt  time.Duration
	up, down   way
	full       uint64 // octets with which its charging record is closed; 0: any
	hash       uint64 // of the request that it was created by
	sequence   uint16 // of that
	port       uint16 // that it came from
	sent       uint16 // the last sequence number of G-PDUs
	nsapi      uint8
	filtered   bool  // it has a traffic flow template, in Engine.filters
	fixed      bool  // its profile is not to be negotiated
	upgrade    bool  // its SGSN can have a better one than it asked for
	aggregate  bool  // its traffic counts for the rates that its terminal's contexts share
	mark       uint8 // DSCP
	qos, asked gtp.QoS
}

// tidOf is the key of a context of a session.
func tidOf(s *session, nsapi uint8) gtp.TID {
	t := s.tid
	t[7] = t[7]&0x0f | nsapi<<4
	return t
}

// contextsOf are the contexts among which those of a session with the marks are found by
// their TID: the digits of an IMEI may be those of an IMSI.
func (e *Engine) contextsOf(m marks) map[gtp.TID]handle {
	if m&markIMEI != 0 {
		return e.byIMEI
	}
	return e.byTID
}

// find returns the context of a session with an NSAPI.
func (e *Engine) find(s *session, nsapi uint8) (handle, *pdpContext) {
	for h := s.first; h != 0; {
		c := e.contexts.at(h)
		if c.nsapi == nsapi {
			return h, c
		}
		h = c.next
	}
	return 0, nil
}

// addSession takes a record and enters it in the tables by which it is found. Addresses,
// TEID and peer are set by then.
func (e *Engine) addSession(made *session) (handle, *session) {
	h, s := e.sessions.take()
	*s = *made
	v := e.vrfOf(s)
	if s.has.has(TypeIPv4) {
		v.by4[s.address] = h
	}
	if s.has.has(TypeIPv6) {
		v.by6[s.prefix] = h
	}
	if s.version == gtp.V1 {
		e.byControl[s.teid] = h
	}
	e.linkSession(h, s)
	return h, s
}

// addContext takes a record for a context of a session, behind those that are there.
func (e *Engine) addContext(sh handle, s *session, made *pdpContext) (handle, *pdpContext) {
	h, c := e.contexts.take()
	*c = *made
	c.session = sh
	if s.first == 0 {
		s.first = h
	} else {
		last := e.contexts.at(s.first)
		for last.next != 0 {
			last = e.contexts.at(last.next)
		}
		last.next = h
		e.forget(s.first)
	}
	e.contextsOf(s.marks)[tidOf(s, c.nsapi)] = h
	e.byCharging[c.chargingID] = h
	if s.version == gtp.V1 {
		e.byTEID[c.teid] = h
	}
	e.peers.at(s.account).held++
	e.linkUser(h, c)
	e.stats.Created++
	return h, c
}

// end ends one context; with its last one, a session ends.
func (e *Engine) end(h handle, why End, c call) {
	x := e.contexts.at(h)
	sh, s := x.session, e.sessions.at(x.session)
	e.withdraw(h)
	e.tell(c, ContextDeleted, h, why)
	e.lastRecord(h, why, c)
	e.stats.Ended[why]++
	at := &s.first
	for *at != h {
		at = &e.contexts.at(*at).next
	}
	*at = x.next
	if s.first != 0 && e.changes[sh].context == h {
		e.dropChange(sh, s, c)
	}
	e.ended.add(endedOf(s.version, tidOf(s, x.nsapi), x.teid, uint16(x.teid)), c.at)
	e.late.add(x, e.patience())
	delete(e.contextsOf(s.marks), tidOf(s, x.nsapi))
	delete(e.byCharging, x.chargingID)
	if s.version == gtp.V1 {
		delete(e.byTEID, x.teid)
	}
	if x.filtered {
		delete(e.filters, h)
	}
	e.peers.at(s.account).held--
	e.unlinkUser(h, x)
	e.contexts.give(h)
	if s.first == 0 {
		e.dropSession(sh, s, c)
	}
}

// endSession ends a session with all its contexts.
func (e *Engine) endSession(h handle, why End, c call) {
	s := e.sessions.at(h)
	for s.first != s.lastOf(e) {
		e.end(s.first, why, c)
	}
	e.end(s.first, why, c)
}

// lastOf returns the last context of a session.
func (s *session) lastOf(e *Engine) handle {
	h := s.first
	for e.contexts.at(h).next != 0 {
		h = e.contexts.at(h).next
	}
	return h
}

// dropSession takes a session without contexts out of all tables.
func (e *Engine) dropSession(h handle, s *session, c call) {
	v := e.vrfOf(s)
	if s.has.has(TypeIPv4) && v.by4[s.address] == h {
		delete(v.by4, s.address)
	}
	if s.has.has(TypeIPv6) && v.by6[s.prefix] == h {
		delete(v.by6, s.prefix)
	}
	if s.version == gtp.V1 {
		delete(e.byControl, s.teid)
	}
	e.giveBack(s, c)
	e.dropFormers(h, s, anyFormer, c)
	e.dropFurther(h, s, c)
	if s.request != 0 {
		e.endRequest(s.request)
	}
	delete(e.changes, h)
	delete(e.delegations, h)
	delete(e.delegates, h)
	e.dropRoutes(h, s)
	e.leaveAggregate(s)
	delete(e.terms, h)
	delete(e.ownLinks, h)
	delete(e.accounts, h)
	e.unlinkSession(h, s)
	e.sessionTimes.Stop(h)
	e.sessions.give(h)
	e.drainedOne(c)
}

// linkSession lists a session with its peer.
func (e *Engine) linkSession(h handle, s *session) {
	p := e.peers.at(s.peer)
	e.push(&p.sessions, h, s)
	p.count(s.version, 1)
	e.pathUsed(s.peer, p)
}

// push puts a session first in a list.
func (e *Engine) push(head *handle, h handle, s *session) {
	s.prev, s.next = 0, *head
	if *head != 0 {
		e.sessions.at(*head).prev = h
	}
	*head = h
}

// headOf returns where the list that a session is in begins.
func (e *Engine) headOf(s *session) *handle {
	if s.marked(markReleasing) {
		return &e.releasing
	}
	return &e.peers.at(s.peer).sessions
}

// unlinkSession takes a session out of its list.
func (e *Engine) unlinkSession(h handle, s *session) {
	e.cut(e.headOf(s), s)
	if s.marked(markReleasing) {
		e.toRelease--
	}
	e.peers.at(s.peer).count(s.version, -1)
}

// charge has the contexts of a session count as another node's.
func (e *Engine) charge(s *session, to handle) {
	n := e.size(s)
	e.peers.at(s.account).held -= n
	e.peers.at(to).held += n
	s.account = to
}

// size is how many contexts a session has.
func (e *Engine) size(s *session) (n int) {
	for h := s.first; h != 0; h = e.contexts.at(h).next {
		n++
	}
	return n
}

func (e *Engine) cut(head *handle, s *session) {
	if s.prev != 0 {
		e.sessions.at(s.prev).next = s.next
	} else {
		*head = s.next
	}
	if s.next != 0 {
		e.sessions.at(s.next).prev = s.prev
	}
	s.next, s.prev = 0, 0
}

// peerTEID is a TEID of another node.
type peerTEID struct {
	node handle
	teid uint32
}

// linkUser lists a context with the node that has its user plane.
func (e *Engine) linkUser(h handle, c *pdpContext) {
	p := e.peers.at(c.user)
	c.userPrev, c.userNext = 0, p.users
	if p.users != 0 {
		e.contexts.at(p.users).userPrev = h
	}
	p.users = h
	if e.sessions.at(c.session).version == gtp.V1 {
		p.paths[pathUser].used++
		e.linkTwin(h, c)
	}
	p.contexts++
	e.pathUsed(c.user, p)
}

func (e *Engine) unlinkUser(h handle, c *pdpContext) {
	e.forget(h)
	p := e.peers.at(c.user)
	if c.userPrev != 0 {
		e.contexts.at(c.userPrev).userNext = c.userNext
	} else {
		p.users = c.userNext
	}
	if c.userNext != 0 {
		e.contexts.at(c.userNext).userPrev = c.userPrev
	}
	c.userNext, c.userPrev = 0, 0
	if e.sessions.at(c.session).version == gtp.V1 {
		p.paths[pathUser].used--
		e.unlinkTwin(h, c)
	}
	p.contexts--
}

// linkTwin enters a context by its TEID at the node that has its user plane. Others may have the
// same, of an SGSN that has forgotten them, or that lies: no one takes the place of another.
func (e *Engine) linkTwin(h handle, c *pdpContext) {
	key := peerTEID{c.user, c.peerTEID}
	c.twinPrev, c.twin = 0, e.byPeer[key]
	if c.twin != 0 {
		e.contexts.at(c.twin).twinPrev = h
	}
	e.byPeer[key] = h
}

func (e *Engine) unlinkTwin(h handle, c *pdpContext) {
	if c.twin != 0 {
		e.contexts.at(c.twin).twinPrev = c.twinPrev
	}
	switch key := (peerTEID{c.user, c.peerTEID}); {
	case c.twinPrev != 0:
		e.contexts.at(c.twinPrev).twin = c.twin
	case c.twin != 0:
		e.byPeer[key] = c.twin
	default:
		delete(e.byPeer, key)
	}
	c.twin, c.twinPrev = 0, 0
}

// newTEID draws a number that no other context, or session, has. No one can guess it.
func (e *Engine) newTEID(taken map[uint32]handle) uint32 {
	for {
		t := e.random.Uint32()
		if _, used := taken[t]; t != 0 && !used {
			return t
		}
	}
}

// newChargingID is the next one that no context has. 0 is reserved (TS 29.060 section 7.7.26).
func (e *Engine) newChargingID() uint32 {
	for {
		e.chargingID++
		if _, used := e.byCharging[e.chargingID]; e.chargingID != 0 && !used {
			return e.chargingID
		}
	}
}

// prefixOf is the first prefix of a session's link.
func (s *session) prefixOf() netip.Prefix { return prefixAt(s.prefix) }
