// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Limits of a link.
const (
	// maxInterfaceName is IFNAMSIZ without the final zero.
	maxInterfaceName = 15
	// linkReady bounds the wait for a fresh link to carry packets: generously, since
	// a worker of the kernel may wait long for its turn on a busy machine.
	linkReady = time.Minute
)

// Link joins two nodes by a virtual Ethernet cable whose ends bear the names
// given. An end at a bridge becomes a port of it and may be "", which takes
// the next name p1, p2, … Both ends are up and usable when it returns.
func (l *Lab) Link(a *Node, ifaceA string, b *Node, ifaceB string) {
	ifaceA, ifaceB = a.portName(ifaceA), b.portName(ifaceB)
	a.draw(fmt.Sprintf("link %s to %s of %s", ifaceA, ifaceB, b.name), func() error {
		return l.link(a, ifaceA, b, ifaceB)
	})
}

func (l *Lab) link(a *Node, ifaceA string, b *Node, ifaceB string) error {
	for _, name := range []string{ifaceA, ifaceB} {
		if name == "" || len(name) > maxInterfaceName {
			return fmt.Errorf("%q is no interface name: use 1 to %d characters", name, maxInterfaceName)
		}
	}
	far, err := b.kernel.namespace()
	if err != nil {
		return err
	}
	defer far.Close()
	if err := a.kernel.LinkAdd(&netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: ifaceA, HardwareAddr: l.nextMAC()},
		PeerName:         ifaceB,
		PeerHardwareAddr: l.nextMAC(),
		PeerNamespace:    netlink.NsFd(int(far.Fd())),
	}); err != nil {
		return err
	}
	if err := errors.Join(a.plug(ifaceA), b.plug(ifaceB)); err != nil {
		return err
	}
	return errors.Join(a.awaitCarrier(ifaceA), b.awaitCarrier(ifaceB))
}

// portName gives a name to a port that has none.
func (n *Node) portName(name string) string {
	if name == "" && n.bridge {
		n.ports++
		return "p" + strconv.Itoa(n.ports)
	}
	return name
}

// plug puts an end into its bridge, if the node is one, and switches it on.
func (n *Node) plug(iface string) error {
	link, err := n.kernel.LinkByName(iface)
	if err != nil {
		return err
	}
	if n.bridge {
		br, err := n.kernel.LinkByName(bridgeName)
		if err != nil {
			return err
		}
		if err := n.kernel.LinkSetMaster(link, br); err != nil {
			return err
		}
	}
	return n.kernel.LinkSetUp(link)
}

// awaitCarrier waits until the kernel has noticed the carrier and, where there
// is IPv6, given the interface its link-local address: before that, the first
// packets would be lost or held.
func (n *Node) awaitCarrier(iface string) error {
	deadline := time.Now().Add(linkReady)
	for {
		link, err := n.kernel.LinkByName(iface)
		if err != nil {
			return err
		}
		if link.Attrs().OperState == netlink.OperUp && (n.bridge || n.inner || n.hasLinkLocal(link)) {
			return nil
		}
		if err := n.lab.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("interface %s did not come up within %v", iface, linkReady)
		}
		time.Sleep(time.Millisecond)
	}
}

// awaitAddress waits until an IPv6 address is usable. Even without duplicate
// address detection a worker of the kernel makes it so a moment later: it joins
// the multicast group that neighbour solicitations go to. The end of the
// tentative state tells, which IFA_F_NODAD would leave out.
func (n *Node) awaitAddress(link netlink.Link, want *netlink.Addr) error {
	state := link.Attrs().OperState
	if want.IP.To4() != nil || state != netlink.OperUp && state != netlink.OperUnknown {
		return nil // without a carrier it stays tentative until there is one
	}
	deadline := time.Now().Add(linkReady)
	for {
		addrs, err := n.kernel.AddrList(link, netlink.FAMILY_V6)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		for _, a := range addrs {
			if a.IP.Equal(want.IP) && a.Flags&unix.IFA_F_TENTATIVE == 0 {
				return nil
			}
		}
		if err := n.lab.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it was not usable within %v", linkReady)
		}
		time.Sleep(time.Millisecond)
	}
}

func (n *Node) hasLinkLocal(link netlink.Link) bool {
	addrs, err := n.kernel.AddrList(link, netlink.FAMILY_V6)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false
	}
	for _, a := range addrs {
		if a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
			return true
		}
	}
	return false
}
