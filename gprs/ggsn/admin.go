// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "time"

// drain is the state of [Engine.Drain].
type drain struct {
	refusing bool
	rate     int           // sessions a second; 0: none are deleted
	rest     int           // what the rounds before have left of it, in thousandths of a session
	at       time.Duration // when the next are; never if none are
	from     handle        // where the walk goes on
}

// drainEvery is how often sessions are deleted.
const drainEvery = 100 * time.Millisecond

// Drain refuses contexts from now on, and deletes those that are there in good order, so
// many a second; a rate of 0 only refuses. An event says when all are gone.
func (e *Engine) Drain(rate int, now time.Time, out *Output) {
	c := e.begin(now, out)
	e.drain = drain{refusing: true, rate: rate, at: never}
	if rate > 0 {
		e.drain.at = c.at
	}
	e.drainedOne(c)
}

// Undrain takes contexts again.
func (e *Engine) Undrain() { e.drain = drain{at: never} }

// drainedOne tells when all contexts are gone.
func (e *Engine) drainedOne(c call) {
	if e.drain.refusing && e.sessions.used() == 0 {
		e.drain.at = never
		c.event(Event{Kind: Drained})
	}
}

// drainDue deletes some sessions.
func (e *Engine) drainDue(c call) {
	if e.drain.at > c.at {
		return
	}
	e.drain.at = c.at + drainEvery
	left := e.drain.take()
	for range e.sessions.last {
		if left == 0 {
			return
		}
		e.drain.from = e.drain.from%e.sessions.last + 1
		s := e.sessions.at(e.drain.from)
		if s.first == 0 || s.marked(markDeleting) || s.marked(markReleasing) {
			continue
		}
		e.startDelete(e.drain.from, EndAdmin, c)
		left--
	}
}

// take returns how many sessions a round may delete, and keeps what is less than one for those to come.
func (d *drain) take() int {
	all := int64(d.rate)*drainEvery.Milliseconds() + int64(d.rest)
	d.rest = int(all % 1000)
	return int(all / 1000)
}

// Delete deletes the contexts that match, with all of their sessions, in good order: their
// SGSNs are told. It returns how many contexts; they end when the SGSN has answered or has
// been asked in vain.
func (e *Engine) Delete(sel Selection, now time.Time, out *Output) (n int) {
	c := e.begin(now, out)
	e.each(sel, func(_ handle, u *pdpContext) {
		n++
		e.deleteSession(u.session, c)
	})
	return n
}

// DeleteNamed does so with the contexts that are named and there still, and returns how many these are.
func (e *Engine) DeleteNamed(refs []Ref, now time.Time, out *Output) (n int) {
	c := e.begin(now, out)
	for _, r := range refs {
		if u := e.referred(r); u != nil {
			n++
			e.deleteSession(u.session, c)
		}
	}
	return n
}

// deleteSession has the SGSN delete a session, at once or when it may be asked.
func (e *Engine) deleteSession(h handle, c call) {
	if s := e.sessions.at(h); !s.marked(markDeleting) && !e.startDelete(h, EndAdmin, c) {
		e.endLater(h, EndAdmin, c.at+deleteAgain)
	}
}
