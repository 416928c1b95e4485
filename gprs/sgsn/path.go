// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// pathKey is a way from one of our addresses to a GGSN, on one plane.
type pathKey struct {
	local int
	plane Plane
	peer  netip.Addr
}

// path is such a way. It is there as long as a context or a request needs it.
type path struct {
	key     pathKey
	waiting int // requests without a response
	users   int // sessions, or contexts on the user plane

	recovery gtp.Optional[uint8] // the peer's restart counter
	doubted  time.Time           // since when it may be a lower one; zero: it is not in doubt
	asked    bool                // for that, by an Echo Request that waits for its answer
	echo     timer
	down     bool
}

// path returns the way to a peer for one more user.
func (e *Engine) path(local int, plane Plane, peer netip.Addr, now time.Time) *path {
	key := pathKey{local, plane, peer}
	p := e.paths[key]
	if p == nil {
		p = &path{key: key}
		p.echo.fire = func(now time.Time, out *Output) { e.sendEcho(p, now, out) }
		e.paths[key] = p
		if e.set.EchoInterval > 0 {
			e.timers.Set(&p.echo, now.Add(e.set.EchoInterval))
		}
	}
	p.users++
	return p
}

// leave takes a user from a path.
func (e *Engine) leave(p *path) {
	p.users--
	e.unused(p)
}

// unused removes a path that nothing needs.
func (e *Engine) unused(p *path) {
	if p.users > 0 || p.waiting > 0 {
		return
	}
	e.timers.Stop(&p.echo)
	if e.paths[p.key] == p {
		delete(e.paths, p.key)
	}
}

// SetEcho changes how often peers are asked; 0 is never.
func (e *Engine) SetEcho(each time.Duration, now time.Time) {
	e.set.EchoInterval = each
	for _, p := range e.paths {
		if e.timers.Stop(&p.echo); each > 0 {
			e.timers.Set(&p.echo, now.Add(each))
		}
	}
}

// sendEcho asks the peer of a path whether it lives (TS 29.060 section 7.2.1).
func (e *Engine) sendEcho(p *path, now time.Time, out *Output) {
	if p.users == 0 {
		return
	}
	e.request(p, nil, gtp.Header{Version: p.key.plane.version()}, &gtp.EchoRequest{}, now, out)
	e.timers.Set(&p.echo, now.Add(max(e.set.EchoInterval, time.Duration(e.set.N3Requests)*e.set.T3Response)))
}

// echoRequest answers one of a peer, whoever it is. On the user plane of version 1 the counter
// is 0 (TS 29.281 section 7.2.2).
func (e *Engine) echoRequest(m *message, out *Output) {
	if !m.HasSequence {
		e.drops[dropMessage]++
		return
	}
	e.stats.Echoes++
	answer := gtp.EchoResponse{Recovery: e.set.Recovery}
	if m.plane == PlaneUser {
		answer.Recovery = 0
	}
	e.send(out, m.socket, m.from, gtp.Header{Version: m.Version, HasSequence: true, Sequence: m.Sequence}, &answer)
}

// echoResponse takes the peer's restart counter.
func (e *Engine) echoResponse(r *request, m *message, now time.Time, out *Output) {
	var answer gtp.EchoResponse
	if e.parse(m, &answer) != nil {
		r.path.asked = false // without this, nothing would ever decide whether it has restarted
		return
	}
	if r.path.down {
		r.path.down = false
		e.tell(Event{Kind: PathUp, Peer: r.key.peer, Took: now.Sub(r.began)}, out)
	}
	if m.plane != PlaneUser {
		e.echoedCounter(r, answer.Recovery, now, out)
	}
}

// pathFailed tells that a peer does not answer. Contexts stay: the emulator leaves it to
// whoever uses it whether to give them up.
func (e *Engine) pathFailed(p *path, out *Output) {
	p.asked = false
	if !p.down {
		p.down = true
		e.tell(Event{Kind: PathDown, Peer: p.key.peer, Reason: ReasonNoAnswer}, out)
	}
}
