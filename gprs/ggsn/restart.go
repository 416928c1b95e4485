// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// heardCounter takes the restart counter of a request: that of its sender, so that it says
// nothing of another node that the request names. That one's comes by its own answers.
func (e *Engine) heardCounter(t *transaction, control handle, counter gtp.Optional[uint8], except handle) {
	if counter.Present && control == t.ph {
		e.recovered(t, counter.Value, except)
	}
}

// recovered compares a restart counter with the one before: where it is higher, also beyond 255, the node has
// lost all its contexts. Those of the session except are not meant, for they are made, or moved, by the same
// message. A lower one does not count by itself (TS 23.007 section 18): a later message may have overtaken this one.
func (e *Engine) recovered(t *transaction, counter uint8, except handle) {
	p := t.p
	switch {
	case !p.known:
		p.known, p.restart = true, counter
	case counter == p.restart:
		if p.doubt.echo == 0 { // else its answer decides
			p.doubt = doubt{}
		}
	case older(counter, p.restart):
		e.doubtCounter(t)
	default:
		e.restarted(p, counter, doubt{at: t.at + 1, ticket: e.held.ticket}, except, t.call)
	}
}

// older reports whether a restart counter is of before another, as octets that begin again behind 255.
func older(counter, than uint8) bool { return int8(counter-than) < 0 }

// doubt is of a restart counter that is lower than the one before. A node may begin to count again; then it says
// so in answer to an Echo Request that is sent from now on. It stays in doubt until it tells either counter, also
// where such a request has no answer: what it opens meanwhile is of after the restart, if that was one.
type doubt struct {
	echo   handle        // this request; 0: none is on its way
	at     time.Duration // since when it may be so: what it has opened, taken over or changed since is not lost
	ticket uint64        // of the last request that waited then: see [heldCreate]
}

// doubtCounter asks a node for its restart counter, unless it is being asked.
func (e *Engine) doubtCounter(t *transaction) {
	e.stats.RestartsDoubted++
	p, w := t.p, &t.p.paths[t.path()]
	if p.doubt == (doubt{}) {
		p.doubt = doubt{at: t.at, ticket: e.held.ticket}
	}
	if w.echo != 0 {
		return
	}
	w.echoAt = never
	e.sendEcho(t.ph, p, t.path(), t.call)
	p.doubt.echo = w.echo
	e.schedulePeer(t.ph, p)
}

// echoedCounter takes the restart counter of the answer to an Echo Request: of one that was sent for a doubt,
// whatever it is.
func (e *Engine) echoedCounter(t *transaction, counter uint8, of doubt, asked bool) {
	if asked && older(counter, t.p.restart) {
		e.restarted(t.p, counter, of, 0, t.call)
		return
	}
	e.recovered(t, counter, 0)
}

// restartNews bounds how often one node's restarts are told: a counter that changes with each
// request must not fill the log.
var restartNews = ratelimit.PerSecond(1, 5)

// restarted takes a node for one that has another restart counter, and has nothing of before a time but the session
// except.
func (e *Engine) restarted(p *peer, counter uint8, since doubt, except handle, c call) {
	e.stats.Restarts++
	p.restart, p.doubt, p.forgotten = counter, doubt{}, since.ticket
	n := e.releaseAll(p, EndPeerRestart, except, func(s *session) bool { return s.claimedAt < since.at })
	if p.news.Allow(restartNews, c.now) {
		c.event(Event{Kind: PeerRestarted, Peer: p.addr, Contexts: n})
	}
}
