// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"iter"
	"net/netip"
	"slices"
)

// remote is an address of the peer: its port of UDP, and whether the peer is known to be there.
type remote struct {
	address   netip.Addr
	port      uint16
	confirmed bool
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

// has reports whether an address is one of the peer's.
func (a *Association) has(address netip.Addr) bool {
	return a.hasPathTo(address) || slices.ContainsFunc(a.apart, func(r remote) bool { return r.address == address })
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

// Locals are the addresses of ours that the association has, or is to have.
func (a *Association) Locals() (list []netip.Addr) {
	for _, p := range a.paths {
		if p.use != deleting && !slices.Contains(list, p.Local) {
			list = append(list, p.Local)
		}
	}
	return list
}

// hasPathTo reports whether the peer's address can be reached from one of ours.
func (a *Association) hasPathTo(address netip.Addr) bool {
	return slices.ContainsFunc(a.paths, func(p *Path) bool { return p.Remote == address })
}
