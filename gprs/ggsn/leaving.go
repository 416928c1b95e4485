// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/pool"
)

// LeavingPool is a pool that the settings no longer have, and whose addresses contexts have
// until they end.
type LeavingPool struct {
	VRF    uint8
	Prefix netip.Prefix
}

// Leaving returns the pools that packets for contexts still need a way for, beside those of
// the settings.
func (e *Engine) Leaving() (list []LeavingPool) {
	for _, a := range e.apns {
		for _, l := range a.all() {
			for _, p := range l.leaving(e.namedIn(a.VRF)) {
				list = append(list, LeavingPool{a.VRF, p})
			}
		}
		for _, p := range leavingRouted(e.vrfs[a.VRF], slices.Concat(a.Routed, a.leftRouted), e.namedIn(a.VRF)) {
			list = append(list, LeavingPool{a.VRF, p})
		}
	}
	return list
}

// namedIn are the prefixes that the settings name for access points of a VRF.
func (e *Engine) namedIn(vrf uint8) (list []netip.Prefix) {
	for _, a := range e.apns {
		if a.gone || a.VRF != vrf {
			continue
		}
		for _, l := range a.all() {
			list = append(list, l.named...)
		}
		list = append(list, a.Routed...)
	}
	return list
}

// leaving are the prefixes that are in use and not among those that are named next.
func (l *leases) leaving(next []netip.Prefix) (list []netip.Prefix) {
	for _, p := range slices.Concat(l.named, l.left) {
		if !slices.Contains(next, p) && !slices.Contains(list, p) && l.pool.Uses(p) {
			list = append(list, p)
		}
	}
	return list
}

// has reports whether an address is one of the pools, also of one that is leaving.
func (l *leases) has(a netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(l.named, in) || slices.ContainsFunc(l.left, in)
}

// resumeLeft takes over prefixes that an earlier engine had: of those that the settings do
// not name, leases can be adopted.
func (l *leases) resumeLeft(of int, had []netip.Prefix, a *APN, random uint64) {
	for _, p := range had {
		if !slices.Contains(l.named, p) && !slices.Contains(l.left, p) {
			l.left = append(l.left, p)
		}
	}
	if l.pool == nil && len(l.left) > 0 {
		var err error
		if l.pool, err = pool.New(a.leaseSettings(of, l.left), random); err != nil {
			l.left = nil // no pool can be of these
		}
		l.bits = a.leaseBits()[of]
	}
}
