// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// alerting is an INVITE of the peer's that begins a call, until it is answered.
type alerting struct {
	call   *Call
	tx     *transaction.Server
	until  time.Time          // when it has rung for long enough
	status int                // that refuses it then
	timer  *transaction.Timer // the next 180, or that
}

// response begins a response in the call's dialog.
func (a *alerting) response(status int) *message.Message {
	return a.call.inDialog(a.tx, status)
}

// inDialog begins a response that may create a dialog or refresh its target: with Contact,
// and the Record-Route of the request (section 12.1.1).
func (c *Call) inDialog(s *transaction.Server, status int) *message.Message {
	res := message.Reply(s.Request, status, reason(status), c.dialog.dialogKey.local)
	for _, route := range s.Request.All("Record-Route") {
		res.Add("Record-Route", route)
	}
	if p := c.way(); p != nil {
		res.Add("Contact", c.e.contact(p).String())
	}
	res.Add("Allow", allowed)
	res.Add("Supported", supported)
	return res
}

// stop ends the ringing, once.
func (a *alerting) stop() {
	if a != nil {
		a.call.e.ringing.remove(sourceOf(a.tx.From.Remote.Addr()))
		a.call.e.layer.StopTimer(a.timer)
		a.call.ringer.stop()
	}
}

// incomingCall takes an INVITE outside a dialog.
func (e *Engine) incomingCall(s *transaction.Server) {
	req := s.Request
	if min, ok := e.tooShort(req); ok {
		e.refuse(s, 422, "Min-SE", inSeconds(min))
		return
	}
	if text := req.Get("Replaces"); text != "" { // which takes the place of a call that there is
		e.replaces(s, text)
		return
	}
	if len(e.calls) >= e.set.MaxCalls || !e.ringing.room(sourceOf(s.From.Remote.Addr()), e.set.MaxCalls) {
		e.stats.RefusedCalls++
		e.refuse(s, 486)
		return
	}
	c := e.alert(s)
	c.tell(Event{Kind: Incoming})
}

// alert makes the call of an INVITE, and has it ring for RingFor, or until the INVITE expires (section 13.3.1).
func (e *Engine) alert(s *transaction.Server) *Call {
	c := e.newCall(Alerting, nil)
	c.dialog = uasDialog(s.Request, e.token())
	c.take(c.dialog)
	rings, status := e.set.RingFor, 480
	if d, ok := seconds(s.Request.Get("Expires")); ok && d < rings {
		rings, status = d, 487
	}
	a := &alerting{call: c, tx: s, until: e.now.Add(rings), status: status}
	a.timer = e.timer(a.due)
	c.incoming = a
	e.ringing.add(sourceOf(s.From.Remote.Addr()))
	a.ring()
	return c
}

// due rings again, or refuses the call that no one has answered.
func (a *alerting) due() {
	if !a.call.e.now.Before(a.until) {
		a.call.refuseIncoming(a.status)
		return
	}
	a.ring()
}

// How often the 180 is sent, so that no proxy gives the call up: each minute (section 13.3.1.1), and more
// seldom where it is reliable (RFC 3262 section 3).
const (
	ringEvery         = time.Minute
	ringEveryReliable = 150 * time.Second
)

// ring answers by 180, reliably if the caller can do that and we shall, or if it demands it.
func (a *alerting) ring() {
	c, req, every := a.call, a.tx.Request, ringEvery
	reliable := requires(req, "100rel") || c.e.set.Reliable && supports(req, "100rel")
	if reliable {
		every = ringEveryReliable
	}
	c.e.after(a.timer, min(every, a.until.Sub(c.e.now)))
	if c.ringer.waiting { // no other before the PRACK of the last
		return
	}
	res := a.response(180)
	if reliable {
		c.ringer.begin(a.tx, res)
	}
	c.e.respond(a.tx, res)
}

// Answer takes a call that came in.
func (e *Engine) Answer(id CallID, media Media, now time.Time, out *Output) error {
	defer e.enter(now, out)()
	c, err := e.find(id)
	if err != nil {
		return err
	}
	if c.state != Alerting {
		return ErrState
	}
	c.media = media
	return c.accept()
}

// accept answers the INVITE by 200.
func (c *Call) accept() error {
	a, p := c.incoming, c.way()
	if p == nil {
		return ErrNoPath
	}
	body, offered, err := c.describe(a.tx.Request, p)
	if err != nil {
		c.refuseIncoming(488)
		return err
	}
	res := a.response(200)
	c.session.answer(a.tx.Request, res)
	setBody(res, body)
	a.stop()
	c.incoming, c.state, c.path = nil, Up, p
	c.e.respond(a.tx, res)
	c.awaitAck(a.tx, offered)
	c.tell(Event{Kind: Established, Path: p.ID})
	c.e.locate(c.dialog.hop(), func() {}) // so that a move need not wait for it
	return nil
}

// describe makes the body of a 2xx: the answer to the offer in the request, or an offer if it
// has none (section 14.2).
func (c *Call) describe(req *message.Message, p *path) (body []byte, offered bool, err error) {
	if len(req.Body) == 0 {
		body, err = c.media.Offer(p.ID)
		return body, true, err
	}
	body, err = c.media.Answer(req.Body, p.ID)
	return body, false, err
}

// Reject refuses a call that came in.
func (e *Engine) Reject(id CallID, status int, now time.Time, out *Output) error {
	defer e.enter(now, out)()
	c, err := e.find(id)
	switch {
	case err != nil:
		return err
	case c.state != Alerting || status < 300 || status > 699:
		return ErrState
	}
	c.refuseIncoming(status)
	return nil
}

func (c *Call) refuseIncoming(status int) {
	tx := c.incoming.tx
	c.e.respond(tx, message.Reply(tx.Request, status, reason(status), c.dialog.dialogKey.local))
	c.end(status, reason(status))
}

// unacked is a 2xx of ours to an INVITE that no ACK has come for.
type unacked struct {
	call    *Call
	tx      *transaction.Server
	in      *dialog
	seq     uint32
	offered bool  // it has an offer, which the ACK answers
	path    *path // that it named
	next    time.Duration
	until   time.Time
	timer   *transaction.Timer
}

// awaitAck repeats the 2xx until its ACK comes: from T1, doubling up to T2, for 64*T1 in all,
// by whatever transport (sections 13.3.1.4 and 14.2).
func (c *Call) awaitAck(s *transaction.Server, offered bool) {
	c.answered.stop()
	e := c.e
	u := &unacked{call: c, tx: s, in: c.dialog, seq: number(s.Request), offered: offered, path: c.way(), next: e.set.Transactions.T1, until: e.now.Add(64 * e.set.Transactions.T1)}
	u.timer = e.timer(u.again)
	c.answered = u
	e.after(u.timer, u.next)
}

func (u *unacked) again() {
	e := u.call.e
	if !e.now.Before(u.until) {
		u.call.answered = nil
		if u.in == u.call.dialog { // else the peer speaks in another
			u.call.bye(408, "no ACK came")
		}
		return
	}
	u.tx.Repeat(&e.tx)
	u.next = min(2*u.next, e.set.Transactions.T2)
	e.after(u.timer, min(u.next, u.until.Sub(e.now)))
}

func (u *unacked) stop() {
	if u != nil {
		u.call.e.layer.StopTimer(u.timer)
	}
}

// acked takes the ACK of a 2xx.
func (c *Call) acked(req *message.Message) {
	u := c.answered
	if u == nil || number(req) != u.seq || c.dialogFor(req) != u.in {
		return
	}
	u.stop()
	c.answered = nil
	c.heardIn(u.in)
	if u.offered {
		if err := c.media.Accept(req.Body); err != nil {
			c.bye(488, err.Error())
			return
		}
	}
	c.arrived(u.path) // RFC 6141 section 4.5; with the ACK it is sure
	c.pursue()
}
