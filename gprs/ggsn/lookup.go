// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Direct reports whether contexts that match are found by an index; else all are looked at.
func (s *Selection) Direct() bool { return s.ChargingID != nil || s.someIMSI() || s.oneAddress() }

func (s *Selection) someIMSI() bool { return s.IMSI != gtp.IMSI{} && s.IMSI != noIMSI }

// oneAddress reports whether an address is named, or a part of a /64: no lease is less.
func (s *Selection) oneAddress() bool {
	return s.Address.IsSingleIP() || s.Address.Bits() >= prefixBits
}

// candidates are the records, in ascending order from one on, among which all contexts are that a
// selection matches. None may end meanwhile.
func (e *Engine) candidates(sel *Selection, from handle) iter.Seq[handle] {
	return func(yield func(handle) bool) {
		for _, h := range e.lookUp(sel) {
			if h >= from && !yield(h) {
				return
			}
		}
		for h := from; !sel.Direct() && h <= e.contexts.last && yield(h); h++ {
		}
	}
}

// lookUp returns those of a direct selection, in ascending order.
func (e *Engine) lookUp(sel *Selection) (list []handle) {
	switch {
	case sel.ChargingID != nil:
		list = append(list, e.byCharging[*sel.ChargingID])
	case sel.someIMSI():
		for nsapi := range uint8(16) {
			list = append(list, e.byTID[gtp.MakeTID(sel.IMSI, nsapi)])
		}
	case sel.oneAddress():
		for _, v := range e.vrfs {
			list = e.appendHolders(list, v, sel.Address.Addr())
		}
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(h handle) bool { return h == 0 })
}

// appendHolders appends the contexts of the sessions that may have an address in a network, or that it may
// be behind: of IPv6 those in whose lease it is, whatever they have of that now.
func (e *Engine) appendHolders(list []handle, v *vrf, a netip.Addr) []handle {
	var held []handle
	if a.Is4() {
		held = append(held, v.by4[number4(a)])
	} else {
		held = append(held, v.by6[prefix6(a)])
		for _, bits := range v.delegate {
			held = append(held, v.by6[prefix6(a)&^(1<<(prefixBits-bits)-1)])
		}
	}
	if r, ok := v.behind.Lookup(a); ok {
		held = append(held, r.session)
	}
	for _, s := range held {
		if s == 0 {
			continue
		}
		for h := e.sessions.at(s).first; h != 0; h = e.contexts.at(h).next {
			list = append(list, h)
		}
	}
	return list
}
