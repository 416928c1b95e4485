// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/emiago/sipgo/sip"

	"github.com/isthmus-net/isthmus/sip/transaction"
)

// calling is an INVITE of ours that begins a call.
type calling struct {
	to       sip.Uri // the peer's address of record
	target   sip.Uri // the Request-URI
	callID   string
	tag      string
	seq      uint32
	tx       *transaction.Client
	path     *path
	tried    []string  // URIs that were called: each once (section 8.1.3.4)
	next     []sip.Uri // those that a redirection has left
	interval sessionInterval
	auths    int
	offered  bool // the INVITE had an offer
	complete bool // offer and answer are, by a reliable provisional response
	rang     bool // a provisional response has come
	ended    bool // given up by its user
	retry    bool // to be sent again once an address is there
}

// maxTargets is how many URIs one call tries.
const maxTargets = 8

// Invite calls someone.
func (e *Engine) Invite(to sip.Uri, media Media, now time.Time, out *Output) (CallID, error) {
	defer e.enter(now, out)()
	switch {
	case e.use == nil:
		return 0, ErrNoPath
	case len(e.calls) >= e.set.MaxCalls:
		e.stats.RefusedCalls++
		return 0, ErrFull
	}
	c := e.newCall(Calling, media)
	c.owner = true
	c.outgoing = &calling{to: to, target: to, callID: e.token(), tag: e.token(), interval: e.wantedInterval()}
	c.invite()
	return c.id, nil
}

// invite sends the INVITE that begins the call, for the first time or again.
func (c *Call) invite() {
	o, e := c.outgoing, c.e
	if e.use == nil {
		o.retry = true
		return
	}
	o.retry = false
	o.seq++
	o.path, c.path = e.use, e.use
	req := outgoing(sip.INVITE, o.target, e.firstRoute())
	local := party{e.set.DisplayName, e.set.AOR}
	req.AppendHeader(local.from(o.tag))
	req.AppendHeader(party{uri: o.to}.to(""))
	id := sip.CallIDHeader(o.callID)
	req.AppendHeader(&id)
	req.AppendHeader(&sip.CSeqHeader{SeqNo: o.seq, MethodName: sip.INVITE})
	req.AppendHeader(e.contactHeader(o.path))
	set(req, "Allow", allowed)
	set(req, "Supported", supported)
	o.interval.ask(req)
	c.auth.apply(e, req)
	body, err := c.media.Offer(o.path.ID)
	if err != nil {
		c.end(488, err.Error())
		return
	}
	o.offered, o.complete = len(body) > 0, false
	setBody(req, body)
	o.tried = append(o.tried, o.target.String())
	o.rang = false
	e.send(req, o.path, func(res *sip.Response, err error) { c.inviteResult(req, res, err) }, &o.tx)
}

// firstRoute is the route of requests outside a dialog: the proxy, and what the registrar
// said that they pass (RFC 3608).
func (e *Engine) firstRoute() []sip.Uri {
	var route []sip.Uri
	if e.set.Proxy.Host != "" {
		route = append(route, looseRoute(e.set.Proxy))
	}
	return append(route, e.reg.serviceRoute...)
}

// looseRoute is a URI as a Route has it.
func looseRoute(u sip.Uri) sip.Uri {
	u = *u.Clone()
	if !u.UriParams.Has("lr") {
		u.UriParams = append(u.UriParams, sip.HeaderKV{K: "lr"})
	}
	return u
}

// inviteResult takes what becomes of the INVITE that began the call.
func (c *Call) inviteResult(req *sip.Request, res *sip.Response, err error) {
	switch {
	case res != nil && res.StatusCode < 200:
		c.inviteProvisional(res)
	case res != nil && res.StatusCode < 300:
		c.inviteAccepted(req, res)
	case c.state != Calling:
	default:
		c.inviteRefused(res, err)
	}
}

// inviteProvisional takes a 1xx: with a tag it is of a dialog, early as yet.
func (c *Call) inviteProvisional(res *sip.Response) {
	c.outgoing.rang = true
	if c.state != Calling || res.StatusCode == 100 || tagOf(res.To().Params) == "" {
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
		c.tell(Event{Kind: Ringing, Status: res.StatusCode, Reason: res.Reason})
	}
}

// dialogOf finds the early dialog of a response, or makes it.
func (c *Call) dialogOf(res *sip.Response) *dialog {
	tag := tagOf(res.To().Params)
	for _, d := range c.early {
		if d.dialogKey.remote == tag {
			d.learn(res)
			return d
		}
	}
	o := c.outgoing
	d := uacDialog(res, party{c.e.set.DisplayName, c.e.set.AOR}, party{uri: o.to}, o.seq)
	c.early = append(c.early, d)
	c.take(d)
	return d
}

// inviteAccepted takes a 2xx, which may be a repeat, or one of several where a proxy forked
// (section 13.2.2.4).
func (c *Call) inviteAccepted(req *sip.Request, res *sip.Response) {
	tag := tagOf(res.To().Params)
	switch {
	case c.state == Up && c.dialog.dialogKey.remote == tag && c.dialog.callID == string(*res.CallID()):
		c.acknowledgeAgain(c.dialog, req) // our ACK was lost
	case c.state == Calling && !c.outgoing.ended:
		c.establish(c.dialogOf(res), req, res)
	default: // another branch answered, or we have given up: such a dialog is ended at once
		d := uacDialog(res, party{c.e.set.DisplayName, c.e.set.AOR}, party{uri: c.outgoing.to}, req.CSeq().SeqNo)
		c.acknowledge(d, req, nil)
		c.sayBye(d)
		if c.state == Calling {
			c.end(487, reason(487))
		}
	}
}

// establish makes the call stand.
func (c *Call) establish(d *dialog, req *sip.Request, res *sip.Response) {
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
		err = c.media.Accept(res.Body())
	default:
		answer, err = c.media.Answer(res.Body(), o.path.ID)
	}
	c.acknowledge(d, req, answer)
	if err != nil {
		c.bye(488, err.Error())
		return
	}
	c.session.agreed(res, true)
	c.tell(Event{Kind: Established, Path: o.path.ID})
	c.pursue()
}

// acknowledge sends the ACK of a 2xx, which has the answer if that had the offer.
func (c *Call) acknowledge(d *dialog, invite *sip.Request, body []byte) {
	d.ackBody = body
	c.acknowledgeAgain(d, invite)
}

// acknowledgeAgain sends the ACK of a 2xx that was repeated: in the dialog, with the number of
// the INVITE, to where the peer is now.
func (c *Call) acknowledgeAgain(d *dialog, invite *sip.Request) {
	ack := d.numbered(sip.ACK, invite.CSeq().SeqNo)
	copyCredentials(invite, ack)
	setBody(ack, d.ackBody)
	c.e.sendAck(ack, c.way())
}

// inviteRefused takes a final answer that is no 2xx, or an error.
func (c *Call) inviteRefused(res *sip.Response, err error) {
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
	case res == nil:
		c.end(status, why)
	case c.auth.challenged(c.e, res) && o.auths < maxChallenges:
		o.auths++
		c.withdrawInvite()
		c.invite()
	case status == 422 && o.interval.raise(res):
		c.withdrawInvite()
		c.invite()
	case status >= 300 && status < 400 && c.redirect(res):
	case c.nextTarget():
	default:
		c.withdrawInvite()
		c.end(status, why)
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

// redirect notes where a 3xx says that the peer is, best first, and calls there.
func (c *Call) redirect(res *sip.Response) bool {
	o := c.outgoing
	type alternative struct {
		uri sip.Uri
		q   float64
	}
	var list []alternative
	for _, h := range res.GetHeaders("Contact") {
		contact, ok := h.(*sip.ContactHeader)
		if !ok || contact.Address.Wildcard || contact.Address.Host == "" {
			continue
		}
		q, err := strconv.ParseFloat(contact.Params.GetOr("q", "1"), 64)
		if err != nil {
			q = 0
		}
		u := *contact.Address.Clone()
		u.UriParams.Remove("method") // sections 8.1.3.4 and 19.1.5
		list = append(list, alternative{u, q})
	}
	slices.SortStableFunc(list, func(a, b alternative) int { return cmp.Compare(b.q, a.q) })
	for _, a := range list {
		o.next = append(o.next, a.uri)
	}
	return c.nextTarget()
}

// nextTarget calls the next URI that was not called before, and reports whether there is one.
func (c *Call) nextTarget() bool {
	o := c.outgoing
	for len(o.next) > 0 && len(o.tried) < maxTargets {
		u := o.next[0]
		o.next = o.next[1:]
		if slices.Contains(o.tried, u.String()) {
			continue
		}
		o.target, o.auths = u, 0
		c.withdrawInvite()
		c.tell(Event{Kind: Redirected, Remote: u})
		c.invite()
		return true
	}
	return false
}

// cancel gives up a call that is not answered yet.
func (c *Call) cancel() {
	o := c.outgoing
	if o.tx == nil || !o.tx.Waiting() {
		c.end(487, reason(487))
		return
	}
	o.ended = true
	hop := o.tx.Hop
	if p := c.way(); p != nil {
		hop.Socket = p.ID
	}
	c.e.layer.Cancel(o.tx, hop, c.e.now, &c.e.out.Output)
}

// cancelElsewhere gives up by the path in use what rings from an INVITE of another, where there
// is one: a CANCEL is known by its branch, not by its source.
func (c *Call) cancelElsewhere() {
	o, e := c.outgoing, c.e
	if !o.rang || o.tx == nil {
		return
	}
	req, remote := transaction.CancelOf(o.tx.Request), o.tx.Hop.Remote
	send := func() {
		e.sendOn(req, transaction.Hop{Socket: e.use.ID, Transport: transaction.UDP, Remote: remote})
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
	o.callID, o.tag, o.seq, o.tried, o.auths = c.e.token(), c.e.token(), 0, nil, 0
	c.withdrawInvite()
	c.invite()
}
