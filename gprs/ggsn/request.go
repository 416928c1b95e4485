// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// request is one of ours that waits for its answer (TS 29.060 section 7.6).
type request struct {
	key     requestKey
	kind    gtp.MessageType
	sent    int
	heard   bool   // an answer came beyond the rate since it was sent
	session handle // 0 of an Echo Request
	why     End    // of a Delete Request
	message []byte
}

// requestKey is by what an answer finds its request.
type requestKey struct {
	peer     handle
	path     uint8
	sequence uint16
}

const maxOutstanding = 1<<16 - 1

// send sends a request on a path, and again until it is answered. It returns 0 if as many
// requests as there are sequence numbers wait already.
func (e *Engine) send(ph handle, p *peer, path int, h gtp.Header, m gtp.Message, session handle, why End, c call) handle {
	w := &p.paths[path]
	if w.waiting >= maxOutstanding {
		return 0
	}
	key := requestKey{ph, uint8(path), w.sequence}
	for e.bySequence[key] != 0 {
		key.sequence++
	}
	w.sequence = key.sequence + 1
	h.Version, h.HasSequence, h.Sequence = gtp.V1, true, key.sequence
	if path == pathV0 {
		h.Version, h.TID = gtp.V0, e.wireTID(p.addr, h.TID)
	}
	rh, r := e.requests.take()
	b, err := e.codec.Append(nil, h, m)
	if err != nil {
		e.requests.give(rh)
		return 0
	}
	*r = request{key: key, kind: m.Type(), session: session, why: why, message: b}
	w.waiting++
	e.bySequence[key] = rh
	e.stats.Requests++
	e.transmit(rh, r, c)
	return rh
}

// transmit sends a request, and sets when it is looked at again.
func (e *Engine) transmit(h handle, r *request, c call) {
	addr := e.peers.at(r.key.peer).addr
	socket := Socket(r.key.path).of(addr)
	r.sent++
	r.heard = false
	c.out.SendUDP(int(socket), netip.AddrPortFrom(addr, socket.Port()), c.out.Copy(r.message))
	e.requestTimes.Set(h, c.at+e.settings.T3Response)
}

// endRequest forgets a request.
func (e *Engine) endRequest(h handle) {
	r := e.requests.at(h)
	e.peers.at(r.key.peer).paths[r.key.path].waiting--
	delete(e.bySequence, r.key)
	e.requestTimes.Stop(h)
	if r.session != 0 {
		e.sessions.at(r.session).request = 0
	}
	e.requests.give(h)
}

// requestDue sends a request again, or gives it up.
func (e *Engine) requestDue(h handle, c call) {
	r := e.requests.at(h)
	if r.sent < e.settings.N3Requests {
		e.stats.Retries++
		e.transmit(h, r, c)
		return
	}
	e.stats.Unanswered++
	done := *r
	e.endRequest(h)
	switch done.kind {
	case gtp.TypeEchoRequest:
		e.echoed(done.key.peer, int(done.key.path), false, c)
	case gtp.TypeDeleteRequest:
		e.endSession(done.session, done.why, c)
	case gtp.TypeUpdateRequest:
		e.endChange(done.session, c)
	}
}

// answered takes an answer of a node.
func (e *Engine) answered(t *transaction) Reason {
	h := e.requestOf(t)
	if h == 0 {
		return ResponseUnknown
	}
	switch e.requests.at(h).kind {
	case gtp.TypeEchoRequest:
		return e.echoResponse(t, h)
	case gtp.TypeDeleteRequest:
		return e.deleteResponse(t, h)
	}
	return e.updateResponse(t, h)
}

// requestOf returns the request of this node that a message answers; 0 if there is none.
func (e *Engine) requestOf(t *transaction) handle {
	h := e.bySequence[requestKey{t.ph, uint8(t.path()), t.header.Sequence}]
	if h != 0 {
		if want, _ := e.requests.at(h).kind.Response(); want != t.header.Type {
			return 0
		}
	}
	return h
}

// awaited reports whether a message answers a request of this node, so that it is taken
// whatever else its sender sends: one for each time that the request was sent.
func (e *Engine) awaited(t *transaction) bool {
	h := e.requestOf(t)
	if h == 0 || e.requests.at(h).heard {
		return false
	}
	e.requests.at(h).heard = true
	return true
}

// echoResponse takes a sign of life. On the user plane of version 1 its counter means
// nothing (TS 29.281 section 7.2.2).
func (e *Engine) echoResponse(t *transaction, h handle) Reason {
	m := &e.scratch.echoed
	if r := e.parse(t, m); r != none {
		return r
	}
	e.endRequest(h)
	doubted := t.p.doubt
	e.echoed(t.ph, t.path(), true, t.call)
	if t.path() != pathUser {
		e.echoedCounter(t, m.Recovery, doubted, doubted.echo == h)
	}
	return none
}

// deleteResponse ends a session, whatever its SGSN says of it.
func (e *Engine) deleteResponse(t *transaction, h handle) Reason {
	if r := e.parse(t, &e.scratch.removed); r != none {
		return r
	}
	done := *e.requests.at(h)
	e.endRequest(h)
	e.endSession(done.session, done.why, t.call)
	return none
}
