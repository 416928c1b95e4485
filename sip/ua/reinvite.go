// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"errors"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// purpose is what a re-INVITE is for. Each is for one thing, so that a peer that refuses the
// one has not refused the other (RFC 6141 section 4.4).
type purpose uint8

const (
	toMove purpose = iota
	toHold
	toRefresh
)

// reinvite is a re-INVITE of ours.
type reinvite struct {
	purpose  purpose
	path     *path
	hold     bool
	tx       *transaction.Client
	request  request
	since    int // refreshes of the target until it was sent
	sent     time.Time
	heard    bool // the peer has answered, provisionally at least
	auths    int
	answered bool // by a reliable provisional response
}

// busy reports whether a re-INVITE has to wait: one is pending, an offer in either direction
// is, or a back-off runs (section 14.1).
func (c *Call) busy() bool {
	return c.offer != nil || c.again.IsSet() || c.answered != nil && c.answered.offered
}

// pursue does what the call still has to do by re-INVITE, one thing at a time. A move comes
// first, for media wait for it.
func (c *Call) pursue() {
	if c.state != Up || c.e.use == nil || c.busy() {
		return
	}
	switch {
	case c.mustMove():
		c.reinvite(toMove)
	case c.hold != c.held:
		c.reinvite(toHold)
	case c.session.due:
		c.session.due = false
		c.reinvite(toRefresh)
	}
}

// mustMove reports whether the peer is to be told of the path in use: it knows another, or it
// may, since no answer came by which we would know.
func (c *Call) mustMove() bool {
	return (c.path != c.e.use || c.unsure) && c.refusedBy != c.e.use
}

// reinvite offers the session again.
func (c *Call) reinvite(p purpose) {
	o := &reinvite{purpose: p, path: c.way(), hold: c.held}
	if p == toHold {
		o.hold = c.hold
	}
	c.media.Hold(o.hold)
	c.offer = o
	if p == toMove {
		c.beginMove()
	}
	c.sendReinvite(o)
}

// sendReinvite sends it when it is known where it goes.
func (c *Call) sendReinvite(o *reinvite) {
	c.e.locate(c.dialog.hop(), func() {
		if c.state == Up && c.offer == o {
			c.sendOffer(o)
		}
	})
}

func (c *Call) sendOffer(o *reinvite) {
	e, d := c.e, c.dialog
	if o.purpose == toMove && o.auths == 0 {
		c.repair.arm()
	}
	body, err := c.media.Offer(o.path.ID)
	if err != nil {
		c.reinviteRefused(o, nil, err)
		return
	}
	d.rseq = 0
	o.since, o.sent, o.heard = d.refreshed, e.now, false
	e.layer.StopTimer(c.limit)
	req := d.request("INVITE")
	req.Add("Contact", e.contact(o.path).String())
	req.Add("Allow", allowed)
	req.Add("Supported", supported)
	c.session.ask(req.Message)
	c.auth.apply(e, req)
	setBody(req.Message, body)
	o.request = req
	e.send(req, o.path, func(res *message.Message, err error) { c.reinviteResult(o, d, req.Message, res, err) }, &o.tx)
}

// reinviteResult takes what becomes of a re-INVITE.
func (c *Call) reinviteResult(o *reinvite, d *dialog, req *message.Message, res *message.Message, err error) {
	e, success := c.e, res != nil && res.Status >= 200 && res.Status < 300
	switch {
	case c.state != Up:
	case c.offer != o:
		if success { // our ACK was lost, or the call has gone on without this one
			c.acknowledgeAgain(d, req, res)
			if d == c.former {
				c.heardIn(d)
			}
		}
	case res != nil && res.Status == 100: // of the next hop: a proxy says nothing of the peer by it
		if !o.heard {
			e.after(c.limit, 64*e.set.Transactions.T1)
		}
	case res != nil && res.Status < 200:
		o.heard = true
		e.after(c.limit, finalWithin)
		c.repair.stop()
		if requires(res, "100rel") {
			c.reliableAgain(o, d, res)
		}
	case success:
		c.reinviteAccepted(o, d, req, res)
	default:
		c.reinviteRefused(o, res, err)
	}
}

func (c *Call) reinviteAccepted(o *reinvite, d *dialog, req *message.Message, res *message.Message) {
	c.offer, c.attempts, c.waits = nil, 0, 0
	c.repair.stop()
	c.repair.cancel()
	c.heardIn(d)
	d.learn(res)
	peerMoved := d.retargetUnless(res, o.since)
	var err error
	if !o.answered {
		err = c.media.Accept(res.Body)
	}
	c.acknowledge(d, req, res, nil)
	if err != nil {
		c.bye(488, err.Error())
		return
	}
	// Who answers a later INVITE has had our 2xx to an earlier one of its own, whose ACK
	// went to an address that is gone.
	c.answered.stop()
	c.answered = nil
	c.session.agreed(res, true)
	c.arrived(o.path)
	if peerMoved {
		c.tell(Event{Kind: PeerMoved, Remote: d.target})
	}
	c.heldAs(o.hold)
	c.pursue()
}

// heldAs notes that the peer knows whether the call is held.
func (c *Call) heldAs(hold bool) {
	if c.held == hold {
		return
	}
	c.held = hold
	kind := Resumed
	if hold {
		kind = Held
	}
	c.tell(Event{Kind: kind})
}

// reliableAgain takes a reliable provisional response to a re-INVITE: the peer has the new
// target (RFC 6141 section 4.4).
func (c *Call) reliableAgain(o *reinvite, d *dialog, res *message.Message) {
	if !c.inOrder(d, res) {
		return
	}
	if !o.answered && len(res.Body) > 0 {
		o.answered = c.media.Accept(res.Body) == nil
	}
	c.sendPrack(d, res, nil)
	c.arrived(o.path)
}

// reinviteRefused takes a final answer to a re-INVITE that is no 2xx, or an error. Neither
// session nor remote target have changed (section 14.1, RFC 6141 section 4.4).
func (c *Call) reinviteRefused(o *reinvite, res *message.Message, err error) {
	c.offer = nil
	if !c.repair.underWay() { // whose offer is open then
		c.media.Withdraw()
	}
	if o.purpose == toRefresh {
		c.session.retry(res)
	}
	status, why := outcome(res, err)
	if err != nil && o.purpose == toMove && (o.tx != nil || !errors.Is(err, errTransport)) {
		c.unsure = true // else it has not left: that path does not lead to the peer
	}
	switch {
	case err != nil && o.path.lost:
		c.repair.stop()
		c.pursue()
	case res != nil && c.auth.challenged(c.e, o.request, res) && o.auths < maxChallenges:
		o.auths++
		c.offer = o
		c.sendReinvite(o)
	case status == 422 && c.session.interval.raise(res):
		c.offer = o
		c.sendReinvite(o)
	case c.repair.underWay(): // it decides what becomes of the call
	case status == 481 && c.goBack(false):
		c.pursue()
	case status == 481:
		c.end(status, why)
	case status == 408:
		c.bye(status, why) // section 12.2.1.2
	case status == 491 && c.waits < maxWaits:
		c.glare(o)
	default:
		c.repair.stop()
		if d, ok := seconds(res0(res).Get("Retry-After")); ok && (status == 500 || status == 503) && c.waits < maxWaits {
			c.waits++
			c.wait(max(min(d, c.e.set.RetryAfterCap), minimumWait))
			return
		}
		c.refused(o, status, why)
	}
}

// res0 is a response, or an empty one for none.
func res0(res *message.Message) *message.Message {
	if res == nil {
		return new(message.Message)
	}
	return res
}

// minimumWait keeps a peer that says Retry-After: 0 from being asked in a loop, and maxWaits is how often one
// is asked again: section 14.1 has that be once after a 491, but both ends of a call may move more than once.
const (
	minimumWait = 100 * time.Millisecond
	maxWaits    = 8
)

// wait has the next attempt wait, whatever changes meanwhile: the peer has asked for it.
func (c *Call) wait(d time.Duration) {
	c.obliged = true
	c.e.after(c.again, d)
}

// glare waits after a 491: who made the Call-ID for longer (section 14.1). If the peer takes
// UPDATE it learns the new target meanwhile, so that its BYE does not miss us; an UPDATE
// without offer may be sent while an offer is pending (RFC 3311 section 5.1).
func (c *Call) glare(o *reinvite) {
	c.e.stats.Glares++
	c.waits++
	c.repair.stop()
	if c.dialog.owner {
		c.wait(c.e.between(2100*time.Millisecond, 4*time.Second))
	} else {
		c.wait(c.e.between(0, 2*time.Second))
	}
	if o.purpose == toMove && c.dialog.updates {
		c.sendUpdate(c.dialog, nil, func(*message.Message, error) {})
	}
}

// refused gives up what a re-INVITE was for, or tries again later if that cannot be.
func (c *Call) refused(o *reinvite, status int, why string) {
	switch o.purpose {
	case toMove:
		c.moveRefused(o, status, why)
	case toHold:
		c.waits = 0
		c.hold = c.held
		c.media.Hold(c.held)
		c.tell(Event{Kind: HoldFailed, Status: status, Reason: why})
		c.pursue()
	case toRefresh:
		c.waits = 0
		c.pursue() // what has come up meanwhile
	}
}

// withdrawUnheard gives up a re-INVITE of ours that the peer cannot have got, and reports whether it
// was one: two repeats have brought no answer, and here is the peer. The INVITE has gone to an address
// that the peer has left, and a proxy would wait there for half a minute. Should it be answered after
// all, it is acknowledged.
func (c *Call) withdrawUnheard() bool {
	o, e := c.offer, c.e
	if o == nil || o.tx == nil || o.heard || e.now.Sub(o.sent) < 3*e.set.Transactions.T1 {
		return false
	}
	o.tx.Cancel(o.tx.To, e.now, &e.tx)
	c.offer = nil
	if o.purpose == toRefresh {
		c.session.retry(nil)
	}
	c.repair.stop()
	c.repair.cancel()
	c.media.Withdraw()
	return true
}

// reinvited takes a re-INVITE of the peer's.
func (c *Call) reinvited(s *transaction.Server, d *dialog) {
	e, req := c.e, s.Request
	if c.state != Up {
		e.refuse(s, 500, "Retry-After", e.retryAfter()) // the first is not answered yet
		return
	}
	if c.offer != nil && c.offer.tx != nil && c.offer.tx.Waiting() && !c.withdrawUnheard() {
		e.stats.Glares++
		e.refuse(s, 491)
		return
	}
	if min, ok := e.tooShort(req); ok {
		e.refuse(s, 422, "Min-SE", inSeconds(min))
		return
	}
	p := c.way()
	if p == nil {
		e.refuse(s, 503)
		return
	}
	body, offered, err := c.describe(req, p)
	if err != nil {
		e.refuse(s, 488)
		return
	}
	res := c.inDialog(s, 200)
	c.session.answer(req, res)
	setBody(res, body)
	peerMoved := d.retarget(req) // on sending the 2xx, not before: RFC 6141 section 4.6
	e.respond(s, res)
	c.awaitAck(s, offered)
	if peerMoved {
		c.tell(Event{Kind: PeerMoved, Remote: d.target})
	}
	c.tell(Event{Kind: Renegotiated})
}
