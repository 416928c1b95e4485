// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"slices"
	"time"
)

// LinkDown says that the link of a local address carries nothing any more. All that is in flight from there is sent
// again at once from another address, and the peer is asked to send there (RFC 5061 section 5.4). The association keeps
// the address: see LinkUp, and Change.
func (a *Association) LinkDown(local netip.Addr, now time.Time, out *Output) {
	a.endpoint.begin()
	for _, p := range a.paths {
		if p.Local == local && !p.down {
			p.down = true
			a.withdraw(p)
			p.search.at, p.suspicion.at = time.Time{}, time.Time{}
		}
	}
	if a.alive() {
		if ch := &a.changes; ch.chunk != nil && ch.path.down { // what has gone there is lost
			ch.path = a.changePath(ch.path)
			a.sendChange(now, out)
		}
		if p := a.choose(out); p.carries() && !p.down && p.state != Inactive && !a.serves() {
			a.leave(p, now, out) // if it is in doubt it may still be better than one that is down
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
	for _, p := range a.paths {
		if p.Local != local || !p.down {
			continue
		}
		p.down = false
		if a.alive() && p.use == normal {
			a.sendHeartbeat(p, now, out)
		}
	}
	a.endpoint.settle(a)
}

// preferred is the address that the peer was asked to send to last, or ours of the primary path.
func (a *Association) preferred() netip.Addr {
	if at := a.changes.preferred; at.IsValid() {
		return at
	}
	return a.primary.Local
}

// serves reports whether the peer is known to send to an address that works.
func (a *Association) serves() bool {
	at := a.changes.preferred
	return slices.ContainsFunc(a.paths, func(p *Path) bool { return p.Local == at && p.usable() })
}

// misled reports whether the peer may send to an address whose link is down: none was there to ask for in its place.
func (a *Association) misled() bool {
	at, down := a.preferred(), false
	for _, p := range a.paths {
		if p.Local == at && !p.down {
			return false
		}
		down = down || p.Local == at
	}
	return down
}

// leave asks the peer to send to the address of a path, until the link of the one to which it sends now is back.
func (a *Association) leave(p *Path, now time.Time, out *Output) {
	if ch := &a.changes; a.misled() && !ch.left.IsValid() {
		ch.left = a.preferred()
	}
	a.announce(p.Local, now, out)
}

// returning reports whether the peer is to be asked to send to the address of a path again, once that has answered.
func (a *Association) returning(p *Path) bool {
	return p.Local == a.changes.left && !p.down && a.takesPreference()
}

// redirect asks the peer to send to the address of a path that has just answered, if its link is back and the peer left it
// for that; or, in place of an address whose link is down, to the best that there is now.
func (a *Association) redirect(p *Path, now time.Time, out *Output) {
	switch {
	case !a.alive() || !p.usable():
	case a.returning(p):
		a.changes.left = netip.Addr{}
		a.choose(out) // the way in use until now may be the longer one, and the peer is asked by this
		a.announce(p.Local, now, out)
	case a.misled():
		a.leave(a.choose(out), now, out)
	}
}

// takesPreference reports whether the peer can be asked where to send.
func (a *Association) takesPreference() bool { return a.addresses && !a.changes.unknown[PreferAddress] }

// announce asks the peer to send to an address of ours, if it takes that and was asked otherwise.
func (a *Association) announce(local netip.Addr, now time.Time, out *Output) {
	if a.changes.preferred == local || !a.takesPreference() {
		return
	}
	a.changes.preferred = local
	a.changes.waiting = append(a.changes.waiting, Change{PreferAddress, local})
	a.nextChange(now, out)
}
