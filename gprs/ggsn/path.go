// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// pathUsed has a node asked whether it lives, from the first of its contexts on.
func (e *Engine) pathUsed(h handle, p *peer) {
	if e.settings.EchoInterval == 0 {
		return
	}
	for i := range p.paths {
		w := &p.paths[i]
		if w.used > 0 && w.echoAt == never && w.echo == 0 {
			w.echoAt = e.at + e.settings.EchoInterval
			e.schedulePeer(h, p)
		}
	}
}

// schedulePeer sets when something is due for a node.
func (e *Engine) schedulePeer(h handle, p *peer) {
	at := never
	for i := range p.paths {
		at = min(at, p.paths[i].echoAt, e.releaseAt(&p.paths[i]))
	}
	e.peerTimes.Set(h, at)
}

// releaseAt is when what needs a path that is down is released.
func (e *Engine) releaseAt(w *path) time.Duration {
	if !w.down || w.released || e.settings.PathHold < 0 {
		return never
	}
	return w.holdFrom + e.settings.PathHold
}

// peerDue sends Echo Requests, and releases what was held for a node.
func (e *Engine) peerDue(h handle, c call) {
	p := e.peers.at(h)
	for i := range p.paths {
		w := &p.paths[i]
		if e.releaseAt(w) <= c.at {
			e.releasePath(h, p, i, c)
		}
		if w.echoAt > c.at {
			continue
		}
		w.echoAt = never
		if w.used > 0 && e.settings.EchoInterval > 0 {
			e.sendEcho(h, p, i, c)
		} else {
			w.down, w.released = false, false
		}
	}
	e.schedulePeer(h, p)
}

func (e *Engine) sendEcho(h handle, p *peer, path int, c call) {
	e.scratch.echo = gtp.EchoRequest{}
	w := &p.paths[path]
	if w.echo = e.send(h, p, path, gtp.Header{}, &e.scratch.echo, 0, EndPath, c); w.echo == 0 {
		w.echoAt = c.at + e.settings.EchoInterval
	}
}

// echoed takes the answer to an Echo Request, or its lack.
func (e *Engine) echoed(h handle, path int, answered bool, c call) {
	p := e.peers.at(h)
	w := &p.paths[path]
	if p.doubt.echo == w.echo {
		p.doubt.echo = 0 // silence, by which nothing is known, leaves it in doubt
	}
	w.echo = 0
	w.echoAt = c.at + e.settings.EchoInterval
	if e.settings.EchoInterval == 0 {
		w.echoAt = never
	}
	switch {
	case w.down == answered && (answered || e.settings.EchoInterval > 0): // silence means nothing where nobody is asked whether he lives
		w.down, w.changed, w.holdFrom, w.released = !answered, c.at, c.at, false
		kind := PathUp
		if !answered {
			kind = PathDown
			e.stats.PathsDown++
		}
		c.event(Event{Kind: kind, Peer: p.addr, Port: Socket(path).Port(), Contexts: w.used})
	case w.released && w.used > 0: // what has come since is held as long
		w.holdFrom, w.released = c.at, false
	}
	e.schedulePeer(h, p)
}

// releasePath releases what needs a path that has been down for too long: by the control
// plane all sessions of its version, by the user plane the contexts, of which their SGSN
// is told.
func (e *Engine) releasePath(h handle, p *peer, path int, c call) {
	p.paths[path].released = true
	c.event(Event{Kind: PathReleased, Peer: p.addr, Port: Socket(path).Port(), Contexts: p.paths[path].used})
	if path != pathUser {
		e.releaseAll(p, EndPath, 0, func(s *session) bool { return controlPath(s.version) == path })
		return
	}
	for x := p.users; x != 0; {
		u := e.contexts.at(x)
		// Those of version 0 have another path, and those that are ordered to go do so
		// even if their user plane comes back.
		if s := e.sessions.at(u.session); s.version == gtp.V1 && !s.marked(markEnding) {
			e.endLater(u.session, EndPath, c.at)
		}
		x = u.userNext
	}
}

// endLater has a session deleted in good order, at a time.
func (e *Engine) endLater(h handle, why End, at time.Duration) {
	s := e.sessions.at(h)
	s.why = why
	s.marks |= markEnding
	e.sessionTimes.Set(h, at)
}

// releaseAll puts sessions of a node among those that are to go. They go in slices, so that
// no call takes long; what is created meanwhile is not theirs.
func (e *Engine) releaseAll(p *peer, why End, except handle, which func(*session) bool) (n int) {
	for h := p.sessions; h != 0; {
		s := e.sessions.at(h)
		next := s.next
		if h != except && which(s) {
			e.cut(&p.sessions, s)
			s.marks |= markReleasing
			s.why = why
			e.push(&e.releasing, h, s)
			e.toRelease++
			n++
		}
		h = next
	}
	return n
}

// releaseBurst is how many sessions one call releases.
const releaseBurst = 512

// release ends some of the sessions that are to go.
func (e *Engine) release(most int, c call) {
	for range most {
		h := e.releasing
		if h == 0 {
			return
		}
		e.endSession(h, e.sessions.at(h).why, c)
	}
}

// releaseFor ends some of the sessions that are to go, and in any case those that have the addresses which a
// session is to have.
func (e *Engine) releaseFor(s *session, asks gtp.EndUserAddress, g *Grant, c call) {
	e.release(releaseBurst, c)
	own, v := e.service(s, e.accessPoint(s)), e.vrfOf(s)
	want, _ := g.wanted(asks, &own)
	if a, is := want.Static4(); is {
		e.releaseOne(v.by4[number4(a)], c)
	}
	if a, is := want.Static6(); is {
		e.releaseOne(v.by6[prefix6(a)], c)
	}
	if g != nil {
		for _, p := range g.Further6 {
			e.releaseOne(v.by6[prefix6(p.Addr())], c)
		}
	}
}

// releaseOne ends a session if it is to go, and reports whether it was.
func (e *Engine) releaseOne(h handle, c call) bool {
	if h == 0 || !e.sessions.at(h).marked(markReleasing) {
		return false
	}
	e.endSession(h, e.sessions.at(h).why, c)
	return true
}

// event appends an event of now.
func (c call) event(v Event) {
	v.Time = c.now
	c.out.Events = append(c.out.Events, v)
}
