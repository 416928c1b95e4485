// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// sendUpdate sends an UPDATE (RFC 3311), which names where we are now. One at a time.
func (c *Call) sendUpdate(d *dialog, body []byte, done func(res *message.Message, err error)) {
	e, auths := c.e, 0
	var send func()
	send = func() {
		switch {
		case c.state == Over:
			return
		case c.update != nil:
			done(nil, errPending)
			return
		}
		req, since := d.request("UPDATE"), d.refreshed
		if p := c.way(); p != nil {
			req.Add("Contact", e.contact(p).String())
		}
		req.Add("Allow", allowed)
		req.Add("Supported", supported)
		c.session.ask(req.Message)
		c.auth.apply(e, req)
		setBody(req.Message, body)
		e.send(req, c.way(), func(res *message.Message, err error) {
			if res != nil && res.Status < 200 || c.state == Over {
				return
			}
			c.update = nil
			switch {
			case res != nil && c.auth.challenged(e, req, res) && auths < maxChallenges:
				auths++
				send()
				return
			case res != nil && res.Status < 300:
				d.retargetUnless(res, since)
			case res != nil && (res.Status == 405 || res.Status == 501):
				d.updates = false
			}
			done(res, err)
		}, &c.update)
	}
	e.locate(d.hop(), send)
}

// updated takes an UPDATE of the peer's.
func (c *Call) updated(s *transaction.Server, d *dialog) {
	e, req := c.e, s.Request
	offer := len(req.Body) > 0
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
		if body, err = c.media.Answer(req.Body, p.ID); err != nil {
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
		c.withdrawUnheard()
		c.pursue()
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
