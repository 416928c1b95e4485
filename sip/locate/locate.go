// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package locate finds the servers that a SIP URI leads to, by NAPTR, SRV, AAAA and A records
// (RFC 3263 section 4). What it asks, and what it takes of the answers, is bounded.
//
//house:shared
package locate

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

const (
	// Within is how long all questions about one name may take.
	Within = 8 * time.Second
	// maxServices is how many NAPTR records and how many servers of a name are tried.
	maxServices = 8
	// maxTargets is how many targets a URI has.
	maxTargets = 16
)

// Ports of SIP that are not named (RFC 3261 section 19.1.2).
const (
	portSIP  = 5060
	portSIPS = 5061
)

// Names asks name servers; [System] is those of this host.
type Names interface {
	LookupNAPTR(ctx context.Context, name string) ([]NAPTR, error)
	LookupSRV(ctx context.Context, service, protocol, name string) (string, []*net.SRV, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// URI finds where a URI leads, best first: by its port, by services, or by its name alone. The
// transport is what is wanted; if it is UDP and the URI names none, others serve as well, by what
// NAPTR records say, else TCP after UDP.
func URI(ctx context.Context, names Names, u *message.URI, transport string) []transaction.Target {
	host := u.Host
	if m, has := u.Params.Get("maddr"); has { // RFC 3261 section 19.1.1
		host = strings.Trim(m, "[]")
	}
	found := find(ctx, names, host, u, transport)
	return found[:min(len(found), maxTargets)]
}

func find(ctx context.Context, names Names, host string, u *message.URI, transport string) (found []transaction.Target) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []transaction.Target{{Transport: transport, Remote: netip.AddrPortFrom(a.Unmap(), cmp.Or(u.Port, usual(transport)))}}
	}
	if u.Port != 0 {
		return addresses(ctx, names, host, u.Port, transport)
	}
	open := transport == "UDP" && !u.Params.Has("transport")
	if open || transport == "TLS" {
		found = byNAPTR(ctx, names, host, transport)
	}
	if len(found) > 0 {
		return found
	}
	wanted := []string{transport}
	if open {
		wanted = append(wanted, "TCP")
	}
	for _, t := range wanted {
		if found = services(ctx, names, service(t), protocol(t), host, t); len(found) > 0 {
			return found
		}
	}
	return addresses(ctx, names, host, usual(transport), transport)
}

// byNAPTR asks which transports a domain has (section 4.1). A URI of sips is served by TLS alone.
func byNAPTR(ctx context.Context, names Names, host, transport string) (found []transaction.Target) {
	records, err := names.LookupNAPTR(ctx, host)
	if err != nil {
		return nil
	}
	for _, r := range chosen(records) {
		if t := r.transport(); transport != "TLS" || t == "TLS" {
			found = append(found, services(ctx, names, "", "", r.Replacement, t)...)
		}
	}
	return found
}

// services are the servers of a service, by priority and weight (RFC 2782).
func services(ctx context.Context, names Names, service, protocol, name, transport string) (found []transaction.Target) {
	_, list, err := names.LookupSRV(ctx, service, protocol, name)
	if err != nil {
		return nil
	}
	for _, one := range list[:min(len(list), maxServices)] {
		found = append(found, addresses(ctx, names, one.Target, one.Port, transport)...)
	}
	return found
}

func usual(transport string) uint16 {
	if transport == "TLS" {
		return portSIPS
	}
	return portSIP
}

func service(transport string) string {
	if transport == "TLS" {
		return "sips"
	}
	return "sip"
}

func protocol(transport string) string {
	if transport == "UDP" {
		return "udp"
	}
	return "tcp"
}

// addresses are those of a host, IPv6 first.
func addresses(ctx context.Context, names Names, host string, port uint16, transport string) (list []transaction.Target) {
	for _, network := range []string{"ip6", "ip4"} {
		found, err := names.LookupNetIP(ctx, network, strings.TrimSuffix(host, "."))
		if err != nil {
			continue
		}
		for _, a := range found {
			list = append(list, transaction.Target{Transport: transport, Remote: netip.AddrPortFrom(a.Unmap(), port)})
		}
	}
	return list
}
