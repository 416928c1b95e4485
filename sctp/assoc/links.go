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
		if p := a.choose(out); !p.down { // if it is in doubt it may still be better than one that is down
			a.announce(p.Local, now, out)
		}
		if !a.windowAt.IsZero() { // what opens the peer's window may have been lost there
			a.ask, a.windowAt = true, time.Time{}
		}
		a.transmit(nil, now, out)
	}
	a.endpoint.settle(a)
}

// LinkUp says that the link of a local address works again. Its paths are asked at once (RFC 9260 section 8.3, D);
// when one answers that or data, and belongs to the address of the primary path, the peer is asked to send there again.
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

// announce asks the peer to send to an address of ours, if it takes changes of addresses and was asked otherwise.
func (a *Association) announce(local netip.Addr, now time.Time, out *Output) {
	if a.changes.announced == local || !a.addresses || a.changes.unknown[PreferAddress] {
		return
	}
	a.changes.announced = local
	a.changes.waiting = append(a.changes.waiting, Change{PreferAddress, local})
	a.nextChange(now, out)
}

// returning reports whether the peer is to be asked to send to the address of a path again, once that has answered: it is
// that of the primary path, and the peer was asked to send elsewhere.
func (a *Association) returning(p *Path) bool {
	at := a.changes.announced
	return at.IsValid() && at != p.Local && p.Local == a.primary.Local && !p.down
}

// redirect asks the peer to send to the address of a path that has just answered, if it is the primary path, which is back,
// or in place of an address whose link is down, when there was no other. By that path it asks: the one in use until now may
// be the longer one.
func (a *Association) redirect(p *Path, now time.Time, out *Output) {
	if a.alive() && p.usable() && (a.returning(p) || a.misled()) {
		a.choose(out)
		a.announce(p.Local, now, out)
	}
}

// misled reports whether the peer may send to an address whose link is down: none was there to ask for in its place.
func (a *Association) misled() bool {
	at := a.changes.announced
	if !at.IsValid() {
		at = a.primary.Local
	}
	return !slices.ContainsFunc(a.paths, func(p *Path) bool { return p.Local == at && !p.down })
}
