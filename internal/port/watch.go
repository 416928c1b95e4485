// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ChangeKind says what part of the host's network state changed.
type ChangeKind int

const (
	// LinkChanged is a link that came, went, or changed its state, or what a router has
	// advertised for it, such as its MTU.
	LinkChanged ChangeKind = iota + 1
	// AddressChanged is an address that came, went or changed its state.
	AddressChanged
	// RouteChanged is a route that came or went, or a rule, which may lead packets to all
	// destinations of its family elsewhere.
	RouteChanged
	// Overrun means that changes were lost; look at everything again.
	Overrun
)

// String returns the kind in words.
func (k ChangeKind) String() string {
	switch k {
	case LinkChanged:
		return "link"
	case AddressChanged:
		return "address"
	case RouteChanged:
		return "route"
	case Overrun:
		return "overrun"
	}
	return fmt.Sprintf("unknown change %d", int(k))
}

// Change reports that something changed; what it is now, the reader looks up.
// Changes caused by this process are reported too.
type Change struct {
	Kind ChangeKind
	// Family is 4 or 6 for addresses and routes, else 0.
	Family int
	// Link is the interface index of a link or address, else 0.
	Link int
	// Address is the host's own that came, changed or, as Gone says, went.
	Address netip.Addr
	Gone    bool
	// Dst is the destination of a route; Source reports that it is for some sources alone,
	// Local that it leads to this host itself.
	Dst           netip.Prefix
	Source, Local bool
}

// Watch reports changes of links, addresses, routes and rules in the calling thread's
// network namespace until ctx ends; then the channel is closed. A reader that
// is too slow gets one Overrun for all that it missed.
func Watch(ctx context.Context) (<-chan Change, error) {
	f, err := openWatch()
	if err != nil {
		return nil, fmt.Errorf("cannot watch the network configuration: %w", err)
	}
	changes := make(chan Change, 64)
	stop := context.AfterFunc(ctx, func() { f.Close() })
	go func() {
		defer close(changes)
		defer f.Close()
		defer stop()
		relayChanges(ctx, f, changes)
	}()
	return changes, nil
}

// openWatch opens a netlink socket that is subscribed to the changes. Only
// here the Go poller is used: nothing is fast about configuration.
func openWatch() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
		unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV6_IFINFO |
		1<<(unix.RTNLGRP_IPV4_RULE-1) | 1<<(unix.RTNLGRP_IPV6_RULE-1))
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// relayChanges reads until the file is closed.
func relayChanges(ctx context.Context, f *os.File, changes chan<- Change) {
	buf := make([]byte, 8<<10) // a message that is larger counts as missed
	overrun := false
	for {
		n, err := f.Read(buf)
		if errors.Is(err, unix.ENOBUFS) {
			overrun = true
		} else if err != nil {
			return
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:max(n, 0)])
		if err != nil {
			overrun = true
		}
		for i := range msgs {
			c, ok := parseChange(&msgs[i])
			if !ok || overrun {
				continue
			}
			select {
			case changes <- c:
			default:
				overrun = true
			}
		}
		if overrun {
			select {
			case changes <- Change{Kind: Overrun}:
				overrun = false
			case <-ctx.Done():
				return
			}
		}
	}
}

// parseChange reads what of a netlink message a Change tells.
func parseChange(m *syscall.NetlinkMessage) (Change, bool) {
	d := m.Data
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(d) >= unix.SizeofIfInfomsg {
			return Change{Kind: LinkChanged, Link: index(d[4:8])}, true
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(d) >= unix.SizeofIfAddrmsg {
			return Change{
				Kind: AddressChanged, Family: family(d[0]), Link: index(d[4:8]),
				Address: ownAddress(d), Gone: m.Header.Type == unix.RTM_DELADDR,
			}, true
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if w, _, ok := parseRoute(d); ok {
			return Change{Kind: RouteChanged, Family: family(d[0]), Dst: w.Dst, Source: w.Source, Local: w.Local}, true
		}
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		if len(d) > 0 { // of struct fib_rule_hdr the family
			return ruleChange(family(d[0]))
		}
	}
	return Change{}, false
}

// ruleChange is that of a rule, which others than those of the two families, such as of multicast, are not.
func ruleChange(family int) (c Change, ok bool) {
	c = Change{Kind: RouteChanged, Family: family}
	switch family {
	case 4:
		c.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	case 6:
		c.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return c, c.Dst.IsValid()
}

// ownAddress reads the host's own address from a message of addresses: IFA_LOCAL where the link leads to one
// peer, whose IFA_ADDRESS then is, or else IFA_ADDRESS.
func ownAddress(d []byte) (own netip.Addr) {
	attrs, _ := nl.ParseRouteAttr(d[unix.SizeofIfAddrmsg:])
	for _, a := range attrs {
		if a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS && !own.IsValid() {
			own, _ = netip.AddrFromSlice(a.Value)
		}
	}
	return own
}

// index reads an interface index in host order.
func index(b []byte) int { return int(binary.NativeEndian.Uint32(b)) }

// family turns AF_INET and AF_INET6 into 4 and 6.
func family(af byte) int {
	switch af {
	case unix.AF_INET:
		return 4
	case unix.AF_INET6:
		return 6
	}
	return 0
}
