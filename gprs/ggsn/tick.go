// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// never is the time of what is not due.
const never = timerqueue.Never

// tickBurst is how much of each kind one Tick does.
const tickBurst = 256

// Next is when Tick has something to do next; zero is never.
func (e *Engine) Next() time.Time {
	at := min(e.sessionTimes.Next(), e.requestTimes.Next(), e.peerTimes.Next(), e.drain.at, e.restAt, e.heldAt())
	if e.releasing != 0 {
		at = e.at
	}
	if at == never {
		return time.Time{}
	}
	return e.epoch.Add(at)
}

// Tick does what is due. What one call does is bounded: Next may be due at once.
func (e *Engine) Tick(now time.Time, out *Output) {
	c := e.begin(now, out)
	e.release(releaseBurst, c)
	for _, due := range []struct {
		of *timerqueue.Numbered[handle]
		do func(handle, call)
	}{
		{&e.requestTimes, e.requestDue}, {&e.peerTimes, e.peerDue}, {&e.sessionTimes, e.sessionDue},
	} {
		for range tickBurst {
			h, ok := due.of.Due(c.at)
			if !ok {
				break
			}
			due.do(h, c)
		}
	}
	e.heldDue(c)
	e.drainDue(c)
	e.restDue(c)
}

// schedule sets when something is due for a session.
func (e *Engine) schedule(h handle, s *session, c call) {
	at := never
	a := e.accessPoint(s)
	if s.marked(markDeleting) {
		e.sessionTimes.Stop(h)
		return
	}
	if s.marked(markEnding) || a.gone {
		at = c.at
	}
	limits := e.limits(h, a)
	if limits.SessionLimit > 0 {
		at = min(at, seconds(s.createdAt)+limits.SessionLimit)
	}
	if limits.IdleLimit > 0 {
		at = min(at, e.idleFrom(s)+limits.IdleLimit)
	}
	at = min(at, e.nextInterim(h, a), e.nextRecord(h, s, a, c))
	if s.advertAt != 0 {
		at = min(at, s.advertAt)
	}
	at = min(at, e.nextFormer(s))
	if to, waiting := e.changes[h]; waiting && s.request == 0 {
		at = min(at, to.at)
	}
	e.sessionTimes.Set(h, at)
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

// lastSeen is when the terminal sent a packet last, by any context, or got its last context, in seconds.
func (e *Engine) lastSeen(s *session) (last uint32) {
	for h := s.first; h != 0; h = e.contexts.at(h).next {
		last = max(last, e.seenLast(h, e.contexts.at(h)))
	}
	return last
}

// awaySince is how long there was no node since the terminal was seen last, over all restarts.
func (e *Engine) awaySince(s *session) time.Duration {
	if e.lastSeen(s) >= uint32(e.resumedAt/time.Second) {
		return 0
	}
	return s.away
}

// idleFrom is since when a terminal is idle, if it is: that there was no node makes it no more so.
func (e *Engine) idleFrom(s *session) time.Duration {
	return seconds(e.lastSeen(s)) + e.awaySince(s)
}

// sessionDue does what is due for a session.
func (e *Engine) sessionDue(h handle, c call) {
	s := e.sessions.at(h)
	if why, over := e.over(h, s, c); over {
		if !e.startDelete(h, why, c) {
			e.endLater(h, why, c.at+deleteAgain)
		}
		return
	}
	e.changeDue(h, s, c)
	e.formersDue(h, s, c)
	e.advertDue(h, s, c)
	e.interimDue(h, s, c)
	e.recordsDue(h, s, c)
	e.schedule(h, s, c)
}

// over reports whether a session is to end, and why.
func (e *Engine) over(h handle, s *session, c call) (End, bool) {
	a := e.accessPoint(s)
	limits := e.limits(h, a)
	switch {
	case s.marked(markEnding):
		return s.why, true
	case a.gone:
		return EndSettings, true
	case limits.SessionLimit > 0 && seconds(s.createdAt)+limits.SessionLimit <= c.at:
		return EndSessionLimit, true
	case limits.IdleLimit > 0 && e.idleFrom(s)+limits.IdleLimit <= c.at:
		return EndIdle, true
	}
	return 0, false
}

// endStrangers ends the sessions in good order that have a node which is among the peers no more.
func (e *Engine) endStrangers(c call) {
	strange := make([]bool, e.peers.last+1)
	for h := handle(1); h <= e.peers.last; h++ {
		p := e.peers.at(h)
		strange[h] = p.addr.IsValid() && !e.isPeer(p.addr)
	}
	for h := handle(1); h <= e.sessions.last; h++ {
		s := e.sessions.at(h)
		if s.first == 0 || s.marked(markReleasing|markDeleting|markEnding) {
			continue
		}
		ends, direct := strange[s.peer], e.accessPoint(s).DirectTunnel
		for x := s.first; x != 0 && !ends && !direct; x = e.contexts.at(x).next {
			ends = strange[e.contexts.at(x).user]
		}
		if ends {
			e.endLater(h, EndSettings, c.at)
		}
	}
}

// rescheduleAll sets all deadlines anew, for other settings.
func (e *Engine) rescheduleAll(c call) {
	e.endStrangers(c)
	for h := handle(1); h <= e.sessions.last; h++ {
		if s := e.sessions.at(h); s.first != 0 {
			if e.accessPoint(s).anew && s.has.has(TypeIPv6) {
				s.linkState, s.advertAt = link.State{}, max(c.at, 1)
			}
			e.spreadRenumber(s, c)
			e.limitRecords(h, s, c)
			e.schedule(h, s, c)
		}
	}
	for h := handle(1); h <= e.peers.last; h++ {
		if p := e.peers.at(h); p.addr.IsValid() {
			e.pathUsed(h, p)
			e.schedulePeer(h, p)
		}
	}
}
