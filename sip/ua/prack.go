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
	setBody(req.Message, answer)
	c.e.locate(req.next, func() {
		c.auth.apply(c.e, req)
		c.e.send(req, c.way(), func(*message.Message, error) {}, nil)
	})
}

// ringer repeats a reliable provisional response of ours until its PRACK (RFC 3262 section 3).
type ringer struct {
	call    *Call
	tx      *transaction.Server // of the INVITE
	rseq    uint32
	next    time.Duration
	until   time.Time
	timer   *transaction.Timer
	waiting bool // for the PRACK, which may come behind our answer to the INVITE
}

func (r *ringer) init(c *Call) {
	r.call = c
	r.timer = c.e.timer(r.again)
}

// begin makes a response reliable: the first with a number by chance, each other with the next one.
func (r *ringer) begin(s *transaction.Server, res *message.Message) {
	e := r.call.e
	if r.rseq == 0 {
		r.rseq = uint32(e.random.Uint64() % (1<<31 - 1))
	}
	r.rseq++
	r.tx, r.waiting = s, true
	res.Add("Require", "100rel")
	res.Add("RSeq", strconv.FormatUint(uint64(r.rseq), 10))
	r.next, r.until = e.set.Transactions.T1, e.now.Add(64*e.set.Transactions.T1)
	e.after(r.timer, r.next)
}

// again repeats it, and gives the call up in the end.
func (r *ringer) again() {
	e := r.call.e
	if !e.now.Before(r.until) {
		r.call.refuseIncoming(504)
		return
	}
	r.tx.Repeat(&e.tx)
	r.next *= 2
	e.after(r.timer, min(r.next, r.until.Sub(e.now)))
}

// stop ends the repeats; a PRACK may come all the same.
func (r *ringer) stop() { r.call.e.layer.StopTimer(r.timer) }

// prack takes a PRACK.
func (c *Call) prack(s *transaction.Server) {
	var rseq, seq uint32
	var method string
	_, err := fmt.Sscan(s.Request.Get("RAck"), &rseq, &seq, &method)
	if err != nil {
		c.e.refuse(s, 400)
		return
	}
	r := &c.ringer
	if !r.waiting || r.rseq != rseq || number(r.tx.Request) != seq || method != "INVITE" {
		c.e.refuse(s, 481)
		return
	}
	r.waiting = false
	r.stop()
	c.e.refuse(s, 200)
}
