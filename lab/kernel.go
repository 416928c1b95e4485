// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// errNoNode is what a node without a namespace says: it could not be made, or the lab is closed.
var errNoNode = errors.New("the node does not exist, or its lab is closed")

// Kernel asks the kernel about the namespace of a node, and has it change things there. A closed
// handle of package netlink would work in the namespace of whoever calls, which is the host's;
// here each request holds its handle until it is over, and none is made without one. So would a
// request of another family than NETLINK_ROUTE, such as for connection tracking: that is for
// [Node.Do].
type Kernel struct {
	mu     sync.RWMutex // held for reading by requests
	ns     *os.File     // both are nil before the namespace is there, and when the lab is closed
	handle *netlink.Handle
}

// open begins to ask in a namespace, which is the receiver's from then on.
func (k *Kernel) open(ns *os.File) error {
	handle, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ns, k.handle = ns, handle
	return nil
}

// close waits for the requests under way, and lets go of the namespace.
func (k *Kernel) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.handle != nil {
		k.handle.Close()
		k.ns.Close()
		k.handle, k.ns = nil, nil
	}
}

// there reports whether there is a namespace to ask in.
func (k *Kernel) there() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.handle != nil
}

// namespace gives a descriptor of the caller's own, which stays good although the lab is closed
// before it is used.
func (k *Kernel) namespace() (*os.File, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.ns == nil {
		return nil, errNoNode
	}
	fd, err := unix.FcntlInt(k.ns.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), k.ns.Name()), nil
}

// ask makes one request for something.
func ask[T any](k *Kernel, request func(*netlink.Handle) (T, error)) (answer T, err error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.handle == nil {
		return answer, errNoNode
	}
	return request(k.handle)
}

// tell makes one request for a change.
func (k *Kernel) tell(request func(*netlink.Handle) error) error {
	_, err := ask(k, func(h *netlink.Handle) (none struct{}, err error) { return none, request(h) })
	return err
}

// The requests are those of [netlink.Handle].

// LinkByName is the interface of a name.
func (k *Kernel) LinkByName(name string) (netlink.Link, error) {
	return ask(k, func(h *netlink.Handle) (netlink.Link, error) { return h.LinkByName(name) })
}

// LinkList is all interfaces.
func (k *Kernel) LinkList() ([]netlink.Link, error) { return ask(k, (*netlink.Handle).LinkList) }

// LinkAdd makes an interface.
func (k *Kernel) LinkAdd(link netlink.Link) error {
	return k.tell(func(h *netlink.Handle) error { return h.LinkAdd(link) })
}

// LinkDel removes an interface.
func (k *Kernel) LinkDel(link netlink.Link) error {
	return k.tell(func(h *netlink.Handle) error { return h.LinkDel(link) })
}

// LinkSetUp switches an interface on.
func (k *Kernel) LinkSetUp(link netlink.Link) error {
	return k.tell(func(h *netlink.Handle) error { return h.LinkSetUp(link) })
}

// LinkSetDown switches an interface off.
func (k *Kernel) LinkSetDown(link netlink.Link) error {
	return k.tell(func(h *netlink.Handle) error { return h.LinkSetDown(link) })
}

// LinkSetMaster puts an interface into another.
func (k *Kernel) LinkSetMaster(link, master netlink.Link) error {
	return k.tell(func(h *netlink.Handle) error { return h.LinkSetMaster(link, master) })
}

// QdiscList is what stands at an interface.
func (k *Kernel) QdiscList(link netlink.Link) ([]netlink.Qdisc, error) {
	return ask(k, func(h *netlink.Handle) ([]netlink.Qdisc, error) { return h.QdiscList(link) })
}

// AddrList is the addresses of an interface, or of all.
func (k *Kernel) AddrList(link netlink.Link, family int) ([]netlink.Addr, error) {
	return ask(k, func(h *netlink.Handle) ([]netlink.Addr, error) { return h.AddrList(link, family) })
}

// AddrAdd gives an interface an address.
func (k *Kernel) AddrAdd(link netlink.Link, addr *netlink.Addr) error {
	return k.tell(func(h *netlink.Handle) error { return h.AddrAdd(link, addr) })
}

// AddrDel takes an address from an interface.
func (k *Kernel) AddrDel(link netlink.Link, addr *netlink.Addr) error {
	return k.tell(func(h *netlink.Handle) error { return h.AddrDel(link, addr) })
}

// NeighSet enters a neighbour.
func (k *Kernel) NeighSet(neigh *netlink.Neigh) error {
	return k.tell(func(h *netlink.Handle) error { return h.NeighSet(neigh) })
}

// NeighDel forgets a neighbour.
func (k *Kernel) NeighDel(neigh *netlink.Neigh) error {
	return k.tell(func(h *netlink.Handle) error { return h.NeighDel(neigh) })
}

// NeighList is the neighbours at an interface.
func (k *Kernel) NeighList(index, family int) ([]netlink.Neigh, error) {
	return ask(k, func(h *netlink.Handle) ([]netlink.Neigh, error) { return h.NeighList(index, family) })
}

// NeighProxyList is the addresses that an interface answers for.
func (k *Kernel) NeighProxyList(index, family int) ([]netlink.Neigh, error) {
	return ask(k, func(h *netlink.Handle) ([]netlink.Neigh, error) { return h.NeighProxyList(index, family) })
}

// RouteList is the routes by an interface, or all, of the main table.
func (k *Kernel) RouteList(link netlink.Link, family int) ([]netlink.Route, error) {
	return ask(k, func(h *netlink.Handle) ([]netlink.Route, error) { return h.RouteList(link, family) })
}

// RouteListFiltered is the routes that are like one in what the mask names.
func (k *Kernel) RouteListFiltered(family int, like *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return ask(k, func(h *netlink.Handle) ([]netlink.Route, error) { return h.RouteListFiltered(family, like, mask) })
}

// RouteAdd adds a route.
func (k *Kernel) RouteAdd(route *netlink.Route) error {
	return k.tell(func(h *netlink.Handle) error { return h.RouteAdd(route) })
}

// RouteReplace adds a route, or replaces it.
func (k *Kernel) RouteReplace(route *netlink.Route) error {
	return k.tell(func(h *netlink.Handle) error { return h.RouteReplace(route) })
}

// RouteDel removes a route.
func (k *Kernel) RouteDel(route *netlink.Route) error {
	return k.tell(func(h *netlink.Handle) error { return h.RouteDel(route) })
}

// RuleList is the rules by which tables are chosen.
func (k *Kernel) RuleList(family int) ([]netlink.Rule, error) {
	return ask(k, func(h *netlink.Handle) ([]netlink.Rule, error) { return h.RuleList(family) })
}

// RuleAdd adds a rule.
func (k *Kernel) RuleAdd(rule *netlink.Rule) error {
	return k.tell(func(h *netlink.Handle) error { return h.RuleAdd(rule) })
}

// RuleDel removes a rule.
func (k *Kernel) RuleDel(rule *netlink.Rule) error {
	return k.tell(func(h *netlink.Handle) error { return h.RuleDel(rule) })
}
