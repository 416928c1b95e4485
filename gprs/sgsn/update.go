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
	version, h := by.key.plane.version(), c.session.header(c)
	switch changes := version != c.session.version(); {
	case version == gtp.V0:
		m.NSAPI = 0
		if changes {
			h = gtp.Header{Version: gtp.V0, TID: c.key}
		}
	case changes:
		h = gtp.Header{Version: gtp.V1}
		m.IMSI = gtp.Some(c.session.wanted.IMSI)
		fallthrough
	default:
		m.RATType, m.CommonFlags = c.session.wanted.RAT, gtp.Some(gtp.FlagUpgradeQoS)
	}
	if !e.request(by, c, h, &m, now, out) {
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
	case c.changesVersion() && !(answer.TEIDData.Present && answer.TEIDControl.Present && answer.AddressUser.Present):
		e.failed(r, ReasonBadAnswer, answer.Cause, now, out)
		return
	case answer.AddressUser.Present && !e.reaches(r.path.key.local, answer.AddressUser.Value):
		e.failed(r, ReasonBadAnswer, answer.Cause, now, out)
		return
	}
	if answer.Recovery.Present {
		e.recovered(r.path, answer.Recovery.Value, c.session, now, out)
	}
	c.state, c.session.agreed = Open, now
	if answer.QoS.Present {
		c.qos = answer.QoS.Value
	}
	if answer.TEIDData.Present {
		c.remoteData = answer.TEIDData.Value
	}
	if answer.AddressUser.Present {
		c.remoteUser = netip.AddrPortFrom(answer.AddressUser.Value, userPlane(r.path.key.plane.version()).Port())
	}
	if answer.TEIDControl.Present {
		c.session.remoteControl = answer.TEIDControl.Value
	}
	if c.next.id != 0 {
		e.moved(c, answer.Cause, now.Sub(r.began), now, out)
		return
	}
	about := c.event(Updated)
	about.Cause, about.Took = answer.Cause, now.Sub(r.began)
	e.tell(about, out)
}

// changesVersion reports whether the context moves to the other version of GTP.
func (c *PDPContext) changesVersion() bool {
	return c.next.id != 0 && c.next.version != c.session.version()
}

// updateFailed leaves a context as it was, unless the GGSN does not have it any more: by the
// other version it may be that it only does not find it.
func (e *Engine) updateFailed(c *PDPContext, why Reason, cause gtp.Cause, took time.Duration, now time.Time, out *Output) {
	if !c.changesVersion() && (cause == gtp.CauseNonExistent || cause == gtp.CauseContextNotFound) {
		e.end(c, why, cause, took, now, out)
		return
	}
	c.state = Open
	if m := c.session.moved; c.next.id != 0 {
		m.fail(why, cause, took)
		e.stay(c)
		e.speak(c.session, m, now, out)
		return
	}
	about := c.event(UpdateFailed)
	about.Reason, about.Cause, about.Took = why, cause, took
	e.tell(about, out)
}
