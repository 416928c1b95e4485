// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// known are the extensions that a request may require.
var known = []string{"100rel", "timer", "replaces", "path", "outbound"}

// request takes a request.
func (e *Engine) request(s *transaction.Server) {
	req := s.Request
	c, begun := e.callOf(req), e.dialogs[dialogKey{callID: req.CallID(), local: toTag(req)}]
	switch {
	case req.Method == "CANCEL":
		e.cancelled(s)
	case e.inspected(s):
	case c != nil && !c.sentByPeer(req), begun != nil && !begun.sentByPeer(req):
		e.stats.Impostors++
		e.refuse(s, 403)
	case c != nil:
		c.reachedBy(s.From)
		c.request(s)
	case toTag(req) == "":
		e.outside(s)
	case begun != nil:
		begun.overtaken(s)
	default:
		e.refuse(s, 481)
	}
}

// overtaken takes a request that has overtaken the answer to an INVITE of ours with Replaces, which
// begins its dialog. By BYE the peer, which has taken the INVITE, hangs up; or it goes on elsewhere, if
// we have given that INVITE up, which a re-INVITE shows.
func (c *Call) overtaken(s *transaction.Server) {
	switch r := &c.repair; {
	case s.Request.Method != "BYE":
		c.e.refuse(s, 500, "Retry-After", "0")
		return
	case r.underWay() && r.tx.Request.CallID() == s.Request.CallID():
		c.end(0, "")
	default:
		c.unsure = true
		c.pursue()
	}
	c.e.refuse(s, 200)
}

// ack takes the ACK of a 2xx.
func (e *Engine) ack(m *message.Message, from transaction.Target) {
	c := e.callOf(m)
	switch {
	case c == nil:
		e.stats.Strays++
		return
	case !c.sentByPeer(m):
		e.stats.Impostors++
		return
	}
	c.reachedBy(from)
	c.acked(m)
}

// callOf finds the call of a request in a dialog, by Call-ID and tags alone.
func (e *Engine) callOf(req *message.Message) *Call {
	to := toTag(req)
	if to == "" {
		return nil
	}
	return e.dialogs[dialogKey{req.CallID(), to, fromTag(req)}]
}

// sentByPeer reports whether a request in a dialog of the call names the call's peer in From, as it must: that
// changes only where both ends speak of from-change (RFC 3261 section 12.2.1.1, RFC 4916 section 4.3), which
// this one does not. A proxy has those prove who they are that name somebody of its own domains; whoever
// knows Call-ID and tags, and no more, could pass it under another name.
func (c *Call) sentByPeer(req *message.Message) bool {
	from, _ := req.From()
	return sameUser(from.URI, c.remote())
}

// inspected refuses a request by what section 8.2 has a server look at first.
func (e *Engine) inspected(s *transaction.Server) bool {
	req := s.Request
	u, _ := message.ParseURI(req.URI)
	unknown := req.Unsupported("Require", known...)
	switch {
	case slices.Contains(strings.Split(allowed, ", "), req.Method):
	case message.IsMethod(req.Method):
		e.refuse(s, 405, "Allow", allowed)
		return true
	default:
		e.refuse(s, 501, "Allow", allowed)
		return true
	}
	switch {
	case !u.IsSIP():
		e.refuse(s, 416)
	case len(unknown) > 0: // section 8.2.2.3
		e.refuse(s, 420, "Unsupported", strings.Join(unknown, ", "))
	case len(req.Body) > 0 && !isSDP(req) && req.Method != "BYE":
		e.refuse(s, 415, "Accept", sdpType)
	case req.Method == "INVITE" && !takesSDP(req):
		e.refuse(s, 406)
	default:
		return false
	}
	return true
}

// takesSDP reports whether the sender of a request reads what its answer would have for a body
// (section 20.1).
func takesSDP(req *message.Message) bool {
	return !req.Has("Accept") || slices.ContainsFunc(req.Tokens("Accept"), func(one string) bool {
		kind, _ := message.Parameters(one)
		return slices.Contains([]string{sdpType, "application/*", "*/*"}, strings.ToLower(kind))
	})
}

// outside takes a request outside any dialog.
func (e *Engine) outside(s *transaction.Server) {
	switch s.Request.Method {
	case "INVITE":
		if e.merged(s) {
			e.refuse(s, 482)
			return
		}
		e.incomingCall(s)
	case "OPTIONS":
		e.refuse(s, 200, "Allow", allowed, "Supported", supported, "Accept", sdpType)
	default: // of a dialog, by its nature
		e.refuse(s, 481)
	}
}

// merged reports whether an INVITE is one that has come already by another way
// (section 8.2.2.2).
func (e *Engine) merged(s *transaction.Server) bool {
	for _, c := range e.calls {
		if a := c.incoming; a != nil && a.tx != s && a.tx.Request.CallID() == s.Request.CallID() &&
			number(a.tx.Request) == number(s.Request) && c.dialog.dialogKey.remote == fromTag(s.Request) {
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
	if of.Answered() {
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
	if !d.accepts(number(req)) {
		e.refuse(s, 500) // section 12.2.2
		return
	}
	switch {
	case d != c.former:
	case req.Method == "BYE":
		c.byeInFormer(s)
		return
	case c.sure: // so this is late
		e.refuse(s, 481)
		return
	}
	c.heardIn(d)
	d.learn(req)
	switch req.Method {
	case "INVITE":
		c.reinvited(s, d)
	case "BYE":
		c.byeReceived(s, d)
	case "UPDATE":
		c.updated(s, d)
	case "PRACK":
		c.prack(s)
	case "OPTIONS":
		e.refuse(s, 200, "Allow", allowed, "Supported", supported, "Accept", sdpType)
	}
}

// dialogFor is the dialog of the call that a request is in.
func (c *Call) dialogFor(req *message.Message) *dialog {
	key := dialogKey{req.CallID(), toTag(req), fromTag(req)}
	for _, d := range append(slices.Clone(c.early), c.dialog, c.former) {
		if d != nil && d.dialogKey == key {
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
	case c.goBack(true): // whether the peer has ended the call or that dialog shows in the other one
		c.pursue()
		return
	}
	c.end(0, "")
}

// retryAfter is a random wait for a peer that asks too early (section 14.2).
func (e *Engine) retryAfter() string { return strconv.Itoa(int(e.random.Uint64() % 11)) }
