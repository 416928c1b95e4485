// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/netattr"
)

// eventKind says what an event means to cached next hops.
type eventKind int

const (
	nothing          eventKind = iota
	neighbourChanged           // its MAC or validity may have changed
	linkChanged                // its state may have changed
	lookupChanged              // some answers have changed, the classes have not
	routesChanged              // the classes of a range have changed, too
)

// event is what one netlink message tells.
type event struct {
	kind      eventKind
	neighbour neighbourKey
	mac       mac
	valid     bool // the kernel would send to this neighbour
	link      int32
	state     linkState
	routes    range4
}

// mac is a link-layer address of up to 8 octets; of longer ones (InfiniBand),
// which no Ethernet header can hold anyway, the end is left out.
type mac [8]byte

// parseEvent reads a message of the groups that the follower subscribed to. One
// that it cannot read counts as a change of everything.
func parseEvent(msgType uint16, data []byte) event {
	switch msgType {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return routeEvent(data)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return neighbourEvent(data, msgType == unix.RTM_DELNEIGH)
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return linkEvent(data, msgType == unix.RTM_DELLINK)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		// The kernel takes routes that prefer a removed IPv4 address away with it,
		// and tells no one.
		return familyEvent(data)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return familyEvent(data)
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return event{kind: routesChanged, routes: everything4}
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		return familyEvent(data)
	}
	return event{}
}

// familyEvent tells a change of one family, of which nothing more is known.
func familyEvent(data []byte) event {
	if len(data) > 0 && data[0] == unix.AF_INET6 {
		return event{kind: lookupChanged}
	}
	return event{kind: routesChanged, routes: everything4}
}

// routeEvent tells a change of a route. Tables that the kernel's three default
// rules do not lead to have no classes, whose table is empty with other rules.
func routeEvent(data []byte) event {
	r, ok := parseRoute4(data)
	switch {
	case len(data) > 0 && data[0] != unix.AF_INET:
		return event{kind: lookupChanged}
	case !ok:
		return event{kind: routesChanged, routes: everything4}
	case r.table != unix.RT_TABLE_MAIN && r.table != unix.RT_TABLE_LOCAL:
		return event{kind: lookupChanged}
	}
	return event{kind: routesChanged, routes: r.covers()}
}

// neighbourEvent tells a change of a neighbour.
func neighbourEvent(data []byte, deleted bool) event {
	if len(data) < unix.SizeofNdMsg {
		return event{kind: lookupChanged}
	}
	e := event{kind: neighbourChanged}
	switch data[0] {
	case unix.AF_INET:
		e.neighbour.family = 4
	case unix.AF_INET6:
		e.neighbour.family = 6
	default:
		return event{} // forwarding tables of bridges
	}
	e.neighbour.link = int32(binary.NativeEndian.Uint32(data[4:8]))
	state := binary.NativeEndian.Uint16(data[8:10])
	e.valid = !deleted && state&nudValid != 0
	for attr, value := range netattr.All(data[unix.SizeofNdMsg:]) {
		switch attr {
		case unix.NDA_DST:
			e.neighbour.addr, _ = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			copy(e.mac[:], value)
		}
	}
	return e
}

// nudValid are the states in which the kernel sends to a neighbour without
// asking for its address first (NUD_VALID of the kernel).
const nudValid = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE |
	unix.NUD_PROBE | unix.NUD_STALE | unix.NUD_DELAY

// linkEvent tells a change of a link.
func linkEvent(data []byte, deleted bool) event {
	if len(data) < unix.SizeofIfInfomsg {
		return event{kind: routesChanged, routes: everything4}
	}
	switch data[0] {
	case unix.AF_UNSPEC:
	case unix.AF_INET6:
		return event{kind: lookupChanged} // a router has advertised another MTU, say
	default:
		return event{} // a port's state as a bridge sees it
	}
	e := event{kind: linkChanged, link: int32(binary.NativeEndian.Uint32(data[4:8]))}
	e.state.flags = binary.NativeEndian.Uint32(data[8:12]) & (unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP)
	e.state.gone = deleted
	for attr, value := range netattr.All(data[unix.SizeofIfInfomsg:]) {
		switch {
		case attr == unix.IFLA_MTU && len(value) == 4:
			e.state.mtu = binary.NativeEndian.Uint32(value)
		case attr == unix.IFLA_MASTER && len(value) == 4:
			e.state.master = binary.NativeEndian.Uint32(value)
		case attr == unix.IFLA_ADDRESS:
			copy(e.state.mac[:], value)
		}
	}
	return e
}
