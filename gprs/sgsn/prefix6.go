// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// prefix6 is the terminal's client of DHCPv6 for the prefixes of networks behind it (RFC 8415 section 18.2): it
// looks for servers, requests what one offers, and extends that from T1 on by the same, from T2 on by any.
type prefix6 struct {
	asking
	timer   timer         // of the next message; in between of T1
	until   time.Time     // when the exchange has failed; zero: not by time
	longest time.Duration // SOL_MAX_RT; 0: as nobody has said otherwise
	sends   ratelimit.Bucket

	offers        []offer6  // in answer to a Solicit, the best first
	server        []byte    // who is asked, or has delegated
	renew, rebind time.Time // T1 and T2; zero: never
	leases        []Delegated
	released      []Delegated // while they are given back
}

// Delegated is a prefix for networks behind a terminal.
type Delegated struct {
	Prefix netip.Prefix
	// Excluded is what is left out of it, for the link itself (RFC 6603); not valid: nothing.
	Excluded netip.Prefix
	// Preferred and Valid are when these lifetimes end; zero is never.
	Preferred, Valid time.Time
}

// offer6 is what a server would delegate.
type offer6 struct {
	server     []byte
	preference byte
	leases     []Delegated
}

const (
	iaid6       = 1
	maxOffers6  = 4
	solMaxDelay = time.Second // SOL_MAX_DELAY
)

// sends6 bounds how often a terminal sends such messages (RFC 8415 section 14.1).
var sends6 = ratelimit.PerSecond(1, 20)

// prefixWanted are the options that a terminal asks for (RFC 8415 section 18.2.1, RFC 6603 section 5.1).
var prefixWanted = []uint16{link.OptionSolMaxRT, link.OptionExclude}

// seek6 has a terminal look for a server, after a random delay (RFC 8415 section 18.2.1).
func (e *Engine) seek6(s *session, now time.Time, out *Output) {
	d := s.six.prefix
	d.kind, d.server, d.offers = 0, nil, nil
	d.timer.fire = func(now time.Time, out *Output) { e.ask6(s, solicit6, time.Time{}, now, out) }
	e.timers.Set(&d.timer, now.Add(time.Duration(e.random.Uint64()%uint64(solMaxDelay))))
	e.hold6(s, nil, now, out) // section 18.2.10.1
}

// ask6 begins an exchange that fails at a time, if it is not zero.
func (e *Engine) ask6(s *session, x exchange6, until, now time.Time, out *Output) {
	d := s.six.prefix
	e.begin6(&d.asking, x, now)
	d.until = until
	d.timer.fire = func(now time.Time, out *Output) { e.due6(s, now, out) }
	e.due6(s, now, out)
}

// due6 sends the message of an exchange, first or again, or ends what was in vain (RFC 8415 section 15).
func (e *Engine) due6(s *session, now time.Time, out *Output) {
	d := s.six.prefix
	switch {
	case d.kind == solicit6.kind && len(d.offers) > 0:
		e.requestBest(s, now, out)
		return
	case d.times > 0 && d.sent == d.times, !d.until.IsZero() && !now.Before(d.until):
		e.unanswered6(s, now, out)
		return
	}
	if d.kind == solicit6.kind {
		d.most = cmp.Or(d.longest, link.MaxRepeat)
	}
	if d.sends.Allow(sends6, now) {
		e.stats.PrefixRequests++
		e.send6(s, d.message(out.Alloc(packet.MinMTU), s, now), now, out)
	}
	next := now.Add(e.wait6(&d.asking))
	if !d.until.IsZero() && d.until.Before(next) {
		next = d.until
	}
	e.timers.Set(&d.timer, next)
}

// message appends the message of the exchange (RFC 8415 sections 18.2.1, 18.2.2, 18.2.4, 18.2.5 and 18.2.7).
// Times of associations are the server's to say (sections 21.21 and 21.22).
func (d *prefix6) message(b []byte, s *session, now time.Time) []byte {
	server, wanted, named := d.server, prefixWanted, d.leases
	switch d.kind {
	case solicit6.kind, rebind6.kind:
		server = nil
	case request6.kind:
		if len(d.offers) > 0 {
			named = d.offers[0].leases
		}
	case release6.kind:
		wanted, named = nil, d.released
	}
	b = s.append6(b, &d.asking, server, wanted, now)
	ia := append(binary.BigEndian.AppendUint32(nil, iaid6), make([]byte, 8)...)
	for _, one := range named {
		raw := one.Prefix.Addr().As16()
		p := append(append(make([]byte, 8, 32), byte(one.Prefix.Bits())), raw[:]...)
		ia = appendDHCP6(ia, link.OptionPrefix, link.AppendExcluded(p, one.Prefix, one.Excluded))
	}
	b = appendDHCP6(b, link.OptionIAPD, ia)
	packet.FillUDP(b)
	return b
}

// unanswered6 goes on after an exchange that has failed: with the next offer, with any server where the one that
// has delegated says nothing, or from the beginning.
func (e *Engine) unanswered6(s *session, now time.Time, out *Output) {
	d := s.six.prefix
	switch d.kind {
	case request6.kind:
		e.requestNext(s, now, out)
	case release6.kind:
		d.kind, d.released = 0, nil
	case renew6.kind:
		if len(d.leases) > 0 {
			e.ask6(s, rebind6, d.end(), now, out)
			return
		}
		fallthrough
	default:
		e.seek6(s, now, out)
	}
}

// leased takes the answer to a message of the terminal's client. It reports whether the packet was one.
func (e *Engine) leased(s *session, p packet.IPv6, now time.Time, out *Output) bool {
	d := s.six.prefix
	if d == nil {
		return false
	}
	r, mine := e.answered6(s, &d.asking, p)
	if r == nil {
		return mine
	}
	switch {
	case d.kind == release6.kind: // whatever it says (RFC 8415 section 18.2.10.2)
		e.timers.Stop(&d.timer)
		d.kind, d.released = 0, nil
	case r.failed || !r.prefixes.there: // as if it had not come
		e.drops[dropDHCP]++
		return true
	case d.kind == solicit6.kind:
		e.offered(s, r, now, out)
	default:
		e.replied(s, r, now, out)
	}
	e.stats.PrefixReplies++
	return true
}

// offered takes an Advertise with a prefix: those of the first wait compete, unless one is preferred to all; later
// the first is taken (RFC 8415 section 18.2.1).
func (e *Engine) offered(s *session, r *reply6, now time.Time, out *Output) {
	d := s.six.prefix
	o := offer6{bytes.Clone(r.server), r.preference, r.prefixes.delegated(now)}
	if r.prefixes.status != 0 || len(o.leases) == 0 || len(d.offers) == maxOffers6 {
		return
	}
	d.offers = append(d.offers, o)
	slices.SortStableFunc(d.offers, func(a, b offer6) int { return cmp.Compare(b.preference, a.preference) })
	if r.preference == link.MostPreferred || d.sent > 1 {
		e.requestBest(s, now, out)
	}
}

// requestBest requests what the best of the offers has.
func (e *Engine) requestBest(s *session, now time.Time, out *Output) {
	d := s.six.prefix
	d.server = d.offers[0].server
	e.ask6(s, request6, time.Time{}, now, out)
}

// requestNext requests what the next server has offered, if there is one (RFC 8415 section 18.2.2).
func (e *Engine) requestNext(s *session, now time.Time, out *Output) {
	d := s.six.prefix
	if len(d.offers) < 2 {
		e.seek6(s, now, out)
		return
	}
	d.offers = d.offers[1:]
	e.requestBest(s, now, out)
}

// replied takes the Reply to a Request, a Renew or a Rebind (RFC 8415 section 18.2.10.1).
func (e *Engine) replied(s *session, r *reply6, now time.Time, out *Output) {
	d, a := s.six.prefix, &r.prefixes
	requested := d.kind == request6.kind
	switch {
	case a.status == link.StatusNoBinding && !requested:
		d.server, d.offers = bytes.Clone(r.server), nil
		e.ask6(s, request6, time.Time{}, now, out)
		return
	case a.status != 0 && !requested: // it is asked again when that is due
		e.drops[dropDHCP]++
		return
	}
	leases := d.leases
	if a.status == 0 {
		leases = a.update(leases, now)
	}
	if len(leases) == 0 {
		e.requestNext(s, now, out)
		return
	}
	d.kind, d.offers, d.server = 0, nil, bytes.Clone(r.server)
	e.hold6(s, leases, now, out)
	d.renew, d.rebind = a.times(now)
	d.timer.fire = func(now time.Time, out *Output) { e.extend6(s, now, out) }
	e.timers.Set(&d.timer, earlier(d.renew, d.end()))
}

// extend6 asks the server for more time, until others are asked; without a time for that, or where T1 is never,
// a lease ends, and it is begun anew.
func (e *Engine) extend6(s *session, now time.Time, out *Output) {
	d := s.six.prefix
	if d.renew.IsZero() {
		e.seek6(s, now, out)
		return
	}
	e.ask6(s, renew6, earlier(d.rebind, d.end()), now, out)
}

// Undelegate gives back what was delegated to a terminal, which asks for no more (RFC 8415 section 18.2.7).
func (e *Engine) Undelegate(key gtp.TID, now time.Time, out *Output) error {
	c := e.contexts[key]
	switch {
	case c == nil:
		return ErrUnknown
	case c.session.six.prefix == nil || len(c.session.six.prefix.leases) == 0:
		return ErrNoPrefix
	}
	d := c.session.six.prefix
	d.released, d.offers = d.leases, nil
	e.hold6(c.session, nil, now, out)
	e.ask6(c.session, release6, time.Time{}, now, out)
	return nil
}

// hold6 has a terminal have these prefixes from now on.
func (e *Engine) hold6(s *session, leases []Delegated, now time.Time, out *Output) {
	d := s.six.prefix
	before := d.leases
	d.leases = leases
	e.expireLater(s, now)
	if len(leases) > 0 {
		e.routers[s.wanted.Link] = s
	}
	if !slices.EqualFunc(before, leases, func(a, b Delegated) bool { return a.Prefix == b.Prefix && a.Excluded == b.Excluded }) {
		e.tell(s.contexts[0].event(Configured), out)
	}
}

// end is when the last lease ends; zero is never.
func (d *prefix6) end() (last time.Time) {
	for _, one := range d.leases {
		if one.Valid.IsZero() {
			return time.Time{}
		}
		if one.Valid.After(last) {
			last = one.Valid
		}
	}
	return last
}

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// delegated are the leases of an association that have not ended.
func (a *association6) delegated(now time.Time) []Delegated { return a.update(nil, now) }

// update returns leases as the association changes them: what it does not name stays, and what it says has ended
// goes (RFC 8415 section 18.2.10.1).
func (a *association6) update(leases []Delegated, now time.Time) []Delegated {
	leases = slices.Clone(leases)
	for _, l := range a.leases {
		leases = slices.DeleteFunc(leases, func(d Delegated) bool { return d.Prefix == l.prefix })
		if l.valid > 0 && len(leases) < maxDelegated {
			leases = append(leases, Delegated{l.prefix, l.excluded, end(now, l.preferred), end(now, l.valid)})
		}
	}
	return leases
}

// times are T1 and T2; where the server leaves them open, a half and four fifths of the shortest lifetime, the
// preferred ones if there are any (RFC 8415 sections 14.2 and 21.21).
func (a *association6) times(now time.Time) (renew, rebind time.Time) {
	half, most := forever, forever
	for _, l := range a.leases {
		if of := cmp.Or(l.preferred, l.valid); l.valid > 0 && of != forever {
			half, most = min(half, of/2), min(most, of/5*4)
		}
	}
	t2 := cmp.Or(a.rebind, max(a.renew, most))
	return end(now, cmp.Or(a.renew, min(half, t2))), end(now, t2)
}
