// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"iter"
	"net/netip"
	"slices"
)

// isTold reports whether a peer at an address hears of one of ours: of those of this host alone and of a link alone only who
// is there.
func isTold(ours, remote netip.Addr) bool {
	return ours.IsLoopback() == remote.IsLoopback() && (!ours.IsLinkLocalUnicast() || reach(ours, remote))
}

// setLocals notes which addresses of ours the peer has been told of, between two by which it was: behind a NAT of none but the
// one that its packets came to (RFC 6951 section 5.7).
func (a *Association) setLocals(local, remote netip.Addr) {
	var told []netip.Addr
	for _, one := range a.locals {
		if one == local || !a.endpoint.config.Hidden && isTold(one, remote) && a.Takes(one) {
			told = Change{AddAddress, one}.apply(told)
		}
	}
	a.locals = Change{AddAddress, local}.apply(told) // which may be a deprecated one
	a.dropUntold()
}

// dropUntold drops the paths from addresses of ours that the peer has not been told of. Those of the peer that no other
// path leads to are kept, see [Association.enlist].
func (a *Association) dropUntold() {
	var left []remote
	a.paths = slices.DeleteFunc(a.paths, func(p *Path) bool {
		untold := !slices.Contains(a.locals, p.Local)
		if untold {
			left = append(left, remote{p.Remote, p.port, p.confirmed})
		}
		return untold
	})
	for _, r := range left {
		if !a.has(r.address) {
			a.apart = append(a.apart, r)
		}
	}
}

// told are the addresses of ours that a peer may have been told of who sends a cookie: ours now, or, if these are not those
// of the INIT ACK, the two that it knows for sure.
func (e *Endpoint) told(in *arrival, c *cookie) []netip.Addr {
	if c.edition == e.edition {
		return e.config.Addresses
	}
	return []netip.Addr{c.local, in.Local}
}

// Takes reports whether the peer can use addresses of the family of one of ours.
func (a *Association) Takes(local netip.Addr) bool {
	return local.Is4() && a.ipv4 || !local.Is4() && a.ipv6
}

// HasRefused reports whether the peer has refused one of our addresses.
func (a *Association) HasRefused(local netip.Addr) bool {
	return slices.Contains(a.changes.refused, Change{AddAddress, local})
}

// Locals are the addresses of ours that the association has, or is to have.
func (a *Association) Locals() []netip.Addr {
	list := slices.Clone(a.locals)
	for _, asked := range [...][]Change{a.changes.out, a.changes.waiting} {
		for _, c := range asked {
			list = c.apply(list)
		}
	}
	return list
}

// apply makes a change in a list of our addresses.
func (c Change) apply(list []netip.Addr) []netip.Addr {
	switch at := slices.Index(list, c.Address); {
	case c.Kind == AddAddress && at < 0:
		return append(list, c.Address)
	case c.Kind == DeleteAddress && at >= 0:
		return slices.Delete(list, at, at+1)
	}
	return list
}

// settleLocal notes what a change has made of our addresses. Of one that is not the association's it forgets the link, unless
// it is asked for again.
func (a *Association) settleLocal(c Change, taken bool) {
	isLast := slices.ContainsFunc(a.paths, func(p *Path) bool { return p.Local == c.Address }) // and so was kept
	if taken && !(c.Kind == DeleteAddress && isLast) {
		a.locals = c.apply(a.locals)
	}
	if !slices.Contains(a.locals, c.Address) && !a.changes.pending(Change{AddAddress, c.Address}) {
		a.setLink(c.Address, true)
	}
}

// remote is an address of the peer: its port of UDP, and whether the peer is known to be there.
type remote struct {
	address   netip.Addr
	port      uint16
	confirmed bool
}

// Remote returns the peer's addresses that ours reach, its port, and the port of UDP that it is reached at, 0 where packets travel in
// IP.
func (a *Association) Remote() (hosts []netip.Addr, port, udp uint16) {
	for _, p := range a.paths {
		if !slices.Contains(hosts, p.Remote) {
			hosts = append(hosts, p.Remote)
		}
	}
	if a.primary != nil {
		udp = a.primary.port
	}
	return hosts, a.peerPort, udp
}

// remotes are the peer's addresses, also those that no address of ours reaches now. There may be equal ones.
func (a *Association) remotes() iter.Seq[remote] {
	return func(yield func(remote) bool) {
		for _, p := range slices.Clone(a.paths) {
			if !yield(remote{p.Remote, p.port, p.confirmed}) {
				return
			}
		}
		for _, r := range a.apart {
			if !yield(r) {
				return
			}
		}
	}
}

// enlist makes the paths to an address that the peer has named in the set-up. One that none of ours reaches is kept: there
// may be one of ours later, and the peer may begin again with it.
func (a *Association) enlist(address netip.Addr, udp uint16) {
	if a.addPaths(address, udp, false); !a.has(address) {
		a.apart = append(a.apart, remote{address, udp, false})
	}
}

// has reports whether an address is one of the peer's.
func (a *Association) has(address netip.Addr) bool {
	return a.hasPathTo(address) || slices.ContainsFunc(a.apart, func(r remote) bool { return r.address == address })
}

// hasPathTo reports whether the peer's address can be reached from one of ours.
func (a *Association) hasPathTo(address netip.Addr) bool {
	return slices.ContainsFunc(a.paths, func(p *Path) bool { return p.Remote == address })
}

// Reaches reports whether packets can go from an address of this host to one of the peer's.
func (a *Association) Reaches(local netip.Addr) bool {
	for r := range a.remotes() {
		if reach(local, r.address) {
			return true
		}
	}
	return false
}
