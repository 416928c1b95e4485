// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Detach closes a context, with a teardown all that have its address (TS 29.060 section
// 7.3.5). Whatever the GGSN answers, and if it answers nothing, the context is gone
// then. One that is opening ends at once, and unknown to the GGSN.
func (e *Engine) Detach(key gtp.TID, teardown bool, now time.Time, out *Output) error {
	c := e.contexts[key]
	switch {
	case c == nil:
		return ErrUnknown
	case c.state == Closing:
		return ErrBusy
	case c.state == Opening:
		e.end(c, ReasonDetached, 0, 0, now, out)
		return nil
	}
	s := c.session
	m := gtp.DeleteRequest{NSAPI: key.NSAPI()}
	if s.version() == gtp.V1 {
		m.Teardown = gtp.Some(teardown)
	} else {
		m.NSAPI = 0
	}
	e.withdraw(c)
	if !e.request(s.path, c, s.header(c), &m, now, out) {
		e.endTogether(c, ReasonDetached, 0, 0, now, out)
		return nil
	}
	c.state = Closing
	for _, other := range s.contexts {
		if teardown && other != c {
			e.withdraw(other)
			other.state = Closing
		}
	}
	return nil
}

// withdraw ends the request that a context waits for.
func (e *Engine) withdraw(c *PDPContext) {
	if r := c.request; r != nil {
		e.settle(r)
		e.unused(r.path)
		e.recycle(r)
	}
}

// deleted takes the response to a delete request. A GGSN that does not know the context has
// none either.
func (e *Engine) deleted(r *request, m *message, now time.Time, out *Output) {
	var answer gtp.DeleteResponse
	why := ReasonDetached
	if e.parse(m, &answer) != nil {
		why = ReasonBadAnswer
	}
	e.endTogether(r.about, why, answer.Cause, now.Sub(r.began), now, out)
}

// endTogether ends a context, and those that close with it.
func (e *Engine) endTogether(c *PDPContext, why Reason, cause gtp.Cause, took time.Duration, now time.Time, out *Output) {
	s := c.session
	for _, other := range slices.Clone(s.contexts) {
		if other != c && other.state == Closing && other.request == nil {
			e.end(other, why, cause, took, now, out)
		}
	}
	e.end(c, why, cause, took, now, out)
}

// end removes a context and tells of it.
func (e *Engine) end(c *PDPContext, why Reason, cause gtp.Cause, took time.Duration, now time.Time, out *Output) {
	if e.contexts[c.key] != c {
		return
	}
	about := c.event(Ended)
	if c.state == Opening {
		about.Kind = Refused
		about.Auth, about.AuthMessage = c.said()
		e.stats.Refused++
	} else {
		e.stats.Ended++
	}
	about.Closing = c.state == Closing
	about.Reason, about.Cause, about.Took, about.Traffic = why, cause, took, c.counts
	e.tell(about, out)
	s, m := c.session, c.session.moved
	if c.next.id != 0 {
		m.fail(why, cause, took)
	}
	e.remove(c)
	e.speak(s, m, now, out)
	if s.again != nil && len(s.contexts) == 0 && !e.retired {
		if _, err := e.Attach(s.again, now, out); err != nil {
			about.Reason = ReasonRefused
			e.tell(about, out)
		}
	}
}

// remove forgets a context, and its session with the last one.
func (e *Engine) remove(c *PDPContext) {
	e.withdraw(c)
	s := c.session
	delete(e.contexts, c.key)
	if e.data[c.data] == c {
		delete(e.data, c.data)
	}
	e.timers.Stop(&c.forget)
	e.forget(c)
	if c.next.id != 0 {
		e.stay(c)
	}
	if c.path != nil {
		e.leave(c.path)
	}
	s.contexts = slices.DeleteFunc(s.contexts, func(o *PDPContext) bool { return o == c })
	if len(s.contexts) > 0 {
		return
	}
	if e.control[s.control] == s {
		delete(e.control, s.control)
	}
	for _, from := range s.sources() {
		if e.sources[from] == s {
			delete(e.sources, from)
		}
	}
	if e.routers[s.wanted.Link] == s {
		delete(e.routers, s.wanted.Link)
	}
	e.vacate(s)
	e.timers.Stop(&s.six.solicitation)
	e.timers.Stop(&s.six.expiry)
	e.timers.Stop(&s.six.dhcp.timer)
	if s.six.prefix != nil {
		e.timers.Stop(&s.six.prefix.timer)
	}
	e.leave(s.path)
}

// forget ends the tunnel identifier that a context had before its last move.
func (e *Engine) forget(c *PDPContext) {
	if c.earlier.version == gtp.V1 && e.data[c.earlier.id] == c {
		delete(e.data, c.earlier.id)
	}
	c.earlier = tunnel{}
}

// Retire closes all contexts, as an SGSN does that ends in good order, and has none opened any more.
func (e *Engine) Retire(now time.Time, out *Output) {
	e.retired = true
	e.load.stop(e, ErrRetired)
	for _, key := range e.Keys() {
		_ = e.Detach(key, true, now, out) // those that go with another one are busy
	}
}

// Abandon forgets all contexts without a word to their GGSNs, as an SGSN does that fails.
func (e *Engine) Abandon(now time.Time, out *Output) {
	for _, c := range e.contexts {
		e.end(c, ReasonAbandoned, 0, 0, now, out)
	}
}
