// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
)

// askHost asks the host something, unless the endpoint has let it go.
func (e *Endpoint) askHost(what func(*port.Host) error) error {
	e.asking.Lock()
	defer e.asking.Unlock()
	if e.host == nil {
		return net.ErrClosed
	}
	return what(e.host)
}

// closeHost lets the host go.
func (e *Endpoint) closeHost() {
	e.asking.Lock()
	defer e.asking.Unlock()
	e.host.Close()
	e.host = nil
}

// listAddresses lists the host's addresses that an endpoint with all of them has: those of its network, but not those
// of a link alone. A deprecated one is nothing new's choice while there is another of its family (RFC 4862 section
// 5.5.4), and one whose link is down neither.
func (e *Endpoint) listAddresses() (now hostAddresses, err error) {
	var all []port.Address
	err = e.askHost(func(h *port.Host) (err error) {
		all, err = h.Addresses()
		return err
	})
	if err != nil {
		return now, err
	}
	now.present = map[netip.Addr]bool{}
	for _, a := range all {
		if last, ok := broadcast(a.Prefix); ok {
			now.broadcasts = append(now.broadcasts, last)
		}
	}
	var deprecated []netip.Addr
	preferred := map[bool]bool{} // whether there is one, of IPv4 or not
	for _, a := range all {
		ip, up := a.Prefix.Addr(), a.Link.Up && a.Link.Carrier
		if !e.network.takes(ip) || ip.IsLinkLocalUnicast() || now.present[ip] { // another link has it, too, and works
			continue
		}
		switch now.present[ip] = up; {
		case !up:
		case a.Deprecated:
			deprecated = append(deprecated, ip)
		default:
			now.fresh = append(now.fresh, ip)
			preferred[ip.Is4()] = preferred[ip.Is4()] || !ip.IsLoopback()
		}
	}
	for _, ip := range deprecated {
		if !preferred[ip.Is4()] {
			now.fresh = append(now.fresh, ip)
		}
	}
	return now, nil
}

// broadcast is the address that all hosts of a link with a prefix of IPv4 have in common (RFC 919): the last one. Links of
// two addresses have none (RFC 3021).
func broadcast(p netip.Prefix) (last netip.Addr, ok bool) {
	if !p.Addr().Is4() || p.Bits() > 30 {
		return last, false
	}
	b := p.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])|(1<<(32-p.Bits())-1))
	return netip.AddrFrom4(b), true
}

// findAddresses finds the addresses that new associations have: those that the endpoint is bound to, or all of the
// host. It returns the changes of these, if the endpoint is to follow them.
func (e *Endpoint) findAddresses() (changes <-chan port.Change, err error) {
	if len(e.addr.Hosts) > 0 {
		e.local = e.addr.Hosts
		now, err := e.listAddresses()
		e.broadcasts = now.broadcasts
		return nil, err
	}
	if !e.config.StaticAddresses {
		var ctx context.Context
		ctx, e.stopWatch = context.WithCancel(context.Background())
		if changes, err = port.Watch(ctx); err != nil {
			return nil, err
		}
	}
	now, err := e.listAddresses() // once the watch has begun: nothing is missed
	if err != nil {
		return nil, err
	}
	e.local, e.broadcasts = now.fresh, now.broadcasts
	if changes != nil {
		e.present = now.present
	}
	return changes, nil
}

// sourcesTo returns the addresses that the host would send from to a peer's.
func (e *Endpoint) sourcesTo(remote []netip.Addr) (list []netip.Addr) {
	_ = e.askHost(func(h *port.Host) error { // without an answer none is preferred
		for _, to := range remote {
			if out, err := h.Egress(to); err == nil {
				list = append(list, out.Source)
			}
		}
		return nil
	})
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
