// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

// This file alone decides by which path data goes.

// usable is a path that data may be sent by.
func (p *Path) usable() bool { return p.works() && p.carries() }

// carries reports whether anything but heartbeats may go by a path: the peer is known to be there, and our address is
// one that the peer has (RFC 9260 section 5.4, RFC 5061 section 5.3).
func (p *Path) carries() bool { return p.confirmed && p.use == normal }

// works reports whether nothing speaks against a path.
func (p *Path) works() bool { return p.state == Active && !p.suspicion.moved && !p.down }

// rank orders paths by what speaks against them (RFC 7829 section 3.2): nothing, a suspicion, missed answers, a link
// that is down.
func (p *Path) rank() int {
	switch {
	case p.down:
		return int(Inactive) + 2
	case p.works():
		return 0
	}
	return int(p.state) + 1
}

// choose decides by which path new data goes (RFC 9260 section 6.4, RFC 7829 section 3.2): the primary one, or
// if that has failed the best of the others.
func (a *Association) choose(out *Output) *Path {
	p := a.primary
	switch {
	case p.usable():
	case a.current != nil && a.current.usable():
		p = a.current
	default:
		p = a.alternate(p)
	}
	if p != a.current {
		if a.current != nil {
			a.event(out, Event{Kind: PrimaryChanged, Pair: p.Pair})
		}
		a.current = p
	}
	return p
}

// alternate is the path to send by in place of another: an active one if there is one; else one that has
// potentially failed, or an inactive one, in that order, with the fewest errors (RFC 7829 sections 3.2 and 4.1).
// Among equals it is the one that shares least with the other (RFC 9260 section 6.4.1), and by which something has
// come. It may be the same.
func (a *Association) alternate(to *Path) *Path {
	best := to
	for _, p := range a.paths {
		if p.confirmed && p.use == normal && p != to && (best.use != normal || p.better(best, to)) {
			best = p
		}
	}
	return best
}

// better reports whether a path is to be preferred to another in place of a third.
func (p *Path) better(than, to *Path) bool {
	switch {
	case p.rank() != than.rank():
		return p.rank() < than.rank()
	case p.state != Active && p.errors != than.errors:
		return p.errors < than.errors
	case than == to:
		return true
	case p.shares(to) != than.shares(to):
		return p.shares(to) < than.shares(to)
	}
	return p.heard && !than.heard
}

// shares counts what two paths have in common; the peer's address weighs more, for it is where they end.
func (p *Path) shares(with *Path) (n int) {
	if p.Remote == with.Remote {
		n += 2
	}
	if p.Local == with.Local {
		n++
	}
	return n
}

// wayFor is the path by which a marked chunk is sent again: after a timeout another one, else the same (RFC
// 9260 section 6.4).
func (a *Association) wayFor(c *sent) *Path {
	if a.par.EarlyProbe && c.path != a.current && a.current.usable() {
		return a.current // data has left that path since, which may be why the chunk is missing
	}
	if !c.timedOut && c.path.usable() {
		return c.path
	}
	return a.alternate(c.path)
}
