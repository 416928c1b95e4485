// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
)

// localAddresses are those that new associations use: the ones that the endpoint is bound to, or all that the host
// has ready. A deprecated one is nothing new's choice while there is another of its family (RFC 4862 section 5.5.4).
func (e *Endpoint) localAddresses() ([]netip.Addr, error) {
	if len(e.addr.Hosts) > 0 {
		return e.addr.Hosts, nil
	}
	all, err := e.host.Addresses()
	if err != nil {
		return nil, err
	}
	var list, deprecated []netip.Addr
	fresh := map[bool]bool{} // families, of IPv4 or not, with an address that is not deprecated
	for _, a := range all {
		switch ip := a.Prefix.Addr(); {
		case !e.suits(a):
		case a.Deprecated:
			deprecated = append(deprecated, ip)
		default:
			list = append(list, ip)
			fresh[ip.Is4()] = fresh[ip.Is4()] || !ip.IsLoopback()
		}
	}
	for _, ip := range deprecated {
		if !fresh[ip.Is4()] {
			list = append(list, ip)
		}
	}
	return list, nil
}

// suits reports whether an address of the host is one that an endpoint with all addresses has: of its network, of a
// link that is up, and of more than a link.
func (e *Endpoint) suits(a port.Address) bool {
	ip := a.Prefix.Addr()
	return e.network.takes(ip) && a.Link.Up && !ip.IsLinkLocalUnicast()
}

// sourcesTo returns the addresses that the host would send from to a peer's.
func (e *Endpoint) sourcesTo(remote []netip.Addr) (list []netip.Addr) {
	for _, to := range remote {
		if out, err := e.host.Egress(to); err == nil {
			list = append(list, out.Source)
		}
	}
	return list
}

// preferSources puts addresses in front of the others: the set-up tries the paths of the first ones first.
func (e *Endpoint) preferSources(sources []netip.Addr) {
	list := slices.Clone(e.local)
	slices.SortStableFunc(list, func(a, b netip.Addr) int {
		return rank(sources, a) - rank(sources, b)
	})
	e.engine.SetAddresses(list)
}

// rank is the place of an address in a list; behind all if it is not there.
func rank(list []netip.Addr, a netip.Addr) int {
	if at := slices.Index(list, a); at >= 0 {
		return at
	}
	return len(list)
}
