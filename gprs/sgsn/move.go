// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// move is a change of the SGSN under way: the contexts of a session go to another of our
// addresses, or to the other version of GTP, each by an update of its own.
type move struct {
	path    *path  // of signalling, from the new address, by the new version
	control uint32 // the new tunnel identifier of signalling
	left    int    // contexts whose update is not answered
	failed  bool   // for one of them at least
	fault   Event  // what the first of these failed by
	// waiting are packets of the terminal, which is silent meanwhile: the GGSN takes them from
	// one SGSN or the other, and we do not know since when.
	waiting [][]byte
}

// maxWaiting bounds these packets.
const maxWaiting = 256

func (m *move) version() gtp.Version { return m.path.key.plane.version() }

// Move hands the contexts of a terminal over to the SGSN at another of our addresses, as when
// it has gone into the routeing area of that one (TS 23.060 section 6.9.1.2.2): the state is
// there already, and the GGSN is told. The terminal is silent until it has answered; packets
// to it come to either address as long as some may be on their way.
//
// That SGSN may speak the other version of GTP. Then it does not know by what name the GGSN
// knows the context: an update of version 1 has the IMSI in place of a tunnel identifier, and
// one of version 0 a flow label of zero.
func (e *Engine) Move(key gtp.TID, local int, version gtp.Version, now time.Time, out *Output) error {
	c := e.contexts[key]
	switch {
	case c == nil:
		return ErrUnknown
	case local < 0 || local >= len(e.set.Addresses) || e.set.Addresses[local].Is4() != e.set.Addresses[c.session.local].Is4():
		return ErrLocal
	case c.session.moved != nil:
		return ErrBusy
	}
	s := c.session
	if version == gtp.V0 && (len(s.contexts) > 1 || c.linked) {
		return ErrSecondary
	}
	for _, c := range s.contexts {
		if c.state != Open {
			return ErrBusy
		}
	}
	m := &move{path: e.path(local, controlPlane(version), s.path.key.peer, now), control: e.tunnelID(version)}
	s.moved = m
	if version == gtp.V1 {
		e.control[m.control] = s
	}
	for _, c := range s.contexts {
		c.next = tunnel{version, e.tunnelID(version)}
		if version == gtp.V1 {
			e.data[c.next.id] = c
		}
		m.left++
		if !e.update(c, m.path, m.control, c.next.id, c.qos, now, out) {
			e.stay(c)
			return ErrRequests
		}
	}
	return nil
}

// moved has a context send from the new address. What is sent to the old one is still taken
// while it may be on its way.
func (e *Engine) moved(c *PDPContext, cause gtp.Cause, took time.Duration, now time.Time, out *Output) {
	s, m := c.session, c.session.moved
	e.forget(c)
	c.earlier, c.data, c.next, c.local = tunnel{s.version(), c.data}, c.next.id, tunnel{}, m.path.key.local
	e.timers.Set(&c.forget, now.Add(time.Duration(e.set.N3Requests)*e.set.T3Response))
	before := c.path
	if c.path = nil; m.version() == gtp.V1 {
		c.path = e.path(c.local, PlaneUser, c.remoteUser.Addr(), now)
	}
	if before != nil {
		e.leave(before)
	}
	e.arrived(s)
	if e.speak(s, m, now, out); s.moved != nil || m.failed {
		return
	}
	about := s.contexts[0].event(Moved)
	about.Cause, about.Took = cause, took
	e.tell(about, out)
}

// stay gives up the move of a context.
func (e *Engine) stay(c *PDPContext) {
	if e.data[c.next.id] == c {
		delete(e.data, c.next.id)
	}
	c.next = tunnel{}
	c.session.moved.failed = true
	e.arrived(c.session)
}

// arrived ends the move with the last context: signalling follows unless one of them has
// stayed.
func (e *Engine) arrived(s *session) {
	m := s.moved
	if m.left--; m.left > 0 {
		return
	}
	s.moved = nil
	if m.failed {
		if e.control[m.control] == s {
			delete(e.control, m.control)
		}
		e.leave(m.path)
		return
	}
	if e.control[s.control] == s {
		delete(e.control, s.control)
	}
	if s.version() == m.version() {
		m.path.recovery = s.path.recovery
	}
	e.leave(s.path)
	s.path, s.control, s.local, s.wanted.Version = m.path, m.control, m.path.key.local, m.version()
}

// silent keeps a packet of a terminal that moves. It reports whether it does.
func (e *Engine) silent(s *session, ip []byte) bool {
	m := s.moved
	if m == nil {
		return false
	}
	if len(m.waiting) == maxWaiting {
		e.drops[dropWaiting]++
		return true
	}
	m.waiting = append(m.waiting, bytes.Clone(ip))
	return true
}

// fail notes what a context of the move failed by.
func (m *move) fail(why Reason, cause gtp.Cause, took time.Duration) {
	if m.fault.Reason == ReasonNone {
		m.fault.Reason, m.fault.Cause, m.fault.Took = why, cause, took
	}
}

// speak sends what a terminal had to say meanwhile, if its move is over, as it may be, and tells if it has failed.
func (e *Engine) speak(s *session, m *move, now time.Time, out *Output) {
	if m == nil || s.moved != nil || len(s.contexts) == 0 {
		return
	}
	for _, ip := range m.waiting {
		e.encapsulate(s.choose(ip), ip, now, out)
	}
	m.waiting = nil
	if m.failed {
		about := s.contexts[0].event(MoveFailed)
		about.Reason, about.Cause, about.Took = m.fault.Reason, m.fault.Cause, m.fault.Took
		e.tell(about, out)
	}
}

// Reattach closes the contexts of a terminal and opens the primary one at another GGSN, which
// gives another address.
func (e *Engine) Reattach(key gtp.TID, ggsn netip.Addr, now time.Time, out *Output) error {
	c := e.contexts[key]
	if c == nil {
		return ErrUnknown
	}
	s := c.session
	again, before := s.wanted, s.again
	again.GGSN, again.Local = ggsn, s.local
	if err := e.reachable(&again); err != nil {
		return err
	}
	s.again = &again // one that is opening ends at once
	if err := e.Detach(s.contexts[0].key, true, now, out); err != nil {
		s.again = before
		return err
	}
	return nil
}
