// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"github.com/emiago/sipgo/sip"

	"github.com/isthmus-net/isthmus/sip/transaction"
)

// sendUpdate sends an UPDATE (RFC 3311), which names where we are now. One at a time.
func (c *Call) sendUpdate(d *dialog, body []byte, done func(res *sip.Response, err error)) {
	e, auths := c.e, 0
	if c.update != nil {
		done(nil, transaction.ErrBusy)
		return
	}
	var send func()
	send = func() {
		req := d.request(sip.UPDATE)
		if p := c.way(); p != nil {
			req.AppendHeader(e.contactHeader(p))
		}
		set(req, "Allow", allowed)
		set(req, "Supported", supported)
		c.session.ask(req)
		c.auth.apply(e, req)
		setBody(req, body)
		e.send(req, c.way(), func(res *sip.Response, err error) {
			if res != nil && res.StatusCode < 200 || c.state == Over {
				return
			}
			c.update = nil
			switch {
			case res != nil && c.auth.challenged(c.e, res) && auths < maxChallenges:
				auths++
				send()
				return
			case res != nil && res.StatusCode < 300:
				d.retarget(res)
			case res != nil && (res.StatusCode == 405 || res.StatusCode == 501):
				d.updates = false
			}
			done(res, err)
		}, &c.update)
	}
	send()
}

// updated takes an UPDATE of the peer's.
func (c *Call) updated(s *transaction.Server, d *dialog) {
	e, req := c.e, s.Request
	offer := len(req.Body()) > 0
	p := c.way()
	switch min, short := e.tooShort(req); {
	case short:
		e.refuse(s, 422, "Min-SE", inSeconds(min))
		return
	case p == nil:
		e.refuse(s, 503)
		return
	case offer && c.offerPending():
		e.refuse(s, 491) // RFC 3311 section 5.2
		return
	case offer && c.state == Alerting:
		e.refuse(s, 500, "Retry-After", e.retryAfter()) // the INVITE's offer has no answer yet
		return
	}
	var body []byte
	if offer {
		var err error
		if body, err = c.media.Answer(req.Body(), p.ID); err != nil {
			e.refuse(s, 488)
			return
		}
	}
	res := c.inDialog(s, 200)
	if c.state == Up {
		c.session.answer(req, res)
	}
	setBody(res, body)
	peerMoved := d.retarget(req)
	e.respond(s, res)
	if peerMoved {
		c.tell(Event{Kind: PeerMoved, Remote: d.target})
	}
	if offer {
		c.tell(Event{Kind: Renegotiated})
	}
}

// offerPending reports whether an offer of ours has no answer yet.
func (c *Call) offerPending() bool {
	return c.offer != nil || c.answered != nil && c.answered.offered ||
		c.state == Calling && c.outgoing.offered && !c.outgoing.complete
}
