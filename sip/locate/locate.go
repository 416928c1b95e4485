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
	// maxTargets is how many targets a URI has, half of them of each family, so that the many addresses of one hide none
	// of the other.
	maxTargets = 16
	perFamily  = maxTargets / 2
	// maxQuestions is how many questions a URI may cost: enough for a NAPTR record, a service, and the hosts that fill all
	// places, one each.
	maxQuestions = 24
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

// Usable reports whether who asks can reach anything by a transport in a family. What cannot be reached is not asked for,
// and takes no place of what can be.
type Usable func(transport string, v4 bool) bool

// URI finds where a URI leads, best first: by its port, by services, or by its name alone. The
// transport is what is wanted; if it is UDP and the URI names none, others serve as well, by what
// NAPTR records say, else TCP after UDP.
func URI(ctx context.Context, names Names, u *message.URI, transport string, usable Usable) []transaction.Target {
	host := u.Host
	if m, has := u.Params.Get("maddr"); has { // RFC 3261 section 19.1.1
		host = strings.Trim(m, "[]")
	}
	s := search{names: names, usable: usable}
	s.find(ctx, host, u, transport)
	return s.found
}

// search is what was asked of one URI, and found.
type search struct {
	names     Names
	usable    Usable
	questions int
	of6, of4  int
	found     []transaction.Target
}

// ask reports whether one more question may be asked, and is of use.
func (s *search) ask() bool {
	if s.questions == maxQuestions || s.of6 == perFamily && s.of4 == perFamily {
		return false
	}
	s.questions++
	return true
}

func (s *search) find(ctx context.Context, host string, u *message.URI, transport string) {
	if a, err := netip.ParseAddr(host); err == nil {
		s.found = []transaction.Target{{Transport: transport, Remote: netip.AddrPortFrom(a.Unmap(), cmp.Or(u.Port, usual(transport)))}}
		return
	}
	if u.Port != 0 {
		s.addresses(ctx, host, u.Port, transport)
		return
	}
	open := transport == "UDP" && !u.Params.Has("transport")
	if open || transport == "TLS" {
		s.byNAPTR(ctx, host, transport)
	}
	wanted := []string{transport}
	if open {
		wanted = append(wanted, "TCP")
	}
	for _, t := range wanted {
		if len(s.found) == 0 {
			s.services(ctx, service(t), protocol(t), host, t)
		}
	}
	if len(s.found) == 0 {
		s.addresses(ctx, host, usual(transport), transport)
	}
}

// byNAPTR asks which transports a domain has (section 4.1). A URI of sips is served by TLS alone.
func (s *search) byNAPTR(ctx context.Context, host, transport string) {
	if !s.ask() {
		return
	}
	records, err := s.names.LookupNAPTR(ctx, host)
	if err != nil {
		return
	}
	for _, r := range chosen(records, func(t string) bool { return s.reaches(t) && (transport != "TLS" || t == "TLS") }) {
		s.services(ctx, "", "", r.Replacement, r.transport())
	}
}

// reaches reports whether a transport is of use in any family.
func (s *search) reaches(transport string) bool {
	return s.usable(transport, false) || s.usable(transport, true)
}

// services are the servers of a service, by priority and weight (RFC 2782). The resolver leaves out records that name no
// host, and returns an error beside the others.
func (s *search) services(ctx context.Context, service, protocol, name, transport string) {
	if !s.reaches(transport) || !s.ask() {
		return
	}
	_, list, _ := s.names.LookupSRV(ctx, service, protocol, name)
	for _, one := range list[:min(len(list), maxServices)] {
		s.addresses(ctx, one.Target, one.Port, transport)
	}
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
func (s *search) addresses(ctx context.Context, host string, port uint16, transport string) {
	for _, family := range []struct {
		network string
		v4      bool
		found   *int
	}{{"ip6", false, &s.of6}, {"ip4", true, &s.of4}} {
		if !s.usable(transport, family.v4) || *family.found == perFamily || !s.ask() {
			continue
		}
		list, err := s.names.LookupNetIP(ctx, family.network, strings.TrimSuffix(host, "."))
		if err != nil {
			continue
		}
		list = list[:min(len(list), perFamily-*family.found)]
		*family.found += len(list)
		for _, a := range list {
			s.found = append(s.found, transaction.Target{Transport: transport, Remote: netip.AddrPortFrom(a.Unmap(), port)})
		}
	}
}
