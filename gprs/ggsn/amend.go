// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Amendment is what is to change of sessions that there are (TS 29.061 section 16.3.4); what is not
// present stays.
type Amendment struct {
	// SessionLimit counts from the beginning of a session, as that of [Terms] does.
	SessionLimit, IdleLimit gtp.Optional[time.Duration]
	// Interim is how often accounts tell of it.
	Interim gtp.Optional[time.Duration]
	// QoS is for the contexts that are named, within the limits of their access point.
	QoS gtp.Optional[gtp.QoS]
	// Class is what accounts tell from now on; nil stays.
	Class [][]byte
}

// Why sessions cannot be amended, or deleted.
var (
	ErrGone       = errors.New("the context has ended, or is about to")
	ErrProhibited = errors.New("the access point does not let it be changed")
	ErrValue      = errors.New("a context of GTPv0 has no such profile")
	ErrSeveral    = errors.New("one context of a session can get another profile at a time")
	ErrBusy       = errors.New("the SGSN has not answered an earlier request")
)

// Disconnect deletes the sessions of contexts in good order, as [Engine.Delete] does, or none of them. Their
// accounts tell a class instead of theirs, if there is one.
func (e *Engine) Disconnect(refs []Ref, class [][]byte, now time.Time, out *Output) error {
	c := e.begin(now, out)
	for _, r := range refs {
		if e.referred(r) == nil {
			return ErrGone
		}
	}
	for _, r := range refs {
		h := e.referred(r).session
		e.classify(h, class)
		e.deleteSession(h, c)
	}
	return nil
}

// Amend changes the sessions of contexts, all of them or none. Another profile is asked of the SGSN, and
// counts when that has agreed; a context of GTPv0, which has no request for it, gets it at once.
func (e *Engine) Amend(refs []Ref, to *Amendment, now time.Time, out *Output) error {
	c := e.begin(now, out)
	for i, r := range refs {
		if err := e.mayAmend(r, refs[:i], to); err != nil {
			return err
		}
	}
	for _, r := range refs {
		e.amend(r, to, c)
	}
	return nil
}

// referred returns the context that is named; nil: it has ended.
func (e *Engine) referred(r Ref) *pdpContext {
	if r.Record == 0 || handle(r.Record) > e.contexts.last {
		return nil
	}
	if x := e.contexts.at(handle(r.Record)); x.session != 0 && x.chargingID == r.ChargingID {
		return x
	}
	return nil
}

// mayAmend returns why a context cannot be amended beside others.
func (e *Engine) mayAmend(r Ref, others []Ref, to *Amendment) error {
	x := e.referred(r)
	if x == nil {
		return ErrGone
	}
	s := e.sessions.at(x.session)
	if s.marked(markDeleting | markReleasing | markEnding) {
		return ErrGone
	}
	// What is configured counts before what a server says (RFC 2869 section 5.16).
	if to.Interim.Present && (e.accounts[x.session] == nil || e.accessPoint(s).Interim > 0) {
		return ErrProhibited
	}
	if !to.QoS.Present {
		return nil
	}
	if s.version == gtp.V0 {
		if to.QoS.Value.Len() >= release99 {
			return ErrValue
		}
		return nil
	}
	for _, other := range others {
		if e.referred(other).session == x.session {
			return ErrSeveral
		}
	}
	if e.changing(x.session, s) || e.peers.at(s.peer).paths[pathControl].waiting+len(others) >= maxOutstanding {
		return ErrBusy
	}
	return nil
}

// amend changes the session of a context that may be amended.
func (e *Engine) amend(r Ref, to *Amendment, c call) {
	x := e.referred(r)
	h, s := x.session, e.sessions.at(x.session)
	terms, was := e.terms[h], e.terms[h]
	if to.SessionLimit.Present {
		terms.SessionLimit = to.SessionLimit.Value
	}
	if to.IdleLimit.Present {
		terms.IdleLimit = to.IdleLimit.Value
	}
	if terms != was {
		e.terms[h] = terms
	}
	if to.Interim.Present {
		e.accounts[h].interim = to.Interim.Value
	}
	e.classify(h, to.Class)
	switch {
	case !to.QoS.Present:
	case s.version == gtp.V0:
		was := e.conditionsOf(handle(r.Record))
		e.grant(handle(r.Record), s, x, to.QoS.Value, 0)
		e.recharge(handle(r.Record), was, c)
		e.stats.Updated++
		e.tell(c, ContextUpdated, handle(r.Record), 0)
	default:
		e.startChange(h, change{context: handle(r.Record), qos: negotiate(to.QoS.Value, e.limitsOf(s), false)}, c)
	}
	e.schedule(h, s, c)
}

// classify has the account of a session tell another class, if there are both.
func (e *Engine) classify(h handle, class [][]byte) {
	of := e.accounts[h]
	if of == nil || class == nil {
		return
	}
	now := *of.Account // what was told of does not change
	now.Class = class
	of.Account = &now
}
