// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// fromGGSN answers a request of a GGSN. One that was answered gets the same answer again: its
// context may have gone with the first. One about no context gets its answer made anew, so that
// strangers take no place of what is kept.
func (e *Engine) fromGGSN(m *message, now time.Time, out *Output) {
	if !m.HasSequence {
		e.drops[dropMessage]++
		return
	}
	if e.misdeeds.loses() {
		e.drops[dropLost]++
		return
	}
	key := keyOf(m)
	if before, ok := e.answers.find(key, now); ok {
		e.stats.PeerRepeats++
		out.SendUDP(m.socket, m.from, out.Copy(before))
		return
	}
	e.stats.PeerRequests++
	var sent []byte
	switch m.Type {
	case gtp.TypeUpdateRequest:
		sent = e.updateFromGGSN(m, out)
	case gtp.TypeDeleteRequest:
		sent = e.deleteFromGGSN(m, now, out)
	case gtp.TypeInitiateRequest:
		// The terminal would have to be asked; secondary contexts are its own to open.
		sent = e.answer(m, e.about(m, 0), &gtp.InitiateResponse{Cause: gtp.CauseServiceNotSupported}, out)
	case gtp.TypePDUNotificationRequest:
		e.notified(m, out)
	}
	e.answers.keep(key, sent, now.Add(time.Duration(e.set.N3Requests)*e.set.T3Response))
}

// about returns the context that a request of a GGSN is about; with an NSAPI of 0 any of the
// session. Requests of others than its GGSN are about none.
func (e *Engine) about(m *message, nsapi uint8) *PDPContext {
	var c *PDPContext
	if m.Version == gtp.V0 {
		c = e.contexts[m.TID]
		if c != nil && (c.session.version() != gtp.V0 || uint32(m.FlowLabel) != c.session.control) {
			return nil
		}
	} else if s := e.control[m.TEID]; s != nil {
		if c = s.at(nsapi); nsapi == 0 {
			c = s.contexts[0]
		}
	}
	if c == nil || c.session.path.key.peer != m.from.Addr() {
		return nil
	}
	return c
}

// answer answers a request about a context, and returns what is to be kept. With nil there is
// none: the GGSN's tunnel identifier is not known, and nothing is kept.
func (e *Engine) answer(m *message, c *PDPContext, response gtp.Message, out *Output) []byte {
	h := gtp.Header{Version: m.Version, HasSequence: true, Sequence: m.Sequence, TID: m.TID}
	if c == nil {
		e.send(out, m.socket, m.from, h, response)
		return nil
	}
	of := c.session.header(c)
	h.TEID, h.FlowLabel = of.TEID, of.FlowLabel
	return e.send(out, m.socket, m.from, h, response)
}

// notified refuses a context that a GGSN wants a terminal to open (TS 29.060 section 7.3.8): who
// uses the emulator says which ones there are.
func (e *Engine) notified(m *message, out *Output) {
	var asked gtp.PDUNotificationRequest
	response := gtp.PDUNotificationResponse{Cause: gtp.CauseServiceNotSupported}
	if err := e.parse(m, &asked); err != nil {
		response.Cause = causeOf(err)
	}
	h := gtp.Header{Version: m.Version, HasSequence: true, Sequence: m.Sequence, TID: m.TID, TEID: asked.TEIDControl}
	e.send(out, m.socket, m.from, h, &response)
}

// causeOf is the cause that answers a request that cannot be read.
func causeOf(err error) gtp.Cause {
	if r, ok := err.(*gtp.Refusal); ok {
		if cause, ok := r.Cause(); ok {
			return cause
		}
	}
	return gtp.CauseInvalidMessageFormat
}

// updateFromGGSN takes what a GGSN changes about a context (TS 29.060 section 7.3.3): its
// quality, and what the terminal is told. Where our own request is under way, that one wins.
func (e *Engine) updateFromGGSN(m *message, out *Output) []byte {
	var asked gtp.UpdateRequest
	if err := e.parse(m, &asked); err != nil {
		return e.answer(m, e.about(m, 0), &gtp.UpdateResponse{Cause: causeOf(err)}, out)
	}
	c := e.about(m, asked.NSAPI)
	switch {
	case c == nil:
		return e.answer(m, nil, &gtp.UpdateResponse{Cause: gtp.CauseNonExistent}, out)
	case c.state == Updating:
		return e.answer(m, c, &gtp.UpdateResponse{Cause: gtp.CauseCollision}, out)
	case c.state != Open:
		return e.answer(m, c, &gtp.UpdateResponse{Cause: gtp.CauseContextNotFound}, out)
	}
	if asked.QoS.Present {
		c.qos = asked.QoS.Value
	}
	if asked.PCO.Present {
		c.session.given.readAnew(asked.PCO.Value)
	}
	e.tell(c.event(Changed), out)
	return e.answer(m, c, &gtp.UpdateResponse{
		Cause: gtp.CauseAccepted, Recovery: e.recovery(), TEIDData: gtp.Some(c.data), QoS: gtp.Some(c.qos),
	}, out)
}

// deleteFromGGSN ends a context that a GGSN deletes, or with a teardown all of the address (TS
// 29.060 section 7.3.5).
func (e *Engine) deleteFromGGSN(m *message, now time.Time, out *Output) []byte {
	var asked gtp.DeleteRequest
	if err := e.parse(m, &asked); err != nil {
		return e.answer(m, e.about(m, 0), &gtp.DeleteResponse{Cause: causeOf(err)}, out)
	}
	c := e.about(m, asked.NSAPI)
	if c == nil {
		return e.answer(m, nil, &gtp.DeleteResponse{Cause: gtp.CauseNonExistent}, out)
	}
	sent := e.answer(m, c, &gtp.DeleteResponse{Cause: gtp.CauseAccepted}, out)
	ended := []*PDPContext{c}
	if asked.Teardown.Value {
		ended = slices.Clone(c.session.contexts)
	}
	for _, c := range ended {
		e.end(c, ReasonNetwork, asked.Cause.Value, 0, now, out)
	}
	return sent
}
