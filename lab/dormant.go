// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"golang.org/x/sys/unix"

	"github.com/vishvananda/netlink/nl"
)

// Of linux/if.h: who decides that a link works is in user space, and what it says (RFC 2863 ifOperStatus).
const (
	linkModeDormant = 1
	operDormant     = 5
	operUp          = 6
)

// Dormant has an interface wait for something, as a radio does for its network, or be done with that: the kernel
// then tells all programs at once that the link does not work, or does. Its addresses stay.
func (n *Node) Dormant(iface string, dormant bool) error {
	link, err := n.kernel.LinkByName(iface)
	if err != nil {
		return err
	}
	state := byte(operUp)
	if dormant {
		state = operDormant
	}
	return n.Do(func() error {
		r := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
		m := nl.NewIfInfomsg(unix.AF_UNSPEC)
		m.Index = int32(link.Attrs().Index)
		r.AddData(m)
		r.AddData(nl.NewRtAttr(unix.IFLA_LINKMODE, []byte{linkModeDormant}))
		r.AddData(nl.NewRtAttr(unix.IFLA_OPERSTATE, []byte{state}))
		_, err := r.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}
