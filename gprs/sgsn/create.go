// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// firstNSAPI is the lowest that terminals may use (TS 24.008 section 10.5.6.2).
const firstNSAPI = 5

// maxSecondary bounds the contexts of one address: NSAPIs are 5 to 15.
const maxSecondary = 11

// Errors of orders.
var (
	ErrFull      = errors.New("there are as many contexts as there may be: end some, or raise max_contexts")
	ErrKnown     = errors.New("the terminal has a context of this NSAPI: end it, or choose another NSAPI")
	ErrUnknown   = errors.New("there is no such context: see which ones there are (isthmus sgsn contexts)")
	ErrBusy      = errors.New("the context waits for an answer of the GGSN: try again")
	ErrLocal     = errors.New("the SGSN has no such address")
	ErrRequests  = errors.New("no request can be sent now: 65535 wait for their answers, or a field does not fit")
	ErrNoPrefix  = errors.New("the terminal has no delegated prefix that it has asked for itself")
	ErrLinked    = errors.New("it is a secondary context: name its primary one")
	ErrSecondary = errors.New("GTPv0 has no secondary contexts: close them first")
	ErrVersion   = errors.New("GTPv0 has no such procedure")
	ErrRetired   = errors.New("the SGSN ends")
)

// Attach opens a context (TS 29.060 section 7.3.1, TS 09.60 section 7.5.1). What becomes of
// it, an event tells.
func (e *Engine) Attach(a *Attachment, now time.Time, out *Output) (gtp.TID, error) {
	s := &session{wanted: *a, local: a.Local}
	w := &s.wanted
	w.NSAPI = cmp.Or(w.NSAPI, firstNSAPI)
	w.APN = slices.Clone(w.APN)
	if w.QoS.Len() == 0 {
		w.QoS = bestEffort
	}
	if err := e.possible(w); err != nil {
		return gtp.TID{}, err
	}
	switch {
	case len(e.contexts) >= e.set.MaxContexts:
		return gtp.TID{}, ErrFull
	case e.contexts[s.key()] != nil:
		return gtp.TID{}, ErrKnown
	}
	c := e.newContext(s, w.NSAPI)
	s.control = e.tunnelID(w.Version)
	if w.Version == gtp.V1 {
		e.control[s.control] = s
	}
	s.path = e.path(w.Local, controlPlane(w.Version), w.GGSN, now)
	return c.key, e.create(c, now, out)
}

// possible is the error of a context that could not be asked for whoever it is of.
func (e *Engine) possible(a *Attachment) error {
	switch {
	case e.retired:
		return ErrRetired
	case a.Local < 0 || a.Local >= len(e.set.Addresses):
		return ErrLocal
	case a.NSAPI < firstNSAPI || a.NSAPI > 15:
		return fmt.Errorf("an NSAPI is 5 to 15, not %d", a.NSAPI)
	}
	return e.reachable(a)
}

// reachable is the error of a GGSN that our address has no way to.
func (e *Engine) reachable(a *Attachment) error {
	if own := e.set.Addresses[a.Local]; !e.reaches(a.Local, a.GGSN) {
		return fmt.Errorf("the GGSN %s and our address %s are of different families", a.GGSN, own)
	}
	return nil
}

// newContext adds a context to a session.
func (e *Engine) newContext(s *session, nsapi uint8) *PDPContext {
	c := &PDPContext{session: s, key: gtp.MakeTID(s.wanted.IMSI, nsapi), qos: s.wanted.QoS, local: s.local}
	c.data = e.tunnelID(s.version())
	if s.version() == gtp.V1 {
		e.data[c.data] = c
	}
	c.forget.fire = func(time.Time, *Output) { e.forget(c) }
	e.contexts[c.key] = c
	s.contexts = append(s.contexts, c)
	return c
}

// create sends the request for a context.
func (e *Engine) create(c *PDPContext, now time.Time, out *Output) error {
	s := c.session
	w := &s.wanted
	own := e.set.Addresses[s.local]
	m := gtp.CreateRequest{
		Recovery: e.recovery(), TEIDData: c.data, NSAPI: c.key.NSAPI(), AddressControl: own, AddressUser: own, QoS: c.qos,
	}
	m.CommonFlags = gtp.Some(gtp.FlagUpgradeQoS) // what is granted is taken
	h := s.header(c)
	if c.linked {
		m.LinkedNSAPI, m.TFT = gtp.Some(w.NSAPI), gtp.Some(c.tft)
	} else {
		h.TEID, h.FlowLabel = 0, 0
		m.IMSI, m.MSISDN = gtp.Some(w.IMSI), gtp.Some(w.MSISDN)
		m.TEIDControl = gtp.Some(s.control)
		m.SelectionMode, m.RATType = gtp.Some(w.Selection), w.RAT
		m.EndUserAddress, m.APN = gtp.Some(w.endUserAddress()), gtp.Some(w.APN)
		s.given.proof = e.prove(w.Auth)
		m.PCO = gtp.Some(w.appendPCO(e.scratch[:0], &s.given.proof))
		if !w.SingleBearer && w.Type == gtp.PDPTypeIPv4v6 {
			m.CommonFlags.Value |= gtp.FlagDualAddressBearer
		}
	}
	if w.Version == gtp.V0 {
		m.IMSI, m.CommonFlags, m.RATType = gtp.Optional[gtp.IMSI]{}, gtp.Optional[gtp.CommonFlags]{}, gtp.Optional[gtp.RATType]{}
		m.NSAPI = 0
	}
	c.began = now
	if !e.request(s.path, c, h, &m, now, out) {
		e.remove(c)
		return ErrRequests
	}
	return nil
}

// header is that of requests about a context.
func (s *session) header(c *PDPContext) gtp.Header {
	if s.version() == gtp.V0 {
		return gtp.Header{Version: gtp.V0, FlowLabel: uint16(s.remoteControl), TID: c.key}
	}
	return gtp.Header{Version: gtp.V1, TEID: s.remoteControl}
}

// recovery is our restart counter as requests have it.
func (e *Engine) recovery() gtp.Optional[uint8] {
	return gtp.Optional[uint8]{Value: e.set.Recovery, Present: !e.set.NoRecovery}
}

// endUserAddress is what is asked for: by default, that the network chooses.
func (a *Attachment) endUserAddress() gtp.EndUserAddress {
	asked := gtp.EndUserAddress{Type: a.Type}
	if a.Type != gtp.PDPTypeIPv6 {
		asked.IPv4 = a.Static4
	}
	if a.Type != gtp.PDPTypeIPv4 {
		asked.IPv6 = a.Static6
	}
	return asked
}

// created takes the response to a create request.
func (e *Engine) created(r *request, m *message, now time.Time, out *Output) {
	c := r.about
	var answer gtp.CreateResponse
	if e.parse(m, &answer) != nil {
		e.failed(r, ReasonBadAnswer, 0, now, out)
		return
	}
	s := c.session
	if answer.Recovery.Present {
		e.recovered(r.path, answer.Recovery.Value, s, now, out)
	}
	if answer.PCO.Present && !c.linked { // of a refusal, too (TS 29.060 section 7.3.2)
		s.given.read(answer.PCO.Value)
	}
	switch {
	case !answer.Cause.Accepted():
		e.failed(r, ReasonRefused, answer.Cause, now, out)
		return
	case !e.opened(c, &answer, now):
		e.failed(r, ReasonBadAnswer, answer.Cause, now, out)
		return
	}
	e.stats.Created++
	about := c.event(Attached)
	about.Cause, about.Took = answer.Cause, now.Sub(r.began)
	e.tell(about, out)
	if !c.linked && s.kind != gtp.PDPTypeIPv4 && s.wanted.Link != LoadLink {
		e.solicit(s, now, out)
		if s.wanted.Delegate {
			s.six.prefix = new(prefix6)
			e.seek6(s, now, out)
		}
	}
	e.catchUp(c, now, out)
}

// opened takes from a response what a context needs. It reports whether all is there and fits
// what was asked for.
func (e *Engine) opened(c *PDPContext, answer *gtp.CreateResponse, now time.Time) bool {
	s := c.session
	if !e.reaches(s.local, answer.AddressUser.Value) {
		return false
	}
	if !c.linked {
		if !answer.TEIDControl.Present || !answer.EndUserAddress.Present || !s.take(answer.EndUserAddress.Value) {
			return false
		}
		s.remoteControl = answer.TEIDControl.Value
		for _, from := range s.sources() {
			e.sources[from] = s
		}
		e.occupy(s)
		e.signalAt(s, answer.AddressControl.Value, now)
	}
	c.remoteData, c.charging, c.qos = answer.TEIDData.Value, answer.ChargingID.Value, answer.QoS.Value
	c.remoteUser = netip.AddrPortFrom(answer.AddressUser.Value, userPlane(s.version()).Port())
	c.state, s.agreed = Open, now
	if s.version() == gtp.V1 {
		c.path = e.path(s.local, PlaneUser, answer.AddressUser.Value, now)
	}
	return true
}

// reaches reports whether an address that a GGSN names is of the family of one of ours. The other has no way
// there.
func (e *Engine) reaches(local int, ggsn netip.Addr) bool {
	return ggsn.BitLen() == e.set.Addresses[local].BitLen()
}

// signalAt takes the address that the GGSN wants further signalling at.
func (e *Engine) signalAt(s *session, ggsn netip.Addr, now time.Time) {
	if ggsn == s.wanted.GGSN || ggsn.Is4() != s.wanted.GGSN.Is4() || ggsn.IsUnspecified() {
		return
	}
	before := s.path
	s.path = e.path(s.local, controlPlane(s.version()), ggsn, now)
	s.path.recovery = before.recovery
	e.leave(before)
}

// take takes the address that the GGSN has given, which may be of one family where two were
// asked for (causes 129 and 130).
func (s *session) take(a gtp.EndUserAddress) bool {
	asked := s.wanted.Type
	if a.Type != asked && (asked != gtp.PDPTypeIPv4v6 || a.Type != gtp.PDPTypeIPv4 && a.Type != gtp.PDPTypeIPv6) {
		return false
	}
	if a.Type != gtp.PDPTypeIPv6 {
		four, ok := a.Static4()
		if !ok {
			return false
		}
		s.four = four
	}
	if a.Type != gtp.PDPTypeIPv4 {
		six, ok := a.Static6()
		if !ok {
			return false
		}
		s.six.begin(six)
	}
	s.kind = a.Type
	return true
}

// sources are those that packets of the terminal may come from.
func (s *session) sources() (list []source) {
	link := s.wanted.Link
	if s.four.IsValid() {
		list = append(list, source{link, s.four})
	}
	if s.six.linkLocal.IsValid() {
		list = append(list, source{link, s.six.linkLocal})
	}
	for _, p := range s.six.prefixes {
		list = append(list, source{link, network(p.Address)})
	}
	return list
}

// AttachSecondary opens one more context for the address that a context has, with a quality
// and packet filters of its own (TS 23.060 section 9.2.2.1.1). Filters for packets of the
// terminal choose what it sends by it; the GGSN chooses the other way.
func (e *Engine) AttachSecondary(primary gtp.TID, nsapi uint8, tft []byte, qos gtp.QoS, now time.Time, out *Output) (gtp.TID, error) {
	p := e.contexts[primary]
	switch {
	case e.retired:
		return gtp.TID{}, ErrRetired
	case p == nil:
		return gtp.TID{}, ErrUnknown
	case p.session.version() == gtp.V0:
		return gtp.TID{}, ErrVersion
	case p.linked:
		return gtp.TID{}, ErrLinked
	case p.state != Open:
		return gtp.TID{}, ErrBusy
	case len(e.contexts) >= e.set.MaxContexts || len(p.session.contexts) >= maxSecondary:
		return gtp.TID{}, ErrFull
	case nsapi < firstNSAPI || nsapi > 15:
		return gtp.TID{}, fmt.Errorf("an NSAPI is 5 to 15, not %d", nsapi)
	case e.contexts[gtp.MakeTID(p.session.wanted.IMSI, nsapi)] != nil:
		return gtp.TID{}, ErrKnown
	}
	t, cause, ok := gtp.ParseTFT(tft)
	if !ok {
		return gtp.TID{}, fmt.Errorf("the traffic flow template cannot be read: %s", cause)
	}
	c := e.newContext(p.session, nsapi)
	c.linked, c.tft = true, slices.Clone(tft)
	c.filters = filters(t)
	if qos.Len() > 0 {
		c.qos = qos
	}
	return c.key, e.create(c, now, out)
}

// FreeNSAPI is the lowest that a terminal has no context of; 0: it has all.
func (e *Engine) FreeNSAPI(m gtp.IMSI) uint8 {
	for n := uint8(firstNSAPI); n <= 15; n++ {
		if e.contexts[gtp.MakeTID(m, n)] == nil {
			return n
		}
	}
	return 0
}

// fallBack has the context asked for by version 0 when this attempt has ended, if it is to be.
func (e *Engine) fallBack(c *PDPContext, why Reason) {
	s := c.session
	if s.wanted.Fallback && s.version() == gtp.V1 && !c.linked && (why == ReasonVersion || why == ReasonNoAnswer) {
		again := s.wanted
		again.Version = gtp.V0
		s.again = &again
	}
}
