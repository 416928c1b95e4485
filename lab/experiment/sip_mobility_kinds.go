// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/lab"
)

// sipKind is a kind of move.
type sipKind int

const (
	sipSoft      sipKind = iota // the routes lead by b, though a works
	sipHard                     // the address on a is removed
	sipCarrier                  // a loses its carrier
	sipCold                     // as hard, but neither terminal nor router knows the other's link-layer address on b
	sipDuplicate                // as hard, but b gets its address only now, which waits for duplicate address detection
)

func (k sipKind) String() string {
	return [...]string{"soft", "hard", "carrier lost", "hard, router not known", "hard, address to be checked"}[k]
}

// told reports whether the kernel tells of such a change at once, and nothing but the telephone is
// between that and the re-INVITE.
func (k sipKind) told() bool { return k == sipSoft || k == sipHard }

// prepare readies the topology for a move of a kind.
func (n *sipNet) prepare(ctx context.Context, k sipKind) error {
	if k != sipDuplicate {
		return nil
	}
	n.mobile.Sysctl("net.ipv6.conf.b.accept_dad", "1").Sysctl("net.ipv6.conf.b.dad_transmits", "1").RemoveAddr("b", n.lan(sipLinkB).with(2))
	if err := n.lab.Err(); err != nil {
		return err
	}
	return n.ue.awaitPaths(ctx, n.lan(sipLinkA).at(2), 0)
}

// leave moves the terminal from a to b, and says when: just before it.
func (n *sipNet) leave(k sipKind) (at time.Time, err error) {
	switch k {
	case sipCarrier:
		at = time.Now()
		n.router.Down("a")
		return at, n.lab.Err()
	case sipSoft:
		err = setRoute(func(h *lab.Kernel, r *netlink.Route) error {
			at = time.Now()
			return h.RouteReplace(r)
		}).byDefault(n.mobile, "b", n.lan(sipLinkB).at(1).String(), sipPrefer)
		return at, err
	}
	link, err := n.mobile.Kernel().LinkByName("a")
	if err != nil {
		return at, err
	}
	gone, err := netlink.ParseAddr(n.lan(sipLinkA).with(2))
	if err != nil {
		return at, err
	}
	at = time.Now()
	if err := n.mobile.Kernel().AddrDel(link, gone); err != nil || k != sipDuplicate {
		return at, err
	}
	return at, errors.Join(n.addChecked("b", n.lan(sipLinkB).with(2)), n.route("b", sipLinkB, sipStandby))
}

// addChecked adds an address that is tentative at first, as is usual (RFC 4862 section 5.4).
func (n *sipNet) addChecked(iface, prefix string) error {
	link, err := n.mobile.Kernel().LinkByName(iface)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	return n.mobile.Kernel().AddrAdd(link, a)
}

// restore moves it back.
func (n *sipNet) restore(k sipKind) error {
	switch k {
	case sipCarrier:
		n.router.Up("a")
		if n.ipv6 { // the kernel forgets them when a link is switched off
			n.router.Addr("a", n.lan(sipLinkA).with(1))
		}
	case sipSoft:
		return setRoute((*lab.Kernel).RouteDel).byDefault(n.mobile, "b", n.lan(sipLinkB).at(1).String(), sipPrefer)
	case sipDuplicate:
		n.mobile.Sysctl("net.ipv6.conf.b.accept_dad", "0").Sysctl("net.ipv6.conf.b.dad_transmits", "0").Addr("a", n.lan(sipLinkA).with(2))
	default:
		n.mobile.Addr("a", n.lan(sipLinkA).with(2))
	}
	return errors.Join(n.lab.Err(), n.route("a", sipLinkA, sipUsual)) // the kernel took IPv4's with the address
}

// forgetNeighbours has terminal and router no longer know each other on b.
func (n *sipNet) forgetNeighbours() error {
	return errors.Join(forgetNeighbour(n.mobile, "b", n.lan(sipLinkB).at(1).AsSlice()), forgetNeighbour(n.router, "b", n.lan(sipLinkB).at(2).AsSlice()))
}

// forgetNeighbour removes an entry of a node's neighbour cache, if there is one.
func forgetNeighbour(node *lab.Node, iface string, at net.IP) error {
	h := node.Kernel()
	link, err := h.LinkByName(iface)
	if err != nil {
		return err
	}
	known, err := h.NeighList(link.Attrs().Index, 0)
	if err != nil {
		return err
	}
	for _, one := range known {
		if one.IP.Equal(at) {
			return h.NeighDel(&one)
		}
	}
	return nil
}

// theory is the gap in what is sent to the terminal, in 95 % of moves: the packets that are sent until
// the re-INVITE has reached the host, and its first to the new address has come, are lost. So with
// constant delays a gap is a number of packet times: those that begin in that time, and one.
func (c *sipCase) theory() (least, most time.Duration) {
	if c.kind == sipSoft {
		return flowGap, flowGap
	}
	least = c.world.access + c.host.trip
	most = least + c.repeats()
	switch c.kind {
	case sipCarrier: // how often the telephone looks
		most += 20 * time.Millisecond
	case sipCold: // solicitation and advertisement
		least, most = least+c.world.access, most+c.world.access
	case sipDuplicate: // one probe after a delay by chance, then RetransTimer (RFC 4862 sections 5.1 and 5.4.2)
		least, most = least+time.Second, most+2*time.Second
	}
	return least/flowGap*flowGap + flowGap, (most+flowGap-1)/flowGap*flowGap + flowGap
}

// repeats is how long 95 % of moves wait for a re-INVITE that is not lost: no repeat comes before T1,
// and each after twice the time (RFC 3261 section 17.1.1.2). Where media are latched, these lead the
// host to the terminal as well, each packet anew.
func (c *sipCase) repeats() (wait time.Duration) {
	next := cmp.Or(c.world.repeat, 500*time.Millisecond)
	if c.host.latch {
		next = flowGap
	}
	for lost := c.host.loss; lost > 0.05; lost *= c.host.loss {
		wait += next
		if !c.host.latch {
			next *= 2
		}
	}
	return wait
}
