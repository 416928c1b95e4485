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
	case older(counter, p.restart):
		e.doubtCounter(t, except)
	default:
		e.restarted(p, counter, doubt{at: t.at + 1, except: except, ticket: e.held.ticket}, t.call)
	}
}

// older reports whether a restart counter is of before another, as octets that begin again behind 255.
func older(counter, than uint8) bool { return int8(counter-than) < 0 }

// doubt is of a restart counter that is lower than the one before. A node may begin to count again; then it says
// so in answer to an Echo Request that is sent from now on.
type doubt struct {
	echo   handle        // this request
	at     time.Duration // since when it may be so: what has begun since is not lost
	except handle        // nor is this session
	ticket uint64        // of the last request that waited then: see [heldCreate]
}

// doubtCounter asks a node for its restart counter, unless it is being asked.
func (e *Engine) doubtCounter(t *transaction, except handle) {
	e.stats.RestartsDoubted++
	p, w := t.p, &t.p.paths[t.path()]
	if p.doubt == (doubt{}) {
		p.doubt = doubt{at: t.at, except: except, ticket: e.held.ticket}
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
	switch {
	case t.p.known && counter == t.p.restart:
		t.p.doubt = doubt{}
	case asked && older(counter, t.p.restart):
		e.restarted(t.p, counter, of, t.call)
	default:
		e.recovered(t, counter, 0)
	}
}

// restartNews bounds how often one node's restarts are told: a counter that changes with each
// request must not fill the log.
var restartNews = ratelimit.PerSecond(1, 5)

// restarted takes a node for one that has another restart counter, and had nothing before a time.
func (e *Engine) restarted(p *peer, counter uint8, since doubt, c call) {
	e.stats.Restarts++
	p.restart, p.doubt, p.forgotten = counter, doubt{}, since.ticket
	n := e.releaseAll(p, EndPeerRestart, since.except, func(s *session) bool { return e.contexts.at(s.first).createdAt < since.at })
	if p.news.Allow(restartNews, c.now) {
		c.event(Event{Kind: PeerRestarted, Peer: p.addr, Contexts: n})
	}
}
