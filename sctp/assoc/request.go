// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// enqueue has changes wait, but not for what is doubtful unless they are about the same address: each such takes a round trip.
func (a *Association) enqueue(list ...Change) {
	waiting := a.changes.waiting
	at := slices.IndexFunc(waiting, a.isDoubtful)
	isSame := func(w Change) bool {
		return slices.ContainsFunc(list, func(c Change) bool { return c.Address == w.Address })
	}
	if at < 0 || slices.ContainsFunc(waiting, isSame) {
		at = len(waiting)
	}
	a.changes.waiting = slices.Insert(waiting, at, list...)
}

// nextChange sends the next ASCONF if none is out (RFC 5061 section 5.1, A1 to A4).
func (a *Association) nextChange(now time.Time, out *Output) {
	c := &a.changes
	if c.chunk != nil || len(c.waiting) == 0 {
		return
	}
	for most := a.mostRequests(); len(c.waiting) > 0 && len(c.out) < most; {
		one := c.waiting[0]
		if a.isDoubtful(one) {
			if len(c.out) > 0 {
				break
			}
			most = 1
		}
		switch c.waiting = c.waiting[1:]; {
		case !c.takesChange(one):
			a.conclude(one, chunk.CauseUnrecognizedParameters, now, out)
		case a.takesLast(one):
			a.conclude(one, chunk.CauseDeleteLastAddress, now, out)
		default:
			c.out = append(c.out, one)
		}
	}
	if len(c.out) == 0 {
		return
	}
	var requests []byte
	for i, one := range c.out {
		t := [...]chunk.ParameterType{chunk.ParamAddIP, chunk.ParamDeleteIP, chunk.ParamSetPrimary}[one.Kind]
		requests = chunk.AppendRequest(requests, chunk.Request{Type: t, Correlation: uint32(i), Address: a.onWire(one.Address)})
	}
	asconf := chunk.ASCONF{Serial: c.next, Address: a.onWire(a.known()), Requests: requests}
	c.chunk, c.tries, c.strayed = asconf.Append(nil), 0, false
	c.next++
	if c.path = a.destination(); !c.path.usable() || !a.mayAsk(c.path) {
		c.path = a.changePath(nil)
	}
	a.sendChange(now, out)
}

// isDoubtful reports whether the peer may well refuse a change, which goes alone then: the peer would refuse all behind it (RFC
// 5061 section 5.3, F11). So it does an address that it cannot reach, or has refused before.
func (a *Association) isDoubtful(c Change) bool {
	return c.Kind == AddAddress && (!a.Reaches(c.Address) || a.HasRefused(c.Address))
}

// takesLast reports whether a change deletes the last address that the peer has, and the request has none that comes before (RFC
// 5061 section 5.3, F5): what was to come has been refused.
func (a *Association) takesLast(c Change) bool {
	return c.Kind == DeleteAddress && !slices.ContainsFunc(a.changes.out, func(o Change) bool { return o.Kind == AddAddress }) &&
		!slices.ContainsFunc(a.paths, func(p *Path) bool { return p.use == normal && p.Local != c.Address })
}

// mostRequests is how many an ASCONF has at most: as many as fit into a packet (RFC 5061 section 5.1.1, C5), and behind a NAT
// one, since a wildcard stands for one address.
func (a *Association) mostRequests() int {
	const one, fixed = 28, chunk.HeaderSize + 28 // a request, and what is before the first, with addresses of IPv6
	if a.endpoint.config.Hidden {
		return 1
	}
	return max((a.destination().room()-a.authSize()-fixed)/one, 1)
}

// onWire is an address of ours as a chunk has it: behind a NAT, where no one knows it, the one of all zeros (RFC 6951 section
// 5.7). In a request that stands for where the packet comes from, and in a deletion for all but that.
func (a *Association) onWire(address netip.Addr) netip.Addr {
	switch {
	case !a.endpoint.config.Hidden:
		return address.WithZone("")
	case address.Is4():
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// mayAsk reports whether the changes that are out may be asked for by a path. If they name no address it must come from
// the right one; a preference whose link is down may come from any, to which the peer then sends, and so may an addition that
// nobody answers.
func (a *Association) mayAsk(p *Path) bool {
	if !a.endpoint.config.Hidden || len(a.changes.out) == 0 {
		return true
	}
	one := a.changes.out[0]
	isFrom := p.Local == one.Address
	switch one.Kind {
	case DeleteAddress:
		return !isFrom && p.use != adding
	case PreferAddress:
		return isFrom || a.isDown(one.Address)
	}
	return isFrom || p.use != adding && a.changes.tries >= a.triesFromThere()
}

// asksFromThere reports whether what is out adds an address that no one knows, which only a packet from there can: it may reach
// nobody, though the peer is well by other ways.
func (a *Association) asksFromThere() bool {
	return a.endpoint.config.Hidden && len(a.changes.out) > 0 && a.changes.out[0].Kind == AddAddress
}

// triesFromThere is how often such an ASCONF is sent, three times to each of the peer's addresses, but once while something more
// urgent waits. Then it goes by another way, since the peer takes the next one only behind it, and adds no more than the address
// that it comes from, which the peer has.
func (a *Association) triesFromThere() (n uint16) {
	out := a.changes.out[0]
	if slices.ContainsFunc(a.changes.waiting, func(w Change) bool { return a.isUrgent(w, out) }) {
		return 1
	}
	for _, p := range a.paths {
		if p.Local == out.Address {
			n += 3
		}
	}
	return n
}

// isUrgent reports whether a change should not wait for all tries by which an address may be added: where the peer is to send
// does not, and nothing does for an address that it has refused before.
func (a *Association) isUrgent(c, addition Change) bool {
	return c.Kind == PreferAddress || a.isDoubtful(addition) && !a.isDoubtful(c)
}

// hurry has no more tries made by which an address may be added that nobody answers, if something urgent waits behind it.
func (a *Association) hurry(now time.Time, out *Output) {
	c := &a.changes
	if c.chunk != nil && a.asksFromThere() && c.path.Local == c.out[0].Address && c.tries >= a.triesFromThere() {
		a.moveChange(now, out)
	}
}

// isAskedAgain reports whether an addition is to be asked for anew that the peer has not taken since its link went down: the link
// is back.
func (a *Association) isAskedAgain(c Change) bool {
	changed := slices.ContainsFunc(a.changes.waiting, func(w Change) bool { return w.Address == c.Address })
	return !changed && !a.isDown(c.Address) && a.changes.tries < a.triesFromThere()
}

// known is an address of ours that the peer has (RFC 5061 section 5.3.2).
func (a *Association) known() netip.Addr {
	for _, p := range a.paths {
		if p.use != adding {
			return p.Local
		}
	}
	return a.paths[0].Local
}

// changePath is a path for an ASCONF in place of one by which it went: the best of those in use, or one of an
// address that is being added, but none of one that leaves (RFC 5061 section 5.3, F1, F6), or whose link is down.
func (a *Association) changePath(not *Path) *Path {
	best := not
	for _, p := range a.paths {
		leaves := p.use == deleting && !a.changes.pending(Change{AddAddress, p.Local})
		silent := !p.confirmed && !(p.use == adding && a.asksFromThere()) // where it is to come from there may be no other
		if p == not || silent || leaves || p.down || !a.mayAsk(p) {
			continue
		}
		if best == nil || best == not || p.asksBefore(best) {
			best = p
		}
	}
	if best == nil {
		return a.destination()
	}
	return best
}

// asksBefore reports whether an ASCONF goes by a path rather than by another. By one of an address that leaves and is to come
// again it goes only if there is no other: it may ask to delete where it comes from, which the peer refuses.
func (p *Path) asksBefore(other *Path) bool {
	switch {
	case (p.use == deleting) != (other.use == deleting):
		return other.use == deleting
	case p.state != other.state:
		return p.state < other.state
	}
	return p.errors < other.errors
}

// moveChange sends the ASCONF that is out by the best path that there is now.
func (a *Association) moveChange(now time.Time, out *Output) {
	a.changes.path = a.changePath(nil)
	a.sendChange(now, out)
}

// sendChange sends the ASCONF that is out, and starts T4.
func (a *Association) sendChange(now time.Time, out *Output) {
	if a.asksFromThere() && a.changes.path.Local != a.changes.out[0].Address {
		a.changes.strayed = true
	}
	a.sendAlone(a.changes.path, a.changes.chunk, out)
	a.changes.at = now.Add(a.changes.path.rto)
	a.changes.tsn, a.changes.passed, a.changes.again = a.nextTSN, false, false
}

// passChange notes that data is acknowledged which left behind the ASCONF that is out, by the same path: so it should have
// been answered.
func (a *Association) passChange(c *sent, tsn uint32) {
	if ch := &a.changes; ch.chunk != nil && c.path == ch.path && !c.moved && !before(tsn, ch.tsn) {
		ch.passed = true
	}
}

// missChange sends the ASCONF again, once before T4, which waits for RTO.Min, when later data of its path is acknowledged.
// It is the same chunk, which the peer does not do twice (RFC 5061 section 5.2, E2), and its first copy is hardly in
// transit any more (section 5.1.1, C1): if that was just late, one packet was too many. Like the early probe this is no
// part of the RFC.
func (a *Association) missChange(now time.Time, out *Output) {
	ch := &a.changes
	if ch.chunk == nil || !ch.passed || ch.again || !a.par.EarlyProbe {
		return
	}
	a.endpoint.Counters.EarlyChanges++
	a.sendChange(now, out)
	ch.again = true
}

// changeExpired sends it again, by another path if there is one (RFC 5061 section 5.1, B1 to B5). Of an address from where
// nobody was reached yet it says nothing of the peer, if there is another way.
func (a *Association) changeExpired(now time.Time, out *Output) {
	a.changes.at = time.Time{}
	if !a.alive() && a.state != shutdownSent || a.changes.chunk == nil {
		return
	}
	a.changes.tries++
	alone := a.asksFromThere() && !a.changes.strayed && slices.ContainsFunc(a.paths, func(p *Path) bool { return p.carries() && !p.down })
	if a.strike(a.changes.path, !alone, now, out); a.state == closed {
		return
	}
	a.changes.path = a.changePath(a.changes.path)
	a.sendChange(now, out)
}
