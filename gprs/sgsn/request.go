// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// requestKey finds the request that a response belongs to: responses have its sequence
// number, and come from where it was sent to.
type requestKey struct {
	socket   int
	peer     netip.Addr
	sequence uint16
}

// request is one that waits for its response. It is sent again each T3-RESPONSE, the same
// octets each time, N3-REQUESTS times in all (TS 29.060 section 7.6).
type request struct {
	key    requestKey
	kind   gtp.MessageType
	path   *path
	about  *PDPContext // nil: the path
	octets []byte
	sent   int
	began  time.Time
	timer  timer
	port   uint16
}

// maxFree bounds the requests that are kept for later use.
const maxFree = 1024

// newRequest makes a request, whose octets are still empty.
func (e *Engine) newRequest() *request {
	if n := len(e.free); n > 0 {
		r := e.free[n-1]
		e.free = e.free[:n-1]
		return r
	}
	r := &request{octets: make([]byte, 0, cap(e.scratch[:]))}
	r.timer.fire = func(now time.Time, out *Output) { e.unanswered(r, now, out) }
	return r
}

// request sends a request by a path. It reports whether there is a free sequence number:
// no more than 65,535 requests may wait on one path.
func (e *Engine) request(p *path, about *PDPContext, h gtp.Header, m gtp.Message, now time.Time, out *Output) bool {
	key := requestKey{socket: Socket(p.key.local, p.key.plane), peer: p.key.peer}
	if !e.sequence(p, &key) {
		return false
	}
	r := e.newRequest()
	h.HasSequence, h.Sequence = true, key.sequence
	octets, err := e.codec.Append(r.octets[:0], h, m)
	if err != nil {
		e.refused(err)
		e.recycle(r)
		return false
	}
	*r = request{key: key, kind: m.Type(), path: p, about: about, octets: octets, began: now, timer: r.timer, port: p.key.plane.Port()}
	e.requests[key] = r
	p.waiting++
	if about != nil {
		about.request = r
	}
	e.stats.Requests++
	e.transmit(r, now, out)
	e.doubled(r, out)
	return true
}

// sequence gives the key a number that no request on the path waits with.
func (e *Engine) sequence(p *path, key *requestKey) bool {
	if p.waiting >= 1<<16-1 {
		return false
	}
	for {
		key.sequence = e.nextSequence()
		if _, used := e.requests[*key]; !used {
			return true
		}
	}
}

// nextSequence counts for all paths: one that nothing needed for a moment goes on where it was,
// so that no peer takes a request for one that it has answered a while ago (TS 29.060 section
// 7.6).
func (e *Engine) nextSequence() uint16 {
	e.lastSequence++
	return e.lastSequence
}

// transmit sends the request once more.
func (e *Engine) transmit(r *request, now time.Time, out *Output) {
	r.sent++
	out.SendUDP(r.key.socket, r.to(), out.Copy(r.octets))
	e.timers.Set(&r.timer, now.Add(e.set.T3Response))
}

// to is where the request goes.
func (r *request) to() netip.AddrPort { return netip.AddrPortFrom(r.key.peer, r.port) }

// unanswered sends the request again, or gives up.
func (e *Engine) unanswered(r *request, now time.Time, out *Output) {
	if r.sent < e.set.N3Requests {
		e.stats.Repeated++
		e.transmit(r, now, out)
		return
	}
	e.stats.Unanswered++
	e.settle(r)
	e.failed(r, ReasonNoAnswer, 0, now, out)
	e.done(r, out)
}

// settle takes a request out of those that wait.
func (e *Engine) settle(r *request) {
	e.timers.Stop(&r.timer)
	delete(e.requests, r.key)
	r.path.waiting--
	if r.about != nil && r.about.request == r {
		r.about.request = nil
	}
}

// done ends a settled request.
func (e *Engine) done(r *request, out *Output) {
	e.unused(r.path)
	e.recycle(r)
}

func (e *Engine) recycle(r *request) {
	if len(e.free) < maxFree {
		r.path, r.about = nil, nil
		e.free = append(e.free, r)
	}
}

// response gives a response to what its request was about.
func (e *Engine) response(m *message, now time.Time, out *Output) {
	r := e.requests[requestKey{socket: m.socket, peer: m.from.Addr(), sequence: m.Sequence}]
	if r == nil || !m.HasSequence {
		e.drops[dropNoRequest]++
		return
	}
	if want, _ := r.kind.Response(); want != m.Type {
		e.drops[dropNoRequest]++
		return
	}
	if e.misdeeds.loses() {
		e.drops[dropLost]++
		return
	}
	e.stats.Answered++
	e.settle(r)
	switch m.Type {
	case gtp.TypeEchoResponse:
		e.echoResponse(r, m, now, out)
	case gtp.TypeCreateResponse:
		e.created(r, m, now, out)
	case gtp.TypeUpdateResponse:
		e.updated(r, m, now, out)
	case gtp.TypeDeleteResponse:
		e.deleted(r, m, now, out)
	}
	e.done(r, out)
}

// failed tells that a request has come to nothing.
func (e *Engine) failed(r *request, why Reason, cause gtp.Cause, now time.Time, out *Output) {
	c := r.about
	switch r.kind {
	case gtp.TypeEchoRequest:
		e.pathFailed(r.path, out)
	case gtp.TypeCreateRequest:
		e.fallBack(c, why)
		e.end(c, why, cause, now.Sub(r.began), now, out)
	case gtp.TypeUpdateRequest:
		e.updateFailed(c, why, cause, now.Sub(r.began), now, out)
	case gtp.TypeDeleteRequest:
		e.endTogether(c, why, cause, now.Sub(r.began), now, out)
	}
}
