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
	tries   uint16    // that were not answered
	strayed bool      // it has a wildcard for another address than that which it is about
	unknown [3]bool   // kinds that the peer does not know

	target  netip.Addr // to which the peer has agreed to send last
	home    netip.Addr // to which it is to return when the link is back: what the user prefers, or what was left first
	refused []Change   // that it has not taken: additions, and preferences since a link changed last

	wish    netip.Addr // that the peer wants as primary, and that is not confirmed yet
	wished  Pair       // by which it said so
	peer    uint32     // serial of the peer's last one
	answers [][]byte   // the ASCONF-ACKs to that and to those before it that the peer may send again
}

// Errors of changes.
var (
	ErrHidden    = errors.New("behind a NAT an address can be added only if it reaches one of the peer's, and deleted only if one other is left")
	ErrNoChanges = errors.New("the peer does not take changes of addresses")
	ErrLast      = errors.New("an association keeps one address at least")
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
	}
	comes := func(c Change) bool { return c.Kind == AddAddress && a.Reaches(c.Address) }
	mute := func(c Change) bool { return c.Kind == AddAddress && !comes(c) } // nothing goes from there
	if a.endpoint.config.Hidden && (!a.deletesAllButOne(list) || slices.ContainsFunc(list, mute)) {
		return ErrHidden
	}
	stays := func(p *Path) bool { return p.use != deleting && !slices.Contains(list, Change{DeleteAddress, p.Local}) }
	if !slices.ContainsFunc(a.paths, stays) && !slices.ContainsFunc(list, comes) {
		return ErrLast // RFC 5061 section 5.3, F5
	}
	a.endpoint.begin()
	a.enqueue(list...)
	for _, c := range list {
		if a.prepare(c, now); c.Kind == AddAddress {
			a.restore(c.Address, now, out)
		}
	}
	a.hurry(now, out)
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
		if cause == granted && ch.strayed { // the peer may have taken the other one
			if a.isAskedAgain(done[i]) {
				a.enqueue(done[i])
				continue
			}
			cause = chunk.CauseUnresolvableAddress
		}
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
	if c.Kind == AddAddress && cause == granted {
		a.prepare(c, now) // the peer may have one more address by now
	}
	never := c.Kind == AddAddress && cause != granted && !slices.Contains(a.locals, c.Address) // was it the association's
	for _, p := range slices.Clone(a.paths) {
		switch {
		case p.Local != c.Address:
		case c.Kind == AddAddress && p.use == adding && cause == granted:
			p.use = normal
			p.heartbeatAt = now // is it one?
			if a.changes.pending(Change{DeleteAddress, p.Local}) {
				p.use = deleting
			}
		case c.Kind == AddAddress && p.use == adding, never, c.Kind == DeleteAddress && cause == granted:
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
	a.settleLocal(c, cause == granted)
	a.event(out, Event{Kind: kind, Cause: cause, Pair: Pair{Local: c.Address}})
	if at := slices.Index(a.changes.waiting, Change{DeleteAddress, c.Address}); never && at >= 0 {
		deletion := a.changes.waiting[at]
		a.changes.waiting = slices.Delete(a.changes.waiting, at, at+1)
		a.conclude(deletion, granted, now, out) // the peer would refuse it, and all behind
	}
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
		c.refuse(one)
		if c.home == one.Address {
			c.home = c.target
		}
	case one.Kind == AddAddress && taken:
		c.refused = slices.DeleteFunc(c.refused, func(old Change) bool { return old == one })
	case one.Kind == AddAddress:
		c.refuse(one)
	case one.Kind == DeleteAddress && taken:
		for _, address := range [...]*netip.Addr{&c.target, &c.home} {
			if *address == one.Address {
				*address = netip.Addr{}
			}
		}
	}
}

// maxRefused is how many refusals are remembered.
const maxRefused = 2 * maxAddresses

// refuse remembers that the peer has not taken a change.
func (c *changes) refuse(one Change) {
	if slices.Contains(c.refused, one) {
		return
	}
	if len(c.refused) == maxRefused {
		c.refused = slices.Delete(c.refused, 0, 1)
	}
	c.refused = append(c.refused, one)
}

// forgive has the peer asked again to send where it has refused to: the links are not what they were.
func (c *changes) forgive() {
	c.refused = slices.DeleteFunc(c.refused, func(old Change) bool { return old.Kind == PreferAddress })
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
