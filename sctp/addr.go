// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// DefaultUDPPort is that of the encapsulation of SCTP in UDP (RFC 6951 section 4).
const DefaultUDPPort = 9899

// Addr is the address of an end of an association: a port, and one or more hosts' addresses. Its string is
//
//	host[/host...]:port[/udp]
//
// as in 192.0.2.1:5000, [2001:db8::1]/192.0.2.1:5000 and, where UDP carries the packets and its port is not 9899,
// [2001:db8::1]:5000/40000. Addresses of a link alone, fe80::/10, have no place in it.
type Addr struct {
	Hosts []netip.Addr // of both families; empty is every address of this host
	Port  uint16
	UDP   uint16 // port of UDP that the packets travel in; 0 if they travel in IP
}

// Network implements net.Addr: it is "sctp" or "sctp+udp".
func (a *Addr) Network() string {
	if a.UDP != 0 {
		return "sctp+udp"
	}
	return "sctp"
}

// String implements net.Addr.
func (a *Addr) String() string {
	if a == nil {
		return "<nil>"
	}
	var b strings.Builder
	for i, host := range a.Hosts {
		if i > 0 {
			b.WriteByte('/')
		}
		if host.Is6() {
			fmt.Fprintf(&b, "[%s]", host)
		} else {
			b.WriteString(host.String())
		}
	}
	fmt.Fprintf(&b, ":%d", a.Port)
	if a.UDP != 0 && a.UDP != DefaultUDPPort {
		fmt.Fprintf(&b, "/%d", a.UDP)
	}
	return b.String()
}

// network is what the name of one says.
type network struct {
	name   string
	udp    bool
	v4, v6 bool
}

// parseNetwork reads the name of a network: sctp, sctp4 or sctp6, and +udp behind it.
func parseNetwork(name string) (network, error) {
	base, udp := strings.CutSuffix(name, "+udp")
	switch base {
	case "sctp":
		return network{name, udp, true, true}, nil
	case "sctp4":
		return network{name, udp, true, false}, nil
	case "sctp6":
		return network{name, udp, false, true}, nil
	}
	return network{}, net.UnknownNetworkError(name)
}

// takes reports whether an address is of the network.
func (n *network) takes(a netip.Addr) bool { return a.Is4() && n.v4 || a.Is6() && n.v6 }

// resolve reads an address, and asks for the addresses of names in it. udp is the port of UDP where it names none.
func (n *network) resolve(ctx context.Context, address string, udp uint16) (*Addr, error) {
	hosts, port, err := splitPort(address)
	if err != nil {
		return nil, &net.AddrError{Err: err.Error(), Addr: address}
	}
	a := &Addr{}
	port, encapsulation, named := strings.Cut(port, "/")
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port) // the names of services are those of TCP
	if err != nil {
		return nil, err
	}
	a.Port = uint16(number)
	switch {
	case named && !n.udp:
		return nil, &net.AddrError{Err: "a port of UDP without encapsulation: say " + n.name + "+udp", Addr: address}
	case named:
		number, err := strconv.ParseUint(encapsulation, 10, 16)
		if err != nil {
			return nil, &net.AddrError{Err: "invalid port of UDP", Addr: address}
		}
		a.UDP = uint16(number)
	case n.udp:
		a.UDP = udp
	}
	for _, host := range hosts {
		if a.Hosts, err = n.lookUp(ctx, a.Hosts, host); err != nil {
			return nil, err
		}
	}
	if len(hosts) > 0 && len(a.Hosts) == 0 {
		return nil, &net.AddrError{Err: "no address of " + n.name, Addr: address}
	}
	return a, nil
}

// takeAll takes an unspecified address for all that the host has of its family, as package net does: that of IPv6 for
// those of IPv4, too.
func (n *network) takeAll(a *Addr) error {
	for _, host := range a.Hosts {
		switch {
		case host.IsMulticast():
			return &net.AddrError{Err: "not the address of a host", Addr: host.String()}
		case host.IsUnspecified() && len(a.Hosts) > 1:
			return &net.AddrError{Err: "all addresses, and another one", Addr: host.String()}
		case host.IsUnspecified():
			n.v6 = n.v6 && host.Is6()
			a.Hosts = nil
		}
	}
	return nil
}

// lookUp adds the addresses of a host that are of the network, and not of a link alone.
func (n *network) lookUp(ctx context.Context, list []netip.Addr, host string) ([]netip.Addr, error) {
	found := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsLinkLocalUnicast() {
			return nil, &net.AddrError{Err: "an address of a link alone", Addr: host}
		}
		found = append(found, ip)
	} else if found, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, err
	}
	return n.add(list, found), nil
}

// add adds those of the addresses that a host has which can be an association's.
func (n *network) add(list, found []netip.Addr) []netip.Addr {
	for _, ip := range found {
		if ip = ip.Unmap(); n.takes(ip) && !ip.IsLinkLocalUnicast() && !slices.Contains(list, ip) {
			list = append(list, ip)
		}
	}
	return list
}

// splitPort takes an address apart; no hosts are all.
func splitPort(address string) (hosts []string, port string, err error) {
	end := strings.LastIndexByte(address, ':')
	if end < 0 || strings.HasSuffix(address[:end], ":") && !strings.HasSuffix(address[:end], "]") {
		return nil, "", fmt.Errorf("missing port, or IPv6 address without brackets")
	}
	list, port := address[:end], address[end+1:]
	if list == "" {
		return nil, port, nil
	}
	for _, host := range strings.Split(list, "/") {
		inner, opened := strings.CutPrefix(host, "[")
		inner, closed := strings.CutSuffix(inner, "]")
		switch {
		case opened != closed, inner == "", !opened && strings.Contains(inner, ":"):
			return nil, "", fmt.Errorf("an IPv6 address stands in brackets, and several hosts are divided by /")
		}
		hosts = append(hosts, inner)
	}
	return hosts, port, nil
}
