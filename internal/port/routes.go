// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// RouteEntry is what the kernel's tables "main" and "local" say of a destination, be it a
// route, an address of this host, or a refusal. Of other tables there are the addresses of
// this host alone, which a VRF has in its own.
type RouteEntry struct {
	Dst netip.Prefix
	// Link is the interface index; 0 where there is none, or several.
	Link int
	// Local marks addresses of this host, Source what is for packets of some sources alone:
	// those of From.
	Local, Source bool
	From          netip.Prefix
	// Refused marks what the kernel drops, with an error or in silence, or leaves to other
	// tables.
	Refused bool
	// Metric orders ways to one destination, lowest first.
	Metric uint32
}

// EachRoute calls f for each route of both families. Of what changes meanwhile, [Watch] tells.
func (h *Host) EachRoute(f func(RouteEntry)) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := h.eachRoute(family, mainly(f)); err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return nil
}

// Local4 returns the IPv4 addresses at which the kernel takes packets for this host's own:
// those of all links, loopback and broadcast, and whatever a local route has. The list is
// whole, or there is an error.
func (h *Host) Local4() (list []netip.Prefix, err error) {
	for range wholeTries {
		list = list[:0]
		err = h.eachRoute(unix.AF_INET, mainly(func(w RouteEntry) {
			if w.Local {
				list = append(list, w.Dst)
			}
		}))
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return nil, err
}

// mainly leaves what other tables than the kernel's own have to nobody, but for addresses of this
// host.
func mainly(f func(RouteEntry)) func(RouteEntry, uint32) {
	return func(w RouteEntry, table uint32) {
		if w.Local || table == unix.RT_TABLE_MAIN {
			f(w)
		}
	}
}

// eachRoute calls f for each route of a family, with its table. Some may be missing where the
// list was interrupted.
func (h *Host) eachRoute(family int, f func(w RouteEntry, table uint32)) error {
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	req.Sockets = h.raw
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
	err := req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(message []byte) bool {
		if w, table, ok := parseEntry(message); ok {
			f(w, table)
		}
		return true
	})
	switch {
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case err != nil:
		return fmt.Errorf("cannot list the routes: %w", err)
	}
	return nil
}

// parseEntry reads the body of a route message. What the kernel has learnt of a path is no
// way of its own.
func parseEntry(b []byte) (w RouteEntry, table uint32, ok bool) {
	w, table, ok = parseRoute(b)
	return w, table, ok && binary.NativeEndian.Uint32(b[8:])&unix.RTM_F_CLONED == 0
}

// isLocal reports whether a route leads to this host itself. What somebody has put into a table
// of his own, he has a rule for: often one that catches packets for a proxy.
func isLocal(m []byte, table uint32) bool {
	protocol, kind := m[5], m[7]
	here := kind == unix.RTN_LOCAL || kind == unix.RTN_BROADCAST || kind == unix.RTN_ANYCAST
	return table == unix.RT_TABLE_LOCAL || here && (table == unix.RT_TABLE_MAIN || protocol == unix.RTPROT_KERNEL)
}

// parseRoute reads the body of a route message of any table. Without a destination it is
// for all addresses.
func parseRoute(b []byte) (w RouteEntry, table uint32, ok bool) {
	if len(b) < unix.SizeofRtMsg {
		return w, 0, false
	}
	attrs, err := nl.ParseRouteAttr(b[unix.SizeofRtMsg:])
	addr := netip.IPv4Unspecified()
	if family(b[0]) == 6 {
		addr = netip.IPv6Unspecified()
	}
	from := addr
	table, w.Source = uint32(b[4]), b[2] != 0
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_DST {
			addr, _ = netip.AddrFromSlice(a.Value)
		}
		if a.Attr.Type == unix.RTA_SRC {
			from, _ = netip.AddrFromSlice(a.Value)
		}
		if len(a.Value) != 4 {
			continue
		}
		value := binary.NativeEndian.Uint32(a.Value)
		switch a.Attr.Type {
		case unix.RTA_OIF:
			w.Link = int(value)
		case unix.RTA_PRIORITY:
			w.Metric = value
		case unix.RTA_TABLE:
			table = value
		}
	}
	w.Dst, w.Local = netip.PrefixFrom(addr, int(b[1])), isLocal(b, table)
	switch b[7] {
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		w.Refused = true
	}
	if w.Source {
		w.From = netip.PrefixFrom(from, int(b[2]))
	}
	return w, table, err == nil && family(b[0]) != 0 && w.Dst.IsValid()
}
