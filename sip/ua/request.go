// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"slices"
	"strconv"

	"github.com/emiago/sipgo/sip"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// known are the extensions that a request may require.
var known = []string{"100rel", "timer", "replaces", "path", "outbound"}

// request takes a request.
func (e *Engine) request(req *sip.Request, hop transaction.Hop) {
	s, verdict := e.layer.HandleRequest(req, hop, e.now, &e.out.Output)
	c := e.callOf(req)
	switch {
	case verdict == transaction.Ack:
		if c != nil {
			c.reachedBy(hop)
			c.acked(req)
			return
		}
		e.stats.Strays++
	case verdict != transaction.Started:
	case req.Method == sip.CANCEL:
		e.cancelled(s)
	case e.inspected(s):
	case c != nil:
		c.reachedBy(hop)
		c.request(s)
	case tagOf(req.To().Params) != "":
		e.refuse(s, 481)
	default:
		e.outside(s)
	}
}

// callOf finds the call of a request in a dialog, by Call-ID and tags alone.
func (e *Engine) callOf(req *sip.Request) *Call {
	to := tagOf(req.To().Params)
	if to == "" {
		return nil
	}
	return e.dialogs[dialogKey{string(*req.CallID()), to, tagOf(req.From().Params)}]
}

// inspected refuses a request by what section 8.2 has a server look at first.
func (e *Engine) inspected(s *transaction.Server) bool {
	req := s.Request
	switch {
	case req.SipVersion != "SIP/2.0":
		e.refuse(s, 505)
	case req.Recipient.Scheme != "sip" && req.Recipient.Scheme != "sips":
		e.refuse(s, 416)
	case e.unsupported(s):
	case len(req.Body()) > 0 && !isSDP(req) && req.Method != sip.BYE:
		e.refuse(s, 415, "Accept", sdpType)
	default:
		return false
	}
	return true
}

func isSDP(m *sip.Request) bool {
	t := m.ContentType()
	return t != nil && mediaType(string(*t)) == sdpType
}

// unsupported refuses a request that requires what we cannot do (section 8.2.2.3).
func (e *Engine) unsupported(s *transaction.Server) bool {
	var unknown string
	for _, tag := range tokens(s.Request, "Require") {
		if !slices.Contains(known, tag) {
			if unknown != "" {
				unknown += ", "
			}
			unknown += tag
		}
	}
	if unknown == "" {
		return false
	}
	e.refuse(s, 420, "Unsupported", unknown)
	return true
}

// outside takes a request outside any dialog.
func (e *Engine) outside(s *transaction.Server) {
	switch s.Request.Method {
	case sip.INVITE:
		if e.merged(s) {
			e.refuse(s, 482)
			return
		}
		e.incomingCall(s)
	case sip.OPTIONS:
		e.refuse(s, 200, "Allow", allowed, "Supported", supported, "Accept", sdpType)
	default:
		e.refuseMethod(s)
	}
}

// refuseMethod refuses what we cannot do, or do in no such place.
func (e *Engine) refuseMethod(s *transaction.Server) {
	switch m := s.Request.Method; m {
	case sip.BYE, sip.PRACK, sip.UPDATE:
		e.refuse(s, 481)
	case sip.REGISTER, sip.SUBSCRIBE, sip.NOTIFY, sip.REFER, sip.INFO, sip.MESSAGE, sip.PUBLISH:
		e.refuse(s, 405, "Allow", allowed)
	default:
		e.refuse(s, 501, "Allow", allowed)
	}
}

// merged reports whether an INVITE is one that has come already by another way
// (section 8.2.2.2).
func (e *Engine) merged(s *transaction.Server) bool {
	for _, c := range e.calls {
		if a := c.incoming; a != nil && a.tx != s && *a.tx.Request.CallID() == *s.Request.CallID() &&
			a.tx.Request.CSeq().SeqNo == s.Request.CSeq().SeqNo && c.dialog.dialogKey.remote == tagOf(s.Request.From().Params) {
			return true
		}
	}
	return false
}

// cancelled takes a CANCEL.
func (e *Engine) cancelled(s *transaction.Server) {
	of := e.layer.Cancelled(s.Request)
	if of == nil {
		e.refuse(s, 481)
		return
	}
	e.refuse(s, 200)
	if !of.Waiting() {
		return
	}
	for _, c := range e.calls {
		if c.incoming != nil && c.incoming.tx == of {
			c.refuseIncoming(487)
			return
		}
	}
}

// request takes a request in a dialog of the call.
func (c *Call) request(s *transaction.Server) {
	e, req := c.e, s.Request
	d := c.dialogFor(req)
	if d == nil {
		e.refuse(s, 481)
		return
	}
	if !d.accepts(req.CSeq().SeqNo) {
		e.refuse(s, 500) // section 12.2.2
		return
	}
	d.learn(req)
	switch req.Method {
	case sip.INVITE:
		c.reinvited(s, d)
	case sip.BYE:
		c.byeReceived(s, d)
	case sip.UPDATE:
		c.updated(s, d)
	case sip.PRACK:
		c.prack(s)
	case sip.OPTIONS:
		e.refuse(s, 200, "Allow", allowed, "Supported", supported, "Accept", sdpType)
	default:
		e.refuseMethod(s)
	}
}

// dialogFor is the dialog of the call that a request is in.
func (c *Call) dialogFor(req *sip.Request) *dialog {
	key := dialogKey{string(*req.CallID()), tagOf(req.To().Params), tagOf(req.From().Params)}
	if c.dialog != nil && c.dialog.dialogKey == key {
		return c.dialog
	}
	for _, d := range c.early {
		if d.dialogKey == key {
			return d
		}
	}
	return nil
}

// byeReceived takes a BYE. What the peer asks in the same dialog is over as well
// (section 15.1.2).
func (c *Call) byeReceived(s *transaction.Server, d *dialog) {
	c.e.refuse(s, 200)
	switch {
	case c.repair.underWay():
		// The peer takes our INVITE with Replaces, and ends the dialog that it replaces
		// (RFC 3891 section 3): its BYE has overtaken its answer.
		c.drop(d)
		c.repair.oldGone = true
		return
	case c.state == Alerting:
		c.refuseIncoming(487)
		return
	case c.state == Calling:
		c.drop(d)
		return
	}
	c.end(0, "")
}

// malformed counts what has a fault, and answers it if the fault has a status.
func (e *Engine) malformed(m *message.Message, f *message.Fault, hop transaction.Hop) {
	e.stats.Malformed++
	if m == nil {
		return
	}
	m.Receive(hop.Remote)
	reply, ok := message.ReplyFault(m, f, e.token())
	if !ok {
		return
	}
	if !hop.Transport.Reliable() {
		hop.Remote = m.ReplyTo(hop.Remote)
	}
	e.out.Send(hop, reply.Append(nil))
}

// strayResponse counts a response that no request waits for. A 2xx to an INVITE among them is
// one whose transaction is over: its sender will end the call for want of an ACK.
func (e *Engine) strayResponse(*sip.Response) { e.stats.Strays++ }

// retryAfter is a random wait for a peer that asks too early (section 14.2).
func (e *Engine) retryAfter() string { return strconv.Itoa(int(e.random.Uint64() % 11)) }
