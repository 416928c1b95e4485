// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// begin starts the qualification procedure with the server in use, as far as
// there is all that it needs. The cone phase is skipped (RFC 5991 section 3.2).
func (c *Client) begin(now time.Time, out *Out) {
	switch {
	case !c.running:
	case c.native && !c.cfg.Standby:
		c.idle(Dormant)
	case len(c.servers) == 0 || !c.local.IsValid():
		c.idle(Initial)
	default:
		c.idle(Starting)
		c.solicit(&c.primary, c.server().Primary, now, out)
		if len(c.servers) > 1 {
			c.hasten(now)
		}
	}
}

// idle enters a state with no exchange under way.
func (c *Client) idle(s State) {
	c.state = s
	c.primary.active, c.secondary.active, c.scout.active = false, false, false
}

// handleAdvertisement takes a router advertisement.
func (c *Client) handleAdvertisement(from netip.AddrPort, p *teredo.Packet, now time.Time, out *Out) {
	s, prefix := c.advertisement(from, p, &c.primary, &c.secondary, &c.scout.solicitation)
	if s == nil {
		return
	}
	if refuses(p) {
		c.receiveRefusal(s, p, now, out)
		return
	}
	c.stats.Advertisements++
	switch s {
	case &c.scout.solicitation:
		c.measure(s, now)
		c.scouted(prefix, p.Origin, now, out)
	case &c.primary:
		c.authenticated = c.credential.key != nil
		c.measure(s, now)
		c.qualify(prefix, p.Origin, now, out)
	default:
		c.compare(p.Origin, out)
	}
}

// qualify takes the mapping that the primary address sees: the address is usable
// from now on. RFC 4380 section 5.2.1 waits for the secondary address before;
// since RFC 6081 section 3.1 keeps this mapping whatever the second answer says,
// waiting would gain nothing.
func (c *Client) qualify(prefix netip.Prefix, mapping netip.AddrPort, now time.Time, out *Out) {
	asked, troubled, since := c.primary.confirm || c.primary.timely() > 1, c.troubled(), c.doubtAt(now)
	c.primary.active = false
	c.backoff, c.refused = 0, false
	c.heardServer(now)
	q := qualification{server: c.server().Primary, prefix: prefix, mapping: mapping, address: c.last.address}
	if c.last != q {
		q.address = c.makeAddress(q)
	} else if c.state == Qualified {
		if c.nat.PortPreserved != kindOfNAT(c.local, mapping).PortPreserved {
			c.examineNAT(now, out)
		}
		c.why = 0
		if c.primary.confirm {
			out.Events = append(out.Events, Event{Kind: Confirmed, Address: q.address, Mapping: mapping, Server: q.server})
		}
		if asked && (troubled || now.Sub(c.reopening.last) >= reopenPause) {
			c.stillOurs(since, now, out)
		}
		return
	}
	same := c.last == q
	e := Event{Kind: GotAddress, Address: q.address, Mapping: mapping, Server: q.server, MTU: teredo.MTU}
	if c.state == Qualified {
		e.Kind, e.Old, e.Cause = AddressChanged, c.last.address, CauseMappingChanged
		if c.why != 0 {
			e.Cause = c.why
		}
		c.resetInterval(out)
		c.forgetPeers()
	}
	c.beginWatch(now)
	c.state = Qualified
	c.last, c.own = q, q.address.As16()
	c.link = teredo.LinkLocal(teredo.FlagCone, netip.AddrPortFrom(q.server, teredo.Port))
	out.Events = append(out.Events, e)
	c.examineNAT(now, out)
	c.bindOwn(now, out)
	c.regained(same, now, out)
	c.discover(now, out)
	c.startSearch(now, out)
}

// makeAddress puts the address of a qualification together, with 12 new random
// bits (RFC 5991 section 3.1) and the cone bit clear.
func (c *Client) makeAddress(q qualification) netip.Addr {
	c.fill(c.scratch[:2])
	flags := teredo.Flags(uint16(c.scratch[0])<<8|uint16(c.scratch[1])) & teredo.FlagsRandom
	return teredo.Addr{Prefix: q.prefix, Server: q.server, Flags: flags, Mapped: q.mapping}.IP()
}

// examineNAT begins the comparison with the secondary address, behind the
// qualification.
func (c *Client) examineNAT(now time.Time, out *Out) {
	c.nat = kindOfNAT(c.local, c.last.mapping)
	c.withdrawAll() // the way to peers may be another, see toward
	c.secondary.active, c.comparison = false, comparison{}
	if second := c.server().Secondary; second.IsValid() && c.nat.Mapping != NoNAT {
		c.solicit(&c.secondary, second, now, out)
		return
	}
	c.tellNAT(out)
}

// comparison is when the secondary address is asked again that did not answer. As long as
// the kind of NAT is unknown, what a symmetric one needs is not done (RFC 6081 section 5.3),
// and a few lost packets must not decide that for as long as the address holds.
type comparison struct {
	pause time.Duration
	at    time.Time // zero: never
}

// postpone gives the comparison up for now. A missing secondary is no fault: the kind of
// NAT stays unknown meanwhile.
func (c *Client) postpone(now time.Time, out *Out) {
	c.secondary.active = false
	p := &c.comparison
	if p.pause == 0 {
		c.tellNAT(out)
	}
	p.pause = min(max(2*p.pause, firstComparison), lastComparison)
	p.at = now.Add(c.share(p.pause))
}

// tickComparison asks the secondary address again when that is due.
func (c *Client) tickComparison(now time.Time, out *Out) {
	if at := c.nextComparison(); !at.IsZero() && !now.Before(at) {
		c.comparison.at = time.Time{}
		c.solicit(&c.secondary, c.server().Secondary, now, out)
	}
}

// nextComparison is when tickComparison has something to do; zero is never.
func (c *Client) nextComparison() time.Time {
	if c.state != Qualified || !c.server().Secondary.IsValid() {
		return time.Time{}
	}
	return c.comparison.at
}

// compare takes the mapping that the secondary address sees.
func (c *Client) compare(mapping netip.AddrPort, out *Out) {
	c.secondary.active, c.comparison = false, comparison{}
	c.withdrawAll()
	c.nat.Mapping = EndpointDependent
	if mapping == c.last.mapping {
		c.nat.Mapping = EndpointIndependent
	}
	c.tellNAT(out)
}

func (c *Client) tellNAT(out *Out) {
	out.Events = append(out.Events, Event{Kind: NATDetermined, NAT: c.nat})
}

// tickQualification repeats solicitations and gives up on silent servers.
func (c *Client) tickQualification(now time.Time, out *Out) {
	if c.waiting() && !now.Before(c.retryAt) {
		c.begin(now, out)
	}
	if s := &c.primary; s.active && !now.Before(s.due) {
		if s.hurried || s.timely() < s.quick+c.cfg.Attempts {
			if !s.hurried && s.timely() == s.quick && s.quick > 0 {
				out.Events = append(out.Events, Event{Kind: Doubted, Server: c.server().Primary})
			}
			c.resolicit(s, now, out)
		} else {
			c.serverFailed(now, out)
		}
	}
	if s := &c.secondary; s.active && !now.Before(s.due) {
		if s.sent < c.cfg.Attempts {
			c.resolicit(s, now, out)
		} else {
			c.postpone(now, out)
		}
	}
	c.tickComparison(now, out)
	c.maintain(now, out)
	c.tickWatch(now, out)
}

// serverFailed goes on to the next server when one is silent or refuses our key,
// and waits behind the last.
func (c *Client) serverFailed(now time.Time, out *Out) {
	kind, cause := ServerSilent, CauseServerSilent
	if c.primary.refused {
		kind, cause, c.refused = ServerRefused, CauseKeyRefused, true
	}
	out.Events = append(out.Events, Event{Kind: kind, Server: c.server().Primary})
	c.lose(cause, now, out)
	if c.current++; c.current < len(c.servers) {
		c.begin(now, out)
		return
	}
	c.current = 0
	c.idle(OffLine)
	if c.refused {
		c.idle(Refused)
		c.refused = false
	}
	c.backoff = min(max(2*c.backoff, firstBackoff), lastBackoff)
	wait := c.share(c.backoff)
	c.retryAt = now.Add(wait)
	out.Events = append(out.Events, Event{Kind: WentOffLine, Wait: wait})
}

// waiting reports whether the client waits to try its servers again.
func (c *Client) waiting() bool { return c.state == OffLine || c.state == Refused }

// lose gives the address up, if there is one.
func (c *Client) lose(cause Cause, now time.Time, out *Out) {
	if c.state != Qualified {
		return
	}
	c.keepOpenings(now)
	c.idle(Initial)
	c.resetInterval(out)
	c.forgetPeers()
	out.Events = append(out.Events, Event{Kind: AddressLost, Old: c.last.address, Cause: cause})
}

// nextQualification is when tickQualification has something to do next.
func (c *Client) nextQualification() (next time.Time) {
	if c.waiting() {
		next = c.retryAt
	}
	if c.primary.active {
		next = earlier(next, c.primary.due)
	}
	if c.secondary.active {
		next = earlier(next, c.secondary.due)
	}
	if c.state == Qualified && !c.primary.active {
		next = earlier(next, c.refreshAt())
	}
	return earlier(earlier(next, c.nextComparison()), c.nextWatch())
}
