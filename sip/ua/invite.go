// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// calling is an INVITE of ours that begins a call.
type calling struct {
	to       message.URI // the peer's address of record
	targets  targets
	callID   string
	tag      string
	seq      uint32
	tx       *transaction.Client
	path     *path
	interval sessionInterval
	auths    int
	offered  bool     // the INVITE had an offer
	complete bool     // offer and answer are, by a reliable provisional response
	rang     bool     // a provisional response has come
	ended    bool     // given up by its user
	retry    bool     // to be sent again once an address is there
	looking  bool     // to be sent when it is known where the target is
	forks    []string // tags of those that were ended, for another has the call
}

// maxEarly is how many of those that ring a call knows.
const maxEarly = 32

// Invite calls someone.
func (e *Engine) Invite(to message.URI, media Media, now time.Time, out *Output) (CallID, error) {
	defer e.enter(now, out)()
	switch {
	case e.use == nil:
		return 0, ErrNoPath
	case len(e.calls) >= e.set.MaxCalls:
		e.stats.RefusedCalls++
		return 0, ErrFull
	}
	c := e.newCall(Calling, media)
	c.outgoing = &calling{to: to, targets: targetsOf(to), callID: e.token(), tag: e.token(), interval: e.wantedInterval()}
	c.invite()
	return c.id, nil
}

// invite sends the INVITE that begins the call, for the first time or again.
func (c *Call) invite() {
	o, e := c.outgoing, c.e
	o.retry = e.use == nil
	if o.retry || o.looking {
		return
	}
	o.path, o.looking = e.use, true
	e.locate(firstHop(e.routesTo(&o.targets), o.targets.uri), c.sendInvite)
}

// sendInvite sends it when it is known where it goes.
func (c *Call) sendInvite() {
	o, e := c.outgoing, c.e
	o.looking = false
	o.retry = e.use == nil
	if o.retry || c.state != Calling {
		return
	}
	o.path, c.path = e.use, e.use
	routes := e.routesTo(&o.targets)
	o.seq++
	outside := dialog{dialogKey: dialogKey{callID: o.callID, local: o.tag}, local: e.self(), remote: message.Address{URI: o.to}, target: o.targets.uri, routes: routes}
	req := outside.numbered("INVITE", o.seq)
	req.Add("Contact", e.contact(o.path).String())
	req.Add("Allow", allowed)
	req.Add("Supported", supported)
	o.interval.ask(req.Message)
	c.auth.homes = e.homes() // now that names are known
	c.auth.apply(e, req)
	body, err := c.media.Offer(o.path.ID)
	if err != nil {
		c.end(488, err.Error())
		return
	}
	o.offered, o.complete = len(body) > 0, false
	setBody(req.Message, body)
	o.rang = false
	e.layer.StopTimer(c.limit)
	e.send(req, o.path, func(res *message.Message, err error) { c.inviteResult(req, res, err) }, &o.tx)
}

// routesTo is the route of requests to these targets.
func (e *Engine) routesTo(t *targets) []message.Address {
	if t.direct {
		return nil
	}
	return e.firstRoute()
}

// firstRoute is the route of requests outside a dialog: the proxy, and what the registrar
// said that they pass (RFC 3608).
func (e *Engine) firstRoute() []message.Address { return append(e.proxyRoute(), e.reg.serviceRoute...) }

// proxyRoute is the proxy as a Route has it, and nothing if there is none.
func (e *Engine) proxyRoute() []message.Address {
	if e.set.Proxy.Host == "" {
		return nil
	}
	u := e.set.Proxy
	u.Params = u.Params.WithBare("lr")
	return []message.Address{{URI: u}}
}

// inviteResult takes what becomes of the INVITE that began the call.
func (c *Call) inviteResult(req request, res *message.Message, err error) {
	switch {
	case res != nil && res.Status < 200:
		c.inviteProvisional(res)
	case res != nil && res.Status < 300:
		c.inviteAccepted(req.Message, res)
	case c.state != Calling:
	default:
		c.inviteRefused(req, res, err)
	}
}

// inviteProvisional takes a 1xx: with a tag it is of a dialog, early as yet.
func (c *Call) inviteProvisional(res *message.Message) {
	c.outgoing.rang = true
	if c.state == Calling {
		c.e.after(c.limit, finalWithin)
	}
	tag := toTag(res)
	known := slices.ContainsFunc(c.early, func(d *dialog) bool { return d.dialogKey.remote == tag })
	if c.state != Calling || res.Status == 100 || tag == "" || !known && len(c.early) >= maxEarly {
		return
	}
	d := c.dialogOf(res)
	if requires(res, "100rel") {
		c.reliable(d, res)
	}
	if c.dialog == nil {
		c.dialog = d
	}
	if !c.outgoing.ended {
		c.tell(Event{Kind: Ringing, Status: res.Status, Reason: res.Reason})
	}
}

// dialogOf finds the early dialog of a response, or makes it.
func (c *Call) dialogOf(res *message.Message) *dialog {
	tag := toTag(res)
	for _, d := range c.early {
		if d.dialogKey.remote == tag {
			d.learn(res)
			return d
		}
	}
	o := c.outgoing
	d := uacDialog(res, c.e.self(), message.Address{URI: o.to}, o.seq)
	c.early = append(c.early, d)
	c.take(d)
	return d
}

// inviteAccepted takes a 2xx, which may be a repeat, or one of several where a proxy forked
// (section 13.2.2.4).
func (c *Call) inviteAccepted(req *message.Message, res *message.Message) {
	tag := toTag(res)
	switch {
	case c.state == Up && c.dialog.dialogKey.remote == tag && c.dialog.callID == res.CallID():
		c.acknowledgeAgain(c.dialog, req, res) // our ACK was lost
	case c.state == Calling && !c.outgoing.ended:
		c.establish(c.dialogOf(res), req, res)
	default: // another branch answered, or we have given up: such a dialog is ended at once
		c.endFork(req, res)
		if c.state == Calling {
			c.end(487, reason(487))
		}
	}
}

// endFork ends the dialog of a 2xx that has come beside the call's. What more of them come than a call may
// ring at is not of a proxy that forks, but of somebody who has us send to wherever their contacts say.
func (c *Call) endFork(req *message.Message, res *message.Message) {
	o, tag := c.outgoing, res.CallID()+toTag(res)
	ended := slices.Contains(o.forks, tag)
	if !ended && len(o.forks) >= maxEarly {
		c.e.stats.Strays++
		return
	}
	d := uacDialog(res, c.e.self(), message.Address{URI: o.to}, number(req))
	c.acknowledge(d, req, res, nil)
	if !ended {
		o.forks = append(o.forks, tag)
		c.sayBye(d)
	}
}

// establish makes the call stand.
func (c *Call) establish(d *dialog, req *message.Message, res *message.Message) {
	o := c.outgoing
	d.recompute(res)
	d.retarget(res)
	d.localSeq = max(d.localSeq, o.seq)
	c.dialog, c.state = d, Up
	for _, other := range c.early {
		if other != d {
			c.drop(other)
		}
	}
	c.early = nil
	var answer []byte
	var err error
	switch {
	case o.complete:
	case o.offered:
		err = c.media.Accept(res.Body)
	default:
		answer, err = c.media.Answer(res.Body, o.path.ID)
	}
	c.acknowledge(d, req, res, answer)
	if err != nil {
		c.bye(488, err.Error())
		return
	}
	c.session.agreed(res, true)
	c.tell(Event{Kind: Established, Path: o.path.ID})
	c.pursue()
}

// acknowledge sends the ACK of a 2xx, which has the answer if that had the offer.
func (c *Call) acknowledge(d *dialog, invite, res *message.Message, body []byte) {
	d.ackBody = body
	c.acknowledgeAgain(d, invite, res)
}

// acknowledgeAgain sends the ACK of a 2xx that was repeated: in the dialog, with the number of
// the INVITE, to where the peer is now.
func (c *Call) acknowledgeAgain(d *dialog, invite, res *message.Message) {
	ack := d.numbered("ACK", number(invite))
	setBody(ack.Message, d.ackBody)
	c.e.locate(ack.next, func() {
		c.auth.copy(c.e, invite, ack)
		via, _ := res.Via() // of the INVITE that has arrived
		c.e.sendAck(ack, c.way(), via.Transport)
	})
}

// inviteRefused takes a final answer that is no 2xx, or an error.
func (c *Call) inviteRefused(req request, res *message.Message, err error) {
	o := c.outgoing
	c.forgetEarly()
	status, why := outcome(res, err)
	switch {
	case o.ended:
		if err != nil && o.path.lost {
			c.cancelElsewhere()
		}
		c.end(487, reason(487))
	case err != nil && o.path.lost:
		c.inviteAgain()
	case res == nil && c.nextTarget(): // section 8.1.3.4 has an error of the network be a failure like others
	case res == nil:
		c.end(status, why)
	case c.auth.challenged(c.e, req, res) && o.auths < maxChallenges:
		o.auths++
		c.withdrawInvite()
		c.invite()
	case status == 422 && o.interval.raise(res):
		c.withdrawInvite()
		c.invite()
	case redirects(res) && o.targets.add(res) && c.nextTarget():
	case c.e.set.Proxy.Host != "" && o.targets.bypass(status):
		c.callTarget()
	case status < 600 && c.nextTarget(): // a 6xx is of the user, wherever that is (section 21.6)
	default:
		c.withdrawInvite()
		c.end(status, why)
	}
}

// finalWithin is how long an INVITE of ours waits behind a provisional response. That ends the time which
// the transaction has; a server that needs longer says so each minute (section 13.3.1.1), and a proxy
// waits little less (Timer C), if it is still there.
const finalWithin = 200 * time.Second

// overdue asks that an INVITE of ours be given up. Its answer, or that there is none within 64*T1 (section
// 9.1), says what becomes of the call.
func (c *Call) overdue() {
	var tx *transaction.Client
	switch {
	case c.state == Calling:
		tx = c.outgoing.tx
	case c.offer != nil:
		tx = c.offer.tx
	}
	if tx != nil {
		tx.Cancel(tx.To, c.e.now, &c.e.tx)
	}
}

func (c *Call) withdrawInvite() {
	if c.outgoing.offered {
		c.media.Withdraw()
	}
}

func (c *Call) forgetEarly() {
	for _, d := range c.early {
		c.drop(d)
	}
	c.early, c.dialog = nil, nil
}

// nextTarget calls the next URI, and reports whether there is one.
func (c *Call) nextTarget() bool {
	if !c.outgoing.targets.advance() {
		return false
	}
	c.callTarget()
	return true
}

// callTarget calls the URI that a redirection has led to.
func (c *Call) callTarget() {
	o := c.outgoing
	o.auths = 0
	c.withdrawInvite()
	c.tell(Event{Kind: Redirected, Remote: o.targets.uri})
	c.invite()
}

// cancel gives up a call that is not answered yet.
func (c *Call) cancel() {
	o := c.outgoing
	if o.tx == nil || !o.tx.Waiting() {
		c.end(487, reason(487))
		return
	}
	o.ended = true
	to := o.tx.To
	if p := c.way(); p != nil {
		to.Local = p.Local
	}
	o.tx.Cancel(to, c.e.now, &c.e.tx)
}

// cancelElsewhere gives up by the path in use what rings from an INVITE of another, where there
// is one: a CANCEL is known by its branch, not by its source.
func (c *Call) cancelElsewhere() {
	o, e := c.outgoing, c.e
	if !o.rang || o.tx == nil {
		return
	}
	req, remote := transaction.Cancel(o.tx.Request), o.tx.To.Remote
	send := func() { // what becomes of it matters to no one
		_, _ = e.layer.Start(req, transaction.Target{Transport: "UDP", Local: e.use.Local, Remote: remote}, 0, e.now, &e.tx)
	}
	switch {
	case e.use != nil:
		send()
	case len(e.waiting) < maxWaiting:
		e.waiting = append(e.waiting, send)
	}
}

// inviteAgain calls anew: the address that the answer would have come to is gone. What rings
// from the first INVITE is given up.
func (c *Call) inviteAgain() {
	o := c.outgoing
	if o.retry || c.e.use == nil {
		o.retry = true
		return
	}
	c.cancelElsewhere()
	o.callID, o.tag, o.seq, o.auths = c.e.token(), c.e.token(), 0, 0
	c.withdrawInvite()
	c.invite()
}
