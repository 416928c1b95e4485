// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Thing is an address, a route or an answer for an address that a [Host] has set up, or
// that it expects of others. Someone may remove it behind our back.
type Thing struct {
	key   string // for people, too
	link  int    // index
	back  func() error
	again func() error // nil: it is for others to set
	there func(*seen) bool
	lost  func()       // if set, what is to be done at once where it is not there
	about netip.Prefix // changes of routes to it concern the thing
	quiet bool         // Watch does not tell of its end
}

// String says in words what it is.
func (t *Thing) String() string { return t.key }

// Expected reports that it is for others to set.
func (t *Thing) Expected() bool { return t.again == nil }

// place is where something is in the kernel's tables.
type place struct {
	kind kind
	dst  netip.Prefix
	link int // index; 0 for a route: several links, or any
	// metric of a route, and its table.
	metric, table uint32
	from          netip.Prefix // the sources that a route is for; not valid: all
}

type kind uint8

const (
	anAddress kind = iota
	aRoute
	aLocalRoute
	aProxy
)

// seen is what the kernel has of what matters.
type seen struct {
	places map[place]bool
	onLink map[place]bool // routes of any metric and table
}

// hasRoute reports whether there is a route for all sources; one with several next hops may be it.
func (s *seen) hasRoute(dst netip.Prefix, link int, metric, table uint32) bool {
	at := place{kind: aRoute, dst: dst, link: link, metric: metric, table: table}
	several := at
	several.link = 0
	return s.places[at] || s.places[several]
}

// Expect notes a route that others are to set: for what it leads to the link, or for more.
func (h *Host) Expect(r Route) error {
	l, err := h.link(r.Link)
	if err != nil {
		return err
	}
	index, dst := l.Attrs().Index, r.Dst.Masked()
	h.done(&Thing{
		key: "a route that leads " + dst.String() + " to " + r.Link, link: index, about: dst,
		back: func() error { return nil },
		// Rules may lead packets to any table, so the kernel is asked where they go.
		there: func(*seen) bool {
			routes, err := h.handle.RouteGetWithOptions(net.IP(dst.Addr().AsSlice()), &netlink.RouteGetOptions{VrfName: r.VRF})
			return err == nil && len(routes) > 0 && routes[0].LinkIndex == index
		},
	})
	return nil
}

// Unexpect forgets what Expect has noted.
func (h *Host) Unexpect(r Route) {
	h.forget("a route that leads " + r.Dst.Masked().String() + " to " + r.Link)
}

// Concerns reports whether a change may be one of what was set up or is expected.
func (h *Host) Concerns(c Change) bool {
	if c.Kind == Overrun {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case c.Kind == LinkChanged && len(h.shut) > 0:
		return true // a VRF that comes back has another index, and only its name says that it is the one
	case c.Kind == LinkChanged && len(h.expected) > 0:
		return true // of IPv4 the kernel does not tell which routes a link takes along that goes down
	case c.Kind != RouteChanged:
		return h.links[c.Link] > 0
	}
	if h.destinations[c.Dst.Masked()] > 0 {
		return true
	}
	for p := range h.expected { // also by a wider route, or past it by a narrower one
		if p.Overlaps(c.Dst) {
			return true
		}
	}
	return false
}

// Unwatched reports whether anything is among it of whose end [Watch] does not tell: answers
// for addresses.
func (h *Host) Unwatched() bool {
	return slices.ContainsFunc(h.things(), func(t *Thing) bool { return t.quiet })
}

// LostUnwatched reports whether anything of that kind is not there.
func (h *Host) LostUnwatched() (bool, error) {
	s := &seen{places: map[place]bool{}}
	err := h.seeProxies(s)
	lost := slices.ContainsFunc(h.things(), func(t *Thing) bool { return t.quiet && !t.there(s) && h.keeps(t) })
	return lost && err == nil, err
}

// Lost lists what is not there of what was set up or is expected, in the order in which it
// was set up.
func (h *Host) Lost() (lost []*Thing, err error) {
	things := h.things()
	if len(things) == 0 {
		return nil, nil
	}
	s, err := h.see()
	if err != nil {
		return nil, err
	}
	for _, t := range things {
		// What was taken back meanwhile is not lost.
		if !t.there(s) && h.keeps(t) {
			lost = append(lost, t)
			h.loses(t)
		}
	}
	return lost, nil
}

// loses does what is to be done at once about a thing that is lost.
func (h *Host) loses(t *Thing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.lost != nil && h.has(t) {
		t.lost()
	}
}

// Restore sets up again what is lost, with an error or nil for each. What belongs to
// someone else by now is left to him.
func (h *Host) Restore(lost []*Thing) []error {
	errs := make([]error, len(lost))
	for i, t := range lost {
		errs[i] = h.restore(t)
	}
	return errs
}

// restore keeps whoever would take the thing back waiting, or it would be there after that.
func (h *Host) restore(t *Thing) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.again == nil || !h.has(t) {
		return nil
	}
	return t.again()
}

// things lists what is to be there.
func (h *Host) things() (list []*Thing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.undo {
		if t != nil {
			list = append(list, t)
		}
	}
	return list
}

func (h *Host) keeps(t *Thing) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.has(t)
}

// has reports whether a thing is on the list; h.mu is held.
func (h *Host) has(t *Thing) bool {
	i, found := h.at[t.key]
	return found && h.undo[i] == t
}

// see looks at the kernel's tables.
func (h *Host) see() (*seen, error) {
	s := &seen{places: map[place]bool{}, onLink: map[place]bool{}}
	h.mu.Lock()
	about := make(map[netip.Prefix]bool, len(h.destinations))
	for p := range h.destinations {
		about[p] = true
	}
	h.mu.Unlock()
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := h.whole(func() error { return h.eachRoute(family, func(w RouteEntry, table uint32) { s.add(w, table, about) }) }); err != nil {
			return nil, err
		}
	}
	var addrs []netlink.Addr
	err := h.whole(func() (err error) {
		addrs, err = h.handle.AddrList(nil, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the host's addresses: %w", err)
	}
	for _, a := range addrs {
		if p, ok := prefix(a.IPNet); ok {
			s.places[place{kind: anAddress, dst: p, link: a.LinkIndex}] = true
		}
	}
	return s, h.seeProxies(s)
}

// whole lists something again as long as it changes meanwhile.
func (h *Host) whole(list func() error) (err error) {
	for range wholeTries {
		if err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return err
}

// add notes a route, if it is about one of those destinations.
func (s *seen) add(w RouteEntry, table uint32, about map[netip.Prefix]bool) {
	switch {
	case !about[w.Dst]:
	case w.Local:
		s.places[place{kind: aLocalRoute, dst: w.Dst, link: w.Link}] = true
	default:
		s.places[place{aRoute, w.Dst, w.Link, w.Metric, table, w.From}] = true
		s.onLink[place{kind: aRoute, dst: w.Dst, link: w.Link, from: w.From}] = true
	}
}

// seeProxies notes the addresses that this host answers for.
func (h *Host) seeProxies(s *seen) error {
	proxies, err := h.ourProxies()
	for _, n := range proxies {
		if a, ok := netip.AddrFromSlice(n.IP); ok {
			s.places[proxyPlace(n.LinkIndex, a.Unmap())] = true
		}
	}
	return err
}

func proxyPlace(link int, addr netip.Addr) place {
	return place{kind: aProxy, dst: netip.PrefixFrom(addr, addr.BitLen()), link: link}
}
