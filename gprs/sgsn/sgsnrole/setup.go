// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
)

// Sizes of packets: what the device is opened with, and what it gets where the network tells
// none, which leaves room for GTP on an Ethernet.
const (
	largestMTU = 1500
	defaultMTU = 1400
)

// setup is what a terminal is to have.
type setup struct {
	addresses, deprecated []netip.Prefix
	routes                []port.Route
	mtu                   int
	dns                   []netip.Addr
	search                []string
}

// wanted puts together what the contexts of the terminal have: addresses, a default route for
// each family, and the smallest MTU. IPv6 needs a device of 1280 bytes, so that of IPv4 may be
// its route's alone.
func (t *terminal) wanted() (has setup) {
	mtu4, mtu6 := 0, 0
	var four, six, routed bool
	now := time.Now()
	add := func(p netip.Prefix) { // contexts that are linked have one address
		if !slices.Contains(has.addresses, p) {
			has.addresses = append(has.addresses, p)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(t.contexts), func(a, b gtp.TID) int { return slices.Compare(a[:], b[:]) }) {
		i := t.contexts[key]
		if i.IPv4.IsValid() {
			four, mtu4 = true, smaller(mtu4, i.MTU4)
			add(netip.PrefixFrom(i.IPv4, 32))
		}
		if i.LinkLocal.IsValid() {
			six, mtu6 = true, smaller(mtu6, i.MTU6)
			add(netip.PrefixFrom(i.LinkLocal, 64))
		}
		for _, a := range i.IPv6 {
			p := netip.PrefixFrom(a.Address, 64)
			add(p)
			if !a.Preferred.IsZero() && !a.Preferred.After(now) {
				has.deprecated = append(has.deprecated, p)
			}
		}
		routed = routed || i.Router.IsValid()
		for _, a := range i.DNS {
			if !slices.Contains(has.dns, a) {
				has.dns = append(has.dns, a)
			}
		}
		for _, name := range i.Domains {
			if !slices.Contains(has.search, name) {
				has.search = append(has.search, name)
			}
		}
	}
	has.mtu = largestOf(six, mtu4, mtu6)
	link := t.device.Name()
	if four {
		r := port.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Link: link, Metric: t.metric}
		if mtu4 > 0 && mtu4 < has.mtu {
			r.MTU = mtu4
		}
		has.routes = append(has.routes, r)
	}
	if routed {
		has.routes = append(has.routes, port.Route{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Link: link, Metric: t.metric})
	}
	return has
}

// smaller returns the smaller of two sizes, of which 0 is not told.
func smaller(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// largestOf is the MTU of the device.
func largestOf(six bool, mtu4, mtu6 int) int {
	mtu := mtu4
	if six && mtu6 != 0 {
		mtu = mtu6
	}
	if mtu == 0 {
		mtu = defaultMTU
	}
	return min(max(mtu, packet.MinMTU), largestMTU)
}
