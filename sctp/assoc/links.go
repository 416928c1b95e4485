// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
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
		if p := a.choose(out); p.usable() {
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
// when one answers that belongs to the address of the primary path, the peer is asked to send there again.
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

// comeBack asks the peer to send to the address of the primary path again, which has just answered. By that path it
// asks: the one in use until now may be the longer one.
func (a *Association) comeBack(p *Path, now time.Time, out *Output) {
	if back := a.changes.announced; back.IsValid() && p.Local == a.primary.Local && back != p.Local && p.usable() {
		a.choose(out)
		a.announce(p.Local, now, out)
	}
}
