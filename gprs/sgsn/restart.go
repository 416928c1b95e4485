// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// recovered compares the restart counter of a peer with the one before. Where it is higher, also beyond 255, the peer
// has restarted, and has lost the contexts that it had then: all but those of a session that it has just opened or
// changed. A lower one does not count by itself, for a later message may have overtaken this one (TS 23.007 section
// 18): the peer is asked.
func (e *Engine) recovered(p *path, counter uint8, but *session, now time.Time, out *Output) {
	switch before := p.recovery; {
	case !before.Present:
		p.recovery = gtp.Some(counter)
	case counter == before.Value:
		if !p.asked { // else its answer decides
			p.doubted = time.Time{}
		}
	case older(counter, before.Value):
		e.doubt(p, now, out)
	default:
		e.restarted(p, counter, func(s *session) bool { return s != but }, now, out)
	}
}

// older reports whether a restart counter is of before another, as octets that begin again behind 255.
func older(counter, than uint8) bool { return int8(counter-than) < 0 }

// doubt asks a peer for its restart counter, unless it is being asked. Without an answer it stays in doubt.
func (e *Engine) doubt(p *path, now time.Time, out *Output) {
	if p.doubted.IsZero() {
		p.doubted = now
	}
	if !p.asked {
		p.asked = e.request(p, nil, gtp.Header{Version: p.key.plane.version()}, &gtp.EchoRequest{}, now, out)
	}
}

// echoedCounter takes the restart counter of the answer to an Echo Request: of one that was sent since the peer is in
// doubt, whatever it is. What the peer has opened or changed since is of after the restart.
func (e *Engine) echoedCounter(r *request, counter uint8, now time.Time, out *Output) {
	p, since := r.path, r.path.doubted
	if since.IsZero() || r.began.Before(since) {
		e.recovered(p, counter, nil, now, out)
		return
	}
	p.doubted, p.asked = time.Time{}, false
	if older(counter, p.recovery.Value) {
		e.restarted(p, counter, func(s *session) bool { return s.agreed.Before(since) }, now, out)
		return
	}
	e.recovered(p, counter, nil, now, out)
}

// restarted ends the contexts that a peer has lost, of the sessions that it had.
func (e *Engine) restarted(p *path, counter uint8, had func(*session) bool, now time.Time, out *Output) {
	p.recovery, p.doubted, p.asked = gtp.Some(counter), time.Time{}, false
	e.stats.Restarts++
	e.tell(Event{Kind: PeerRestarted, Peer: p.key.peer}, out)
	for _, c := range e.contexts {
		if c.session.path == p && c.state != Opening && had(c.session) {
			e.end(c, ReasonRestarted, 0, 0, now, out)
		}
	}
}

// RestartCounter is what peers are told.
func (e *Engine) RestartCounter() uint8 { return e.set.Recovery }

// SetRestartCounter changes it; peers that know another release the contexts of all our addresses
// when they are told.
func (e *Engine) SetRestartCounter(n uint8) { e.set.Recovery = n }
