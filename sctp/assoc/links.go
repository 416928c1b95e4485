// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"slices"
	"time"
)

// LinkDown says that the links of local addresses carry nothing any more. All that is in flight from there is sent
// again at once from another address, and the peer is asked to send there (RFC 5061 section 5.4). The association keeps
// the addresses: see LinkUp, and Change.
func (a *Association) LinkDown(locals []netip.Addr, now time.Time, out *Output) {
	a.endpoint.begin()
	news := false
	for _, local := range locals {
		if !a.isDown(local) {
			a.setLink(local, false)
			news = true
		}
	}
	if news && a.alive() {
		a.changes.forgive()
		if a.changes.chunk != nil && a.changes.path.down { // what has gone there is lost
			a.moveChange(now, out)
		}
		// A path in doubt may still be better than one that is down. One that has failed is not asked by until it answers:
		// each timeout of the request would count against the association.
		if p := a.choose(out); !a.served() && p.carries() && !p.down && p.state != Inactive {
			a.leave(p, now, out)
		}
		if !a.windowAt.IsZero() { // what opens the peer's window may have been lost there
			a.ask, a.windowAt = true, time.Time{}
		}
		a.transmit(nil, now, out)
	}
	a.endpoint.settle(a)
}

// LinkUp says that the link of a local address works again. Its paths are asked at once (RFC 9260 section 8.3, D);
// when one answers that or data, the peer is asked to send there again if it has left for that link.
func (a *Association) LinkUp(local netip.Addr, now time.Time, out *Output) {
	a.endpoint.begin()
	a.restore(local, now, out)
	a.endpoint.settle(a)
}

// restore has the paths of an address used again whose link was down, and asks them. A request that had no way out goes by it.
func (a *Association) restore(local netip.Addr, now time.Time, out *Output) {
	if !a.isDown(local) {
		return
	}
	a.setLink(local, true)
	a.changes.forgive()
	for _, p := range a.paths {
		if p.Local == local && a.alive() && p.use == normal {
			a.sendHeartbeat(p, now, out)
		}
	}
	if p := a.changes.path; a.alive() && a.changes.chunk != nil && (p.down || p.Local == local) {
		a.moveChange(now, out)
	}
}

// setLink notes whether the link of a local address works.
func (a *Association) setLink(local netip.Addr, up bool) {
	a.down = slices.DeleteFunc(a.down, func(one netip.Addr) bool { return one == local })
	if !up {
		a.down = append(a.down, local)
	}
	for _, p := range a.paths {
		if p.Local != local {
			continue
		}
		if p.down = !up; p.down {
			a.withdraw(p)
			p.search.at, p.suspicion.at = time.Time{}, time.Time{}
		}
	}
}

// isDown reports whether the link of a local address is down.
func (a *Association) isDown(local netip.Addr) bool { return slices.Contains(a.down, local) }

// asked is the address that the peer was asked to send to last, and has not refused; the zero Addr if it sends where it likes.
func (a *Association) asked() netip.Addr {
	for _, list := range [...][]Change{a.changes.waiting, a.changes.out} {
		for _, c := range slices.Backward(list) {
			if c.Kind == PreferAddress {
				return c.Address
			}
		}
	}
	return a.changes.target
}

// served reports whether the peer was asked to send to an address by which we may send, too.
func (a *Association) served() bool {
	at := a.asked()
	return slices.ContainsFunc(a.paths, func(p *Path) bool { return p.Local == at && p.usable() })
}

// misled reports whether the peer may send to an address whose link is down.
func (a *Association) misled() bool {
	if at := a.asked(); at.IsValid() {
		return a.isDown(at)
	}
	return slices.ContainsFunc(a.paths, func(p *Path) bool { return p.down })
}

// returning reports whether the peer is to be asked to send to the address of a path again, once that has answered.
func (a *Association) returning(p *Path) bool {
	home := a.changes.home
	return p.Local == home && !p.down && a.asked() != home && a.mayPrefer(home)
}

// redirect asks the peer to send to the address of a path that has just answered, if its link is back and the peer left it
// for that; or, in place of an address whose link is down, to the best that there is now.
func (a *Association) redirect(p *Path, now time.Time, out *Output) {
	switch {
	case !a.alive() || !p.usable():
	case a.returning(p):
		a.choose(out) // the way in use until now may be the longer one, and the peer is asked by this
		a.prefer(p.Local, now, out)
	case a.misled():
		a.leave(a.choose(out), now, out)
	}
}

// leave asks the peer to send to the address of a path, until the one to which it is to send is back. If it has refused that
// one, another will do.
func (a *Association) leave(p *Path, now time.Time, out *Output) {
	ch := &a.changes
	if !a.mayPrefer(p.Local) {
		at := slices.IndexFunc(a.paths, func(p *Path) bool { return p.usable() && a.mayPrefer(p.Local) })
		if at < 0 {
			return
		}
		p = a.paths[at]
	}
	if !ch.home.IsValid() {
		ch.home = a.asked()
	}
	if !ch.home.IsValid() {
		ch.home = a.primary.Local
	}
	a.prefer(p.Local, now, out)
}

// prefer asks the peer to send to an address of ours, if it takes that and was asked otherwise.
func (a *Association) prefer(local netip.Addr, now time.Time, out *Output) {
	if a.asked() != local && a.mayPrefer(local) {
		a.enqueue(Change{PreferAddress, local})
		a.hurry(now, out)
		a.nextChange(now, out)
	}
}

// mayPrefer reports whether the peer can be asked to send to an address of ours, and has not refused that.
func (a *Association) mayPrefer(local netip.Addr) bool {
	return a.addresses && !a.changes.unknown[PreferAddress] && !slices.Contains(a.changes.refused, Change{PreferAddress, local})
}
