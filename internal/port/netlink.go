// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// RouteProtocol marks our routes in the kernel's table ("proto 73" in ip-route
// output), so that people and routing daemons can tell them apart. The number
// is one that no known routing program uses.
const RouteProtocol = 73

// Host sets up links, addresses and routes of one network namespace, and undoes
// on Close what it did. It is safe for concurrent use.
type Host struct {
	handle *netlink.Handle
	raw    map[int]*nl.SocketHandle // for messages that the handle cannot make
	mu     sync.Mutex
	undo   []*Thing       // in the order done; nil are those that were forgotten
	at     map[string]int // where each is, by its key
	// How many of them are on a link, and how many changes of routes to a destination concern.
	links        map[int]int
	destinations map[netip.Prefix]int
	expected     map[netip.Prefix]bool // destinations of what others are to set up
	shut         map[int]bool          // links that are down since their VRF is lost: see Enslave
}

// OpenHost opens a handle on the calling thread's network namespace.
func OpenHost() (*Host, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("cannot open netlink: %w", err)
	}
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("cannot open netlink: %w", err)
	}
	return &Host{handle: h, raw: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}, shut: make(map[int]bool)}, nil
}

// SetUp brings a link up.
func (h *Host) SetUp(link string) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	if err := h.handle.LinkSetUp(l); err != nil {
		return h.problem("bring up", link, err)
	}
	return nil
}

// Link tells the index of a link, as a [Change] names it, and whether it is up; one that waits
// for its VRF counts as up.
func (h *Host) Link(name string) (index int, up bool, err error) {
	l, err := h.link(name)
	if err != nil {
		return 0, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.Attrs().Index, l.Attrs().RawFlags&unix.IFF_UP != 0 || h.shut[l.Attrs().Index], nil
}

// SetMTU sets a link's MTU in bytes.
func (h *Host) SetMTU(link string, mtu int) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	if err := h.handle.LinkSetMTU(l, mtu); err != nil {
		return h.problem(fmt.Sprintf("set MTU %d on", mtu), link, err)
	}
	return nil
}

// AddAddr gives a link an address with its prefix length. An IPv6 address is
// usable at once, without duplicate address detection, which has no one to ask
// on a TUN.
func (h *Host) AddAddr(link string, addr netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(addr)}
	if addr.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return h.setAddr(link, addr, a, true)
}

// setAddr gives a link an address as a says, and notes it.
func (h *Host) setAddr(link string, addr netip.Prefix, a *netlink.Addr, onLink bool) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	set := func() error {
		if err := h.handle.AddrReplace(l, a); err != nil {
			return h.problem(fmt.Sprintf("add address %s to", addr), link, err)
		}
		return nil
	}
	if err := set(); err != nil {
		return err
	}
	h.doneAddr(link, l, addr, onLink, set)
	if addr.Addr().Is6() && l.Attrs().RawFlags&unix.IFF_UP != 0 {
		h.awaitLocal(addr.Addr(), l.Attrs().MasterIndex)
	}
	return nil
}

// doneAddr notes an address, with how it is to be set again. The kernel's route to the
// network of an IPv6 address is part of it, if the network is on the link.
func (h *Host) doneAddr(link string, l netlink.Link, addr netip.Prefix, onLink bool, again func() error) {
	index, network := l.Attrs().Index, addr.Masked()
	onLink = onLink && addr.Addr().Is6() && !addr.IsSingleIP()
	h.done(&Thing{
		key: addrKey(link, addr), link: index, about: network, again: again,
		back: func() error { return h.handle.AddrDel(l, &netlink.Addr{IPNet: ipNet(addr)}) },
		there: func(s *seen) bool {
			routed := !onLink || s.onLink[place{kind: aRoute, dst: network, link: index}]
			return routed && s.places[place{kind: anAddress, dst: addr, link: index}]
		},
	})
}

// awaitLocal waits until the kernel takes packets for an address of its own. It
// installs the local route in the background, even without duplicate address
// detection; a packet that comes before that is lost. Nothing reports the moment, so the route is looked up: in the table
// of the VRF, too, if the link has such a master.
func (h *Host) awaitLocal(addr netip.Addr, master int) {
	is := func() bool { return h.Local(addr) || master != 0 && h.localTo(addr, master) }
	for end := time.Now().Add(localTime); !is() && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
}

// localTime is how long the kernel is waited for that. It takes a millisecond, but many of a busy machine that sets
// links up and takes them away.
const localTime = 2 * time.Second

// RemoveAddr takes an address from a link; one that is not there is no error.
func (h *Host) RemoveAddr(link string, addr netip.Prefix) error {
	h.forget(addrKey(link, addr))
	l, err := h.link(link)
	if err != nil {
		return unlessGone(err)
	}
	if err := h.handle.AddrDel(l, &netlink.Addr{IPNet: ipNet(addr)}); err != nil && !gone(err) {
		return h.problem(fmt.Sprintf("remove address %s from", addr), link, err)
	}
	return nil
}

func addrKey(link string, addr netip.Prefix) string {
	return "address " + addr.String() + " of " + link
}

// Route is a unicast route through a link.
type Route struct {
	Dst  netip.Prefix
	Link string
	// VRF is the one whose table has the route; empty is the main table.
	VRF string
	// Gateway is the next hop; none on a TUN.
	Gateway netip.Addr
	// Metric orders routes to one destination, lowest first; 0 means the
	// kernel's default (1024 for IPv6).
	Metric int
	// Source is the preferred source address, if valid.
	Source netip.Addr
	// MTU of the route in bytes; 0 means the link's.
	MTU int
}

// AddRoute adds a route. One that is there already through the same link stays,
// or is renewed if it is ours; through another link it belongs to someone else
// and the error is a [*RouteTakenError].
func (h *Host) AddRoute(r Route) error {
	nr, err := h.route(r)
	if err != nil {
		return err
	}
	err = h.addRoute(r, nr)
	if err != nil && !errors.Is(err, unix.ENETDOWN) {
		return err
	}
	// Once the link is up the route can be restored. It is taken back by our protocol number,
	// so that one of someone else through the same link stays.
	index, dst, metric := nr.LinkIndex, r.Dst.Masked(), uint32(r.metric())
	h.done(&Thing{
		key: routeKey(r), link: index, about: dst,
		back: func() error { return h.handle.RouteDel(nr) },
		again: func() (err error) { // a VRF may have another table than before
			if nr.Table, err = h.table(r); err != nil {
				return err
			}
			return h.addRoute(r, nr)
		},
		there: func(s *seen) bool {
			table, err := h.tableOf(r.VRF)
			return err == nil && s.hasRoute(dst, index, metric, table)
		},
	})
	return err
}

// table is that of a route as netlink has it.
func (h *Host) table(r Route) (int, error) {
	table, err := h.tableOf(r.VRF)
	return int(table), err
}

// addRoute adds a route and does not note it.
func (h *Host) addRoute(r Route, nr *netlink.Route) error {
	err := h.handle.RouteAdd(nr)
	if errors.Is(err, unix.EEXIST) {
		var foreign bool
		if foreign, err = h.occupied(r, nr.LinkIndex); foreign || err != nil {
			return err
		}
		err = h.handle.RouteReplace(nr)
	}
	if err != nil {
		return h.problem(fmt.Sprintf("add route %s through", r.Dst), r.Link, err)
	}
	return nil
}

// metric is the route's as the kernel shows it.
func (r *Route) metric() int {
	if r.Metric == 0 && r.Dst.Addr().Is6() {
		return defaultMetric6
	}
	return r.Metric
}

// defaultMetric6 is what the kernel makes of an IPv6 metric of 0
// (IP6_RT_PRIO_USER).
const defaultMetric6 = 1024

// destination is that of a route; netlink may leave the default route's out.
func destination(r *netlink.Route) netip.Prefix {
	if r.Dst == nil {
		zero := netip.IPv4Unspecified()
		if r.Family == netlink.FAMILY_V6 {
			zero = netip.IPv6Unspecified()
		}
		return netip.PrefixFrom(zero, 0)
	}
	p, _ := prefix(r.Dst)
	return p
}

// RemoveRoute removes a route; one that is not there is no error.
func (h *Host) RemoveRoute(r Route) error {
	h.forget(routeKey(r))
	nr, err := h.route(r)
	if err != nil {
		return unlessGone(err)
	}
	if err := h.handle.RouteDel(nr); err != nil && !gone(err) {
		return h.problem(fmt.Sprintf("remove route %s through", r.Dst), r.Link, err)
	}
	return nil
}

func routeKey(r Route) string {
	key := fmt.Sprintf("route to %s through %s", r.Dst, r.Link)
	if r.Gateway.IsValid() {
		key += " by " + r.Gateway.String()
	}
	if r.Metric != 0 {
		key += fmt.Sprintf(" with metric %d", r.Metric)
	}
	return key
}

// route turns a Route into netlink's form.
func (h *Host) route(r Route) (*netlink.Route, error) {
	l, err := h.link(r.Link)
	if err != nil {
		return nil, err
	}
	table, err := h.table(r)
	if err != nil {
		return nil, err
	}
	nr := &netlink.Route{
		Table:     table,
		LinkIndex: l.Attrs().Index,
		Dst:       ipNet(r.Dst.Masked()),
		Priority:  r.Metric,
		Protocol:  RouteProtocol,
		MTU:       r.MTU,
	}
	if r.Gateway.IsValid() {
		nr.Gw = net.IP(r.Gateway.AsSlice())
	} else if r.Dst.Addr().Is4() {
		nr.Scope = netlink.SCOPE_LINK
	}
	if r.Source.IsValid() {
		nr.Src = net.IP(r.Source.AsSlice())
	}
	return nr, nil
}

// Close undoes what is still set, the last first, and closes the handle. What
// has gone with its link is no error.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, t := range slices.Backward(h.undo) {
		if t == nil {
			continue
		}
		if err := t.back(); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("cannot undo the %s: %w", t, err))
		}
	}
	h.undo, h.at = nil, nil
	h.closeHandles()
	return errors.Join(errs...)
}

// Abandon closes the handle and leaves everything as it is, for a process that
// goes on with it.
func (h *Host) Abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.undo, h.at = nil, nil
	h.closeHandles()
}

func (h *Host) closeHandles() {
	h.handle.Close()
	for _, s := range h.raw {
		s.Close()
	}
}

// done notes a thing, once.
func (h *Host) done(t *Thing) {
	h.forget(t.key)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.undo) > 2*len(h.at)+16 {
		h.compact()
	}
	if h.at == nil {
		h.at, h.links = make(map[string]int), make(map[int]int)
		h.destinations, h.expected = make(map[netip.Prefix]int), make(map[netip.Prefix]bool)
	}
	h.at[t.key] = len(h.undo)
	h.undo = append(h.undo, t)
	h.links[t.link]++
	h.destinations[t.about]++
	if t.Expected() {
		h.expected[t.about] = true
	}
}

// forget drops a thing from the list.
func (h *Host) forget(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, found := h.at[key]
	if !found {
		return
	}
	t := h.undo[i]
	h.undo[i] = nil
	delete(h.at, key)
	if t.Expected() {
		delete(h.expected, t.about)
	}
	if h.links[t.link]--; h.links[t.link] == 0 {
		delete(h.links, t.link)
	}
	if h.destinations[t.about]--; h.destinations[t.about] == 0 {
		delete(h.destinations, t.about)
	}
}

// compact takes what was forgotten out of the list; the lock is held.
func (h *Host) compact() {
	h.undo = slices.DeleteFunc(h.undo, func(t *Thing) bool { return t == nil })
	for i, t := range h.undo {
		h.at[t.key] = i
	}
}

// link finds a link by name.
func (h *Host) link(name string) (netlink.Link, error) {
	l, err := h.handle.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("there is no network interface %s: %w", name, err)
	}
	return l, nil
}

// problem says in words why netlink refused.
func (h *Host) problem(what, link string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("no permission to %s %s: run as root or with CAP_NET_ADMIN: %w", what, link, err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("cannot %s %s: IPv6 is switched off there; set net.ipv6.conf.%s.disable_ipv6=0: %w", what, link, link, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("cannot %s %s: the interface is down: %w", what, link, err)
	}
	return fmt.Errorf("cannot %s %s: %w", what, link, err)
}

// gone reports that the thing to be removed, or its link, is not there.
func gone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) ||
		errors.Is(err, unix.ENXIO) // a link that is too small for IPv6 has none of it
}

// unlessGone forgives that a link is not there, for what went with it.
func unlessGone(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	return err
}

// ipNet turns a prefix into net's form, host bits kept.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
