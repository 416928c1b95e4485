// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// move is a change of the SGSN under way: the contexts of a session go to another of our
// addresses, each by an update of its own.
type move struct {
	path    *path  // of signalling, from the new address
	control uint32 // the new tunnel identifier of signalling
	left    int    // contexts whose update is not answered
	failed  bool   // for one of them at least
}

// Move hands the contexts of a terminal over to the SGSN at another of our addresses, as when
// it has gone into the routeing area of that one (TS 23.060 section 6.9.1.2.2): the state is
// there already, and the GGSN is told. Packets go from the old address until it has answered,
// and come to either as long as some may be on their way.
func (e *Engine) Move(key gtp.TID, local int, now time.Time, out *Output) error {
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
	for _, c := range s.contexts {
		if c.state != Open {
			return ErrBusy
		}
	}
	m := &move{path: e.path(local, s.plane(), s.path.key.peer, now), control: e.tunnelID(s.version())}
	s.moved = m
	if s.version() == gtp.V1 {
		e.control[m.control] = s
	}
	for _, c := range s.contexts {
		c.next = e.tunnelID(s.version())
		if s.version() == gtp.V1 {
			e.data[c.next] = c
		}
		m.left++
		if !e.update(c, m.path, m.control, c.next, c.qos, now, out) {
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
	c.earlier, c.data, c.next, c.local = c.data, c.next, 0, m.path.key.local
	e.timers.set(&c.forget, now.Add(time.Duration(e.set.N3Requests)*e.set.T3Response))
	if c.path != nil {
		before := c.path
		c.path = e.path(c.local, PlaneUser, c.remoteUser.Addr(), now)
		e.leave(before)
	}
	if e.arrived(s); s.moved != nil || m.failed {
		return
	}
	about := c.event(Moved)
	about.Key, about.Cause, about.Took = s.key(), cause, took
	e.tell(about, out)
}

// stay gives up the move of a context.
func (e *Engine) stay(c *PDPContext) {
	if e.data[c.next] == c {
		delete(e.data, c.next)
	}
	c.next = 0
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
	m.path.recovery = s.path.recovery
	e.leave(s.path)
	s.path, s.control, s.local = m.path, m.control, m.path.key.local
}

// Reattach closes the contexts of a terminal and opens the primary one at another GGSN, which
// gives another address.
func (e *Engine) Reattach(key gtp.TID, ggsn netip.Addr, now time.Time, out *Output) error {
	c := e.contexts[key]
	if c == nil {
		return ErrUnknown
	}
	s := c.session
	again := s.wanted
	again.GGSN, again.Local = ggsn, s.local
	if err := e.Detach(s.contexts[0].key, true, now, out); err != nil {
		return err
	}
	s.again = &again
	return nil
}
