// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/pool"
)

// A guest is an address that a session has of one pool, and that the settings have moved to
// another: there it counts as used, too, so that no one else gets it, until the session ends.

// owner is a range of the settings, by the numbers of [number4] or [prefix6], and its pool.
type owner struct {
	first, last uint64
	pool        *pool.Pool
}

// owners are the ranges of a network, in ascending order; those of IPv6 are apart.
type owners [2][]owner

func (o *owners) of(p netip.Prefix) *pool.Pool {
	family, n := numberOf(p)
	at, found := slices.BinarySearchFunc(o[family], n, func(r owner, n uint64) int {
		switch {
		case r.last < n:
			return -1
		case r.first > n:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return o[family][at].pool
}

// ownersOf collects the ranges of each network.
func (e *Engine) ownersOf() []owners {
	all := make([]owners, len(e.vrfs))
	for _, a := range e.apns {
		for _, l := range a.all() {
			for _, p := range l.named {
				if a.gone {
					continue
				}
				family, in := 0, span{}
				if p.Addr().Is4() {
					in = spans4(p, netip.Addr{})[0]
				} else {
					family, in = 1, spans6(p, netip.Addr{})[0]
				}
				all[a.VRF][family] = append(all[a.VRF][family], owner{in.first, in.last, l.pool})
			}
		}
	}
	for i := range all {
		for _, list := range all[i] {
			slices.SortFunc(list, func(a, b owner) int { return cmp.Compare(a.first, b.first) })
		}
	}
	return all
}

// admitGuests has all leases that were moved keep others away where they are now: those that are
// used, and those that rest.
func (e *Engine) admitGuests(c call) {
	all := e.ownersOf()
	for _, a := range e.apns {
		for _, l := range a.all() {
			named := len(l.named) > 0 && !a.gone
			if l.pool == nil || named && l.pool.Counters().Draining == 0 {
				continue
			}
			for one := range l.pool.Leases() {
				if named && l.pool.Has(one.Prefix) {
					continue
				}
				if to := all[a.VRF].of(one.Prefix); to != nil && to != l.pool && to.Has(one.Prefix) {
					e.vrfs[a.VRF].admit(to, one, c)
				}
			}
		}
	}
	e.rest(c)
}

func (v *vrf) admit(to *pool.Pool, l pool.Lease, c call) {
	if to.Adopt(l, c.now) != nil || !l.Freed.IsZero() {
		return // it is there already, or rests there from now on
	}
	if v.guests == nil {
		v.guests = make(map[netip.Prefix]*pool.Pool)
	}
	v.guests[l.Prefix] = to
}

// dismissGuests is the reverse, before settings change.
func (e *Engine) dismissGuests() {
	for _, v := range e.vrfs {
		for p, at := range v.guests {
			at.Return(p)
		}
		v.guests = nil
	}
}

// giveBackGuest ends the stay of a lease whose session ends.
func (v *vrf) giveBackGuest(p netip.Prefix, c call) {
	if at := v.guests[p]; at != nil {
		at.Free(p, c.now)
		delete(v.guests, p)
	}
}
