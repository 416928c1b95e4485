// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Update asks for another quality of a context (TS 29.060 section 7.3.3, TS 09.60 section
// 7.5.3); an empty one asks for the same again.
func (e *Engine) Update(key gtp.TID, qos gtp.QoS, now time.Time, out *Output) error {
	c := e.contexts[key]
	switch {
	case c == nil:
		return ErrUnknown
	case c.state != Open:
		return ErrBusy
	}
	if qos.Len() == 0 {
		qos = c.qos
	}
	s := c.session
	if !e.update(c, s.path, s.control, c.data, qos, now, out) {
		return ErrRequests
	}
	return nil
}

// update asks for a quality, and says where the context is: at the address and with the tunnel
// identifiers that it is to have.
func (e *Engine) update(c *PDPContext, by *path, control, data uint32, qos gtp.QoS, now time.Time, out *Output) bool {
	own := e.set.Addresses[by.key.local]
	m := gtp.UpdateRequest{
		Recovery: e.recovery(), NSAPI: c.key.NSAPI(), TEIDData: gtp.Some(data), TEIDControl: gtp.Some(control),
		AddressControl: gtp.Some(own), AddressUser: gtp.Some(own), QoS: gtp.Some(qos),
	}
	if c.session.version() == gtp.V0 {
		m.NSAPI = 0
	} else {
		m.RATType = c.session.wanted.RAT
	}
	if !e.request(by, c, c.session.header(c), &m, now, out) {
		return false
	}
	c.state = Updating
	return true
}

// updated takes the response to an update request.
func (e *Engine) updated(r *request, m *message, now time.Time, out *Output) {
	c := r.about
	var answer gtp.UpdateResponse
	switch {
	case e.parse(m, &answer) != nil:
		e.failed(r, ReasonBadAnswer, 0, now, out)
		return
	case !answer.Cause.Accepted():
		e.failed(r, ReasonRefused, answer.Cause, now, out)
		return
	}
	if answer.Recovery.Present {
		e.recovered(r.path, answer.Recovery.Value, c.session, now, out)
	}
	c.state = Open
	if answer.QoS.Present {
		c.qos = answer.QoS.Value
	}
	if answer.TEIDData.Present {
		c.remoteData = answer.TEIDData.Value
	}
	if answer.AddressUser.Present {
		c.remoteUser = netip.AddrPortFrom(answer.AddressUser.Value, c.session.userPlane().Port())
	}
	if answer.TEIDControl.Present {
		c.session.remoteControl = answer.TEIDControl.Value
	}
	if c.next != 0 {
		e.moved(c, answer.Cause, now.Sub(r.began), now, out)
		return
	}
	about := c.event(Updated)
	about.Cause, about.Took = answer.Cause, now.Sub(r.began)
	e.tell(about, out)
}

// updateFailed leaves a context as it was, unless the GGSN does not have it any more.
func (e *Engine) updateFailed(c *PDPContext, why Reason, cause gtp.Cause, took time.Duration, now time.Time, out *Output) {
	if cause == gtp.CauseNonExistent || cause == gtp.CauseContextNotFound {
		e.end(c, why, cause, took, now, out)
		return
	}
	c.state = Open
	about := c.event(UpdateFailed)
	about.Reason, about.Cause, about.Took = why, cause, took
	if c.next != 0 {
		about.Kind = MoveFailed
		e.stay(c)
	}
	e.tell(about, out)
}
