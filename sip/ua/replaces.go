// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// repair finds a peer that has moved at the same time as we: our re-INVITE goes to an address
// that is gone, and so does its own. Both have registered anew, though, so an INVITE to its
// address of record finds it, and Replaces (RFC 3891) says which call it goes on with.
type repair struct {
	call    *Call
	start   *transaction.Timer
	tx      *transaction.Client
	path    *path
	targets targets
	auths   int
	number  int  // of the INVITE under way
	won     int  // that of the last one that was answered
	oldGone bool // the peer has ended the old dialog
	until   time.Time
}

func (r *repair) init(c *Call) {
	r.call = c
	r.start = c.e.timer(r.begin)
}

// arm has the repair begin if two repeats of the re-INVITE bring no answer, or three if the
// Call-ID is the peer's, so that both ends do not begin at once.
func (r *repair) arm() {
	t1 := r.call.e.set.Transactions.T1
	wait := 3*t1 + t1/5
	if !r.call.dialog.owner {
		wait = 7*t1 + t1/5
	}
	r.until = r.call.e.now.Add(64 * t1)
	r.call.e.after(r.start, wait)
}

// stop has it not begin: the peer answers.
func (r *repair) stop() { r.call.e.layer.StopTimer(r.start) }

func (r *repair) underWay() bool { return r.tx != nil && r.tx.Waiting() }

// cancel gives up an INVITE that is under way. Nothing but a 2xx to it matters any more.
func (r *repair) cancel() {
	if r.underWay() {
		r.tx.Cancel(r.tx.To, r.call.e.now, &r.call.e.tx)
	}
	r.tx = nil
	r.number++
}

// patience is how many T1 an INVITE has for its answer. By then the peer may have moved again, and
// registered elsewhere.
const patience = 8

// begin sends the INVITE, if the re-INVITE still waits, and again if no one answers it. When the re-INVITE
// has failed, that ends with the time that a request has (section 12.2.1.2).
func (r *repair) begin() {
	c := r.call
	waits := c.offer != nil && c.offer.tx != nil && c.offer.tx.Waiting()
	switch {
	case !waits && !r.underWay() || c.e.use == nil:
		c.pursue() // the peer's INVITE, for which it has refused ours, has not come
		return
	case !waits && !c.e.now.Before(r.until):
		c.bye(408, reason(408))
		return
	}
	r.cancel()
	r.auths, r.targets = 0, targetsOf(c.dialog.remote.URI)
	r.send(c.e.token(), c.e.token(), 1)
}

// send sends the INVITE when it is known where it goes, unless it is given up before.
func (r *repair) send(callID, tag string, seq uint32) {
	c, e := r.call, r.call.e
	r.number++
	n := r.number
	e.locate(firstHop(e.routesTo(&r.targets), r.targets.uri), func() {
		if c.state == Up && n == r.number && e.use != nil {
			r.invite(n, callID, tag, seq)
		}
	})
}

func (r *repair) invite(n int, callID, tag string, seq uint32) {
	c, e, d := r.call, r.call.e, r.call.dialog
	r.path = e.use
	c.media.Withdraw() // the offer of the re-INVITE, which this one stands for
	body, err := c.media.Offer(r.path.ID)
	if err != nil {
		return
	}
	outside := dialog{dialogKey: dialogKey{callID: callID, local: tag}, local: d.local, remote: d.remote, target: r.targets.uri, routes: e.routesTo(&r.targets)}
	req := outside.numbered("INVITE", seq)
	req.Add("Contact", e.contact(r.path).String())
	req.Add("Replaces", d.callID+";to-tag="+d.dialogKey.remote+";from-tag="+d.dialogKey.local)
	req.Add("Require", "replaces")
	req.Add("Allow", allowed)
	req.Add("Supported", "timer, replaces")
	c.session.ask(req.Message)
	c.auth.apply(e, req)
	setBody(req.Message, body)
	e.dialogs[outside.dialogKey] = c // for requests that come before the answer
	e.after(r.start, patience*e.set.Transactions.T1)
	e.send(req, r.path, func(res *message.Message, err error) { r.result(n, d, req, res, err) }, &r.tx)
}

// result takes what becomes of the INVITE.
func (r *repair) result(n int, old *dialog, req request, res *message.Message, err error) {
	c := r.call
	if res == nil || res.Status >= 200 {
		delete(c.e.dialogs, dialogKey{callID: req.CallID(), local: fromTag(req.Message)})
	}
	switch {
	case res != nil && res.Status < 200:
	case res != nil && res.Status < 300:
		r.accepted(n, old, req.Message, res)
	case n != r.number || c.state != Up || c.dialog != old:
	case res != nil && c.auth.challenged(c.e, req, res) && r.auths < maxChallenges:
		r.auths++
		r.send(req.CallID(), fromTag(req.Message), number(req.Message)+1)
	case redirects(res) && r.targets.add(res) && r.targets.advance(), r.bypass(res):
		r.send(req.CallID(), fromTag(req.Message), number(req.Message)+1)
	case r.oldGone:
		c.end(0, "")
	case err != nil && r.path.lost: // who has moved again asks again, in the call's own dialog
		if c.offer == nil {
			c.media.Withdraw()
			c.unsure = true
			c.pursue()
		}
	case c.offer == nil && (res == nil || res.Status != 491): // the re-INVITE has timed out meanwhile
		status, why := outcome(res, err)
		c.bye(status, why)
	default: // the peer may register in a moment, or know the call by its former dialog
		if c.offer == nil {
			c.media.Withdraw()
		}
		if res != nil && res.Status == 481 {
			c.goBack(false)
		}
		c.e.after(r.start, c.e.between(time.Second, 2*time.Second))
	}
}

// bypass leaves out a proxy that redirects and does not go there itself.
func (r *repair) bypass(res *message.Message) bool {
	return res != nil && r.call.e.set.Proxy.Host != "" && r.targets.bypass(res.Status)
}

// accepted goes on in the dialog of the 2xx. Of several INVITEs the peer goes by the last that it got.
func (r *repair) accepted(n int, old *dialog, req *message.Message, res *message.Message) {
	c := r.call
	d := uacDialog(res, old.local, old.remote, number(req))
	switch {
	case c.state == Up && c.dialog.dialogKey == d.dialogKey:
		c.acknowledgeAgain(c.dialog, req, res)
		return
	case c.state == Up && n <= r.won:
		return
	case c.state != Up || c.dialog != old && c.former != old:
		c.acknowledge(d, req, res, nil)
		c.sayBye(d)
		return
	}
	r.won = n
	var err error
	if r.tx != nil { // else the re-INVITE was answered after all, and its answer holds
		err = c.media.Accept(res.Body)
	}
	r.cancel()
	c.goOn(d, old)
	c.repaired, c.sure, r.oldGone = true, true, false
	c.acknowledge(d, req, res, nil)
	if err != nil {
		c.bye(488, err.Error())
		return
	}
	c.session.agreed(res, true)
	c.e.stats.MovesRepaired++
	c.arrived(r.path)
	c.tell(Event{Kind: PeerMoved, Remote: d.target})
	c.pursue()
}

// replaces takes an INVITE with Replaces (RFC 3891 section 3).
func (e *Engine) replaces(s *transaction.Server, text string) {
	callID, params := message.Parameters(text)
	ours, _ := params.Get("to-tag")
	theirs, _ := params.Get("from-tag")
	from, _ := s.Request.From()
	key := dialogKey{callID, ours, theirs}
	c := e.dialogs[key]
	switch {
	case len(s.Request.All("Replaces")) > 1:
		e.refuse(s, 400)
	case c == nil || c.state != Up || c.sure && c.dialog.dialogKey != key: // or what the peer has replaced for us
		e.refuse(s, 481)
	case params.Has("early-only"):
		e.refuse(s, 486)
	case !sameUser(from.URI, c.dialog.remote.URI):
		e.refuse(s, 403) // who knows the tags of a call has still to be its peer
	case c.repair.underWay() && c.dialog.owner:
		e.refuse(s, 491) // ours is under way, and it is for us to repair
	case c.former != nil && c.former.dialogKey == key:
		c.replacedBy(s, c.former)
	default:
		c.replacedBy(s, c.dialog)
	}
}

func sameUser(a, b message.URI) bool {
	return message.Unescape(a.User) == message.Unescape(b.User) && strings.EqualFold(a.Host, b.Host) && a.Opaque == b.Opaque
}

// replacedBy goes on in the dialog of an INVITE with Replaces.
func (c *Call) replacedBy(s *transaction.Server, old *dialog) {
	e, p := c.e, c.way()
	if p == nil {
		e.refuse(s, 503)
		return
	}
	if c.offer != nil {
		c.media.Withdraw()
	}
	body, offered, err := c.describe(s.Request, p)
	if err != nil {
		e.refuse(s, 488)
		return
	}
	c.repair.cancel()
	c.repair.won = c.repair.number
	d := uasDialog(s.Request, e.token())
	d.local, d.remote = old.local, old.remote
	c.goOn(d, old)
	c.repaired, c.sure = true, false
	res := c.inDialog(s, 200)
	c.session.answer(s.Request, res)
	setBody(res, body)
	e.respond(s, res)
	c.awaitAck(s, offered)
	c.tell(Event{Kind: PeerMoved, Remote: d.target})
}
