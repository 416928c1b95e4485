// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import "net/netip"

// unanswered counts the calls that came in and are not answered yet, for whoever likes can begin one: of all, and of one
// source.
type unanswered struct {
	all int
	of  map[netip.Prefix]int
}

// room reports whether one more call may ring. Half of all calls may, so that there is room for those that are
// answered and for our own, and half of these of one source, which may be the proxy.
func (u *unanswered) room(source netip.Prefix, maxCalls int) bool {
	most := half(maxCalls)
	return u.all < most && u.of[source] < half(most)
}

// half is one at least.
func half(n int) int { return n - n/2 }

func (u *unanswered) add(source netip.Prefix) {
	u.all++
	u.of[source]++
}

func (u *unanswered) remove(source netip.Prefix) {
	u.all--
	if u.of[source]--; u.of[source] == 0 {
		delete(u.of, source)
	}
}

// sourceOf is an IPv4 address or an IPv6 /64, as transactions are counted by.
func sourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}
