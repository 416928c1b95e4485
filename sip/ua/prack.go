// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// reliable takes a reliable provisional response to an INVITE that begins a call, and
// acknowledges it by PRACK (RFC 3262 section 4).
func (c *Call) reliable(d *dialog, res *message.Message) {
	if !c.inOrder(d, res) {
		return
	}
	var answer []byte
	var err error
	if o := c.outgoing; !o.complete && len(res.Body) > 0 {
		if o.offered {
			err = c.media.Accept(res.Body)
		} else {
			answer, err = c.media.Answer(res.Body, o.path.ID)
		}
		o.complete = err == nil
	}
	c.sendPrack(d, res, answer)
}

// inOrder reports whether a reliable provisional response is the next one. One that is not
// waits for its repeat. It refreshes the target (RFC 6141 section 4.7).
func (c *Call) inOrder(d *dialog, res *message.Message) bool {
	rseq, err := strconv.ParseUint(res.Get("RSeq"), 10, 32)
	if err != nil || d.rseq != 0 && uint32(rseq) != d.rseq+1 {
		return false
	}
	d.rseq = uint32(rseq)
	d.retarget(res)
	return true
}

func (c *Call) sendPrack(d *dialog, res *message.Message, answer []byte) {
	req := d.request("PRACK")
	req.Add("RAck", fmt.Sprintf("%d %d INVITE", d.rseq, number(res)))
	c.auth.apply(c.e, req.Message)
	setBody(req.Message, answer)
	c.e.locate(req.next, func() { c.e.send(req, c.way(), func(*message.Message, error) {}, nil) })
}

// ringer repeats a reliable provisional response of ours until its PRACK (RFC 3262 section 3).
type ringer struct {
	rseq    uint32
	seq     uint32 // of the INVITE
	tx      *transaction.Server
	next    time.Duration
	until   time.Time
	timer   *transaction.Timer
	waiting bool
}

// ring answers an INVITE by 180, reliably if the caller can do that and we shall, or if it
// demands it.
func (a *alerting) ring() {
	e := a.call.e
	res := a.response(180)
	if requires(a.tx.Request, "100rel") || e.set.Reliable && supports(a.tx.Request, "100rel") {
		r := &a.ringer
		r.rseq, r.seq, r.tx, r.waiting = uint32(e.random.Uint64()%(1<<31-1))+1, number(a.tx.Request), a.tx, true
		res.Add("Require", "100rel")
		res.Add("RSeq", strconv.Itoa(int(r.rseq)))
		r.next, r.until = e.set.Transactions.T1, e.now.Add(64*e.set.Transactions.T1)
		r.timer = e.timer(a.ringAgain)
		e.after(r.timer, r.next)
	}
	e.respond(a.tx, res)
}

// ringAgain repeats the reliable 180, and gives the call up in the end.
func (a *alerting) ringAgain() {
	e, r := a.call.e, &a.ringer
	if !e.now.Before(r.until) {
		a.call.refuseIncoming(504)
		return
	}
	r.tx.Repeat(&e.tx)
	r.next *= 2
	e.after(r.timer, min(r.next, r.until.Sub(e.now)))
}

// prack takes a PRACK.
func (c *Call) prack(s *transaction.Server) {
	var rseq, seq uint32
	var method string
	_, err := fmt.Sscan(s.Request.Get("RAck"), &rseq, &seq, &method)
	if err != nil {
		c.e.refuse(s, 400)
		return
	}
	a := c.incoming
	if a == nil || !a.ringer.waiting || a.ringer.rseq != rseq || a.ringer.seq != seq || method != "INVITE" {
		c.e.refuse(s, 481)
		return
	}
	a.ringer.stop(c.e)
	c.e.refuse(s, 200)
}

func (r *ringer) stop(e *Engine) {
	r.waiting = false
	if r.timer != nil {
		e.layer.StopTimer(r.timer)
	}
}
