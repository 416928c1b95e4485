// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// ChangeKind says what becomes of one of our addresses.
type ChangeKind uint8

// Kinds of changes.
const (
	AddAddress    ChangeKind = iota // the association has it, too
	DeleteAddress                   // it has it no more
	PreferAddress                   // the peer is asked to send there
)

// Change is one of our addresses that changes (RFC 5061 section 4.2).
type Change struct {
	Kind    ChangeKind
	Address netip.Addr
}

// changes is what an association keeps of changes, ours and the peer's.
type changes struct {
	next    uint32    // serial of our next one
	waiting []Change  // until the one that is out is answered
	out     []Change  // that are asked for
	chunk   []byte    // the ASCONF that does
	path    *Path     // by which it went last
	at      time.Time // T4
	tsn     uint32    // of the first chunk of data behind it, and
	passed  bool      // such a one was acknowledged by the SACK that is handled
	again   bool      // it was sent again for that
	unknown [3]bool   // kinds that the peer does not know

	target  netip.Addr   // to which the peer has agreed to send last
	home    netip.Addr   // to which it is to return when the link is back: what the user prefers, or what was left first
	refused []netip.Addr // to which it has refused to send since a link changed last

	wish    netip.Addr // that the peer wants as primary, and that is not confirmed yet
	wished  Pair       // by which it said so
	peer    uint32     // serial of the peer's last one
	answers [][]byte   // the ASCONF-ACKs to that and to those before it that the peer may send again
}

// Errors of changes.
var (
	ErrHidden    = errors.New("behind a NAT an address can be deleted only if one other is left")
	ErrNoChanges = errors.New("the peer does not take changes of addresses")
	ErrLast      = errors.New("an association keeps one address at least")
	// ErrUnreachable is that of an address which the peer would refuse, for it has no path there either.
	ErrUnreachable = errors.New("the peer has no address that can be reached from there")
)

// begin takes the first serials: the first TSNs (RFC 5061 section 5.1, A2).
func (c *changes) begin(ours, peers uint32) { *c = changes{next: ours, peer: peers - 1} }

// refuseChanges gives up all changes: the peer does not know what they are (RFC 5061 section 5.1, A9).
func (a *Association) refuseChanges(now time.Time, out *Output) {
	c := &a.changes
	given := slices.Concat(c.out, c.waiting)
	c.unknown = [...]bool{true, true, true}
	c.at, c.out, c.waiting, c.chunk = time.Time{}, nil, nil, nil
	for _, one := range given {
		a.conclude(one, chunk.CauseUnrecognizedChunk, now, out)
	}
}

// takesChange reports whether the peer may know what a change is.
func (c *changes) takesChange(one Change) bool { return !c.unknown[one.Kind] }

// Change tells the peer of changes of our addresses, all at once and in their order.
func (a *Association) Change(list []Change, now time.Time, out *Output) error {
	switch {
	case a.state != established && a.state != shutdownPending && a.state != shutdownReceived:
		return ErrNotOpen
	case !a.addresses || slices.ContainsFunc(list, func(c Change) bool { return !a.changes.takesChange(c) }):
		return ErrNoChanges
	case slices.ContainsFunc(list, func(c Change) bool { return c.Kind == AddAddress && !a.Reaches(c.Address) }):
		return ErrUnreachable
	}
	if a.endpoint.config.Hidden && !a.deletesAllButOne(list) {
		return ErrHidden
	}
	stays := func(p *Path) bool { return p.use != deleting && !slices.Contains(list, Change{DeleteAddress, p.Local}) }
	if !slices.ContainsFunc(a.paths, stays) && !slices.ContainsFunc(list, func(c Change) bool { return c.Kind == AddAddress }) {
		return ErrLast // RFC 5061 section 5.3, F5
	}
	a.endpoint.begin()
	a.changes.waiting = append(a.changes.waiting, list...)
	for _, c := range list {
		if a.prepare(c, now); c.Kind == AddAddress {
			a.restore(c.Address, now, out)
		}
	}
	a.nextChange(now, out)
	a.transmit(nil, now, out)
	a.endpoint.settle(a)
	return nil
}

// deletesAllButOne reports whether each deletion leaves one address: a wildcard deletes all but that.
func (a *Association) deletesAllButOne(list []Change) bool {
	locals := map[netip.Addr]bool{}
	for _, p := range a.paths {
		locals[p.Local] = true
	}
	for _, c := range list {
		switch c.Kind {
		case AddAddress:
			locals[c.Address] = true
		case DeleteAddress:
			if delete(locals, c.Address); len(locals) > 1 {
				return false
			}
		}
	}
	return true
}

// prepare makes the paths of an address that is added, by which only an ASCONF goes until the peer has it, takes those of
// one that is deleted out of use (RFC 5061 section 5.3, F1 and F4), and notes where the user wants the peer to send.
func (a *Association) prepare(c Change, now time.Time) {
	switch c.Kind {
	case AddAddress:
		for r := range a.remotes() {
			pair := Pair{c.Address, r.address}
			if reach(c.Address, r.address) && a.path(pair) == nil {
				if made := a.addPath(pair, r.port, r.confirmed); made != nil {
					made.use = adding
				}
			}
		}
		a.apart = slices.DeleteFunc(a.apart, func(r remote) bool { return a.hasPathTo(r.address) })
	case PreferAddress:
		a.changes.home = c.Address
	case DeleteAddress:
		for _, p := range a.paths {
			if p.Local == c.Address {
				p.use = deleting
				a.withdraw(p)
				a.depose(p)
			}
		}
	}
}

// withdraw takes all data off a path.
func (a *Association) withdraw(p *Path) {
	for i := range a.sent.length {
		if c := a.sent.at(i); c.path == p && c.inFlight() {
			a.mark(c, true)
		}
	}
	p.t3, p.heartbeatAt, p.waitsFor = time.Time{}, time.Time{}, time.Time{}
}

// depose makes another path the primary one.
func (a *Association) depose(p *Path) {
	if a.primary == p {
		a.primary = a.alternate(p)
	}
	if a.current == p {
		a.current = a.primary
	}
}

// nextChange sends the next ASCONF if none is out (RFC 5061 section 5.1, A1 to A4).
func (a *Association) nextChange(now time.Time, out *Output) {
	c := &a.changes
	if c.chunk != nil || len(c.waiting) == 0 {
		return
	}
	for most := a.mostRequests(); len(c.waiting) > 0 && len(c.out) < most; {
		one := c.waiting[0]
		if c.waiting = c.waiting[1:]; c.takesChange(one) {
			c.out = append(c.out, one)
		} else {
			a.conclude(one, chunk.CauseUnrecognizedParameters, now, out)
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
	c.chunk = asconf.Append(nil)
	c.next++
	if c.path = a.destination(); !c.path.usable() || !a.mayAsk(c.path) {
		c.path = a.changePath(nil)
	}
	a.sendChange(now, out)
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
// the right one; a preference whose link is down may come from any, to which the peer then sends.
func (a *Association) mayAsk(p *Path) bool {
	if !a.endpoint.config.Hidden || len(a.changes.out) == 0 {
		return true
	}
	one := a.changes.out[0]
	return (p.Local == one.Address) != (one.Kind == DeleteAddress) || one.Kind == PreferAddress && a.isDown(one.Address)
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
		if p == not || !p.confirmed || leaves || p.down || !a.mayAsk(p) {
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
	if !ch.passed || ch.again || !a.par.EarlyProbe {
		return
	}
	a.endpoint.Counters.EarlyChanges++
	a.sendChange(now, out)
	ch.again = true
}

// changeExpired sends it again, by another path if there is one (RFC 5061 section 5.1, B1 to B5).
func (a *Association) changeExpired(now time.Time, out *Output) {
	a.changes.at = time.Time{}
	if !a.alive() && a.state != shutdownSent || a.changes.chunk == nil {
		return
	}
	if a.strike(a.changes.path, true, now, out); a.state == closed {
		return
	}
	a.changes.path = a.changePath(a.changes.path)
	a.sendChange(now, out)
}

// handleASCONFAck takes the peer's answer (RFC 5061 section 5.1, A5 to A8).
func (a *Association) handleASCONFAck(from *Path, c chunk.Chunk, now time.Time, out *Output) {
	ack, err := chunk.ParseASCONFAck(c.Body)
	ch := &a.changes
	switch {
	case err != nil:
		a.endpoint.Counters.BadChunk++
		return
	case !before(ack.Serial, ch.next): // F0
		a.abort(from, ReasonViolation, chunk.Cause{Code: chunk.CauseIllegalASCONFAck}, out)
		return
	case ch.chunk == nil || ack.Serial != ch.next-1:
		a.endpoint.Counters.BadChange++
		return
	}
	done := ch.out
	ch.chunk, ch.at = nil, time.Time{}
	a.errors = 0
	a.answer(ch.path, out)
	for i, cause := range results(ack.Answers, len(done)) {
		if cause == chunk.CauseUnrecognizedParameters { // section 5.3, F3a and F3b
			a.setUnknown(done[i].Kind)
		}
		ch.out = done[i+1:]
		a.conclude(done[i], cause, now, out)
		if again := (Change{AddAddress, done[i].Address}); done[i].Kind == DeleteAddress && ch.pending(again) {
			a.prepare(again, now)
		}
	}
	ch.out = nil
	a.redirect(ch.path, now, out)
	a.nextChange(now, out)
}

// setUnknown remembers that the peer does not know a kind of change: adding and deleting go together (RFC 5061 section
// 5.3, F3a and F3b).
func (a *Association) setUnknown(kind ChangeKind) {
	a.changes.unknown[kind] = true
	if kind != PreferAddress {
		a.changes.unknown[AddAddress], a.changes.unknown[DeleteAddress] = true, true
	}
}

// granted is the result of a change that the peer has taken.
const granted = chunk.CauseCode(0)

// results is what an answer says of so many requests: none is success, until one has failed (RFC 5061 section 5.1,
// A7 and A8).
func results(answers []byte, n int) []chunk.CauseCode {
	list, said, failed := make([]chunk.CauseCode, n), make([]bool, n), n
	for len(answers) > 0 {
		one, known, rest, err := chunk.NextAnswer(answers)
		if err != nil {
			break
		}
		if i := int(one.Correlation); known && i < n {
			said[i] = true
			if one.Failed {
				cause, _, err := chunk.NextCause(one.Causes)
				if err != nil || cause.Code == 0 {
					cause.Code = chunk.CauseProtocolViolation
				}
				list[i], failed = cause.Code, min(failed, i)
			}
		}
		answers = rest
	}
	for i := failed + 1; i < n; i++ {
		if !said[i] {
			list[i] = list[failed]
		}
	}
	return list
}

// conclude makes a change that the peer has taken our own, or takes it back.
func (a *Association) conclude(c Change, cause chunk.CauseCode, now time.Time, out *Output) {
	for _, p := range slices.Clone(a.paths) {
		switch {
		case p.Local != c.Address:
		case c.Kind == AddAddress && p.use == adding && cause == granted:
			p.use = normal
			p.heartbeatAt = now // is it one?
			if a.changes.pending(Change{DeleteAddress, p.Local}) {
				p.use = deleting
			}
		case c.Kind == AddAddress && p.use == adding, c.Kind == DeleteAddress && cause == granted:
			a.removePath(p)
			if p.use == gone && !a.hasPathTo(p.Remote) {
				a.apart = append(a.apart, remote{p.Remote, p.port, p.confirmed})
			}
		case c.Kind == DeleteAddress && p.use == deleting:
			p.use = normal
			p.heartbeatAt = a.heartbeatTime(p, now)
		}
	}
	kind := ChangeDone
	if cause != granted {
		kind = ChangeRefused
	}
	a.changes.settle(c, cause == granted)
	a.event(out, Event{Kind: kind, Cause: cause, Pair: Pair{Local: c.Address}})
}

// pending reports whether a change is asked for, or will be.
func (c *changes) pending(one Change) bool {
	return slices.Contains(c.waiting, one) || slices.Contains(c.out, one)
}

// settle notes where the peer sends now that it has taken a change or not.
func (c *changes) settle(one Change, taken bool) {
	switch {
	case one.Kind == PreferAddress && taken:
		c.target = one.Address
	case one.Kind == PreferAddress:
		if !slices.Contains(c.refused, one.Address) {
			c.refused = append(c.refused, one.Address)
		}
		if c.home == one.Address {
			c.home = c.target
		}
	case one.Kind == DeleteAddress && taken:
		for _, address := range [...]*netip.Addr{&c.target, &c.home} {
			if *address == one.Address {
				*address = netip.Addr{}
			}
		}
	}
}

// removePath forgets a path, unless it is the last.
func (a *Association) removePath(p *Path) {
	if len(a.paths) == 1 {
		p.use = normal
		return
	}
	p.use = gone
	a.withdraw(p)
	a.depose(p)
	a.trust(p, time.Time{})
	a.paths = slices.DeleteFunc(a.paths, func(one *Path) bool { return one == p })
	if kept := func(one *Path) bool { return one.Local == p.Local }; !slices.ContainsFunc(a.paths, kept) && !a.changes.pending(Change{AddAddress, p.Local}) {
		a.setLink(p.Local, true)
	}
	for _, kept := range []**Path{&a.primary, &a.current, &a.changes.path, &a.sackPath, &a.lastPath} {
		if *kept == p {
			*kept = a.alternate(a.paths[0])
		}
	}
}

// strange reports whether a packet has come to an address that the peer may not know, since it is being deleted or added: an
// ABORT there answers one of ours that was out of the blue, and is not for this association (RFC 5061 section 5.3.1). Such
// an answer may come after the address was deleted, when it is being added again.
func (a *Association) strange(p *Path) bool { return p != nil && p.use != normal }
