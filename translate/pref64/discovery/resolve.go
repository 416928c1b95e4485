// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/translate/pref64"
)

const askTimeout = 2 * time.Second

// answer is what name servers said of ipv4only.arpa.
type answer struct {
	prefixes []netip.Prefix
	ttl      time.Duration // of the records, or of their absence; 0 if not said
}

var errSilent = errors.New("no name server answers")

// ask asks the name servers of a link in turn for AAAA records of ipv4only.arpa (RFC 7050
// section 3), until one tells of a prefix: those that several routers name need not be alike.
// That there is none is the word of all: one that failed may be the DNS64. The CD bit stays
// clear, without which no DNS64 makes any.
func ask(ctx context.Context, link string, resolvers []netip.AddrPort) (answer, error) {
	var failure error
	var without *answer
	for _, at := range resolvers {
		m, err := askOne(ctx, link, at)
		if err != nil {
			failure = err
			continue
		}
		if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
			failure = fmt.Errorf("the name server %v answers %s", at, dns.RcodeToString[m.Rcode])
			continue
		}
		a := judge(m)
		if len(a.prefixes) > 0 {
			return a, nil
		}
		if without == nil {
			without = &a
		}
	}
	switch {
	case failure != nil:
		return answer{}, failure
	case without == nil:
		return answer{}, errSilent
	}
	return *without, nil
}

// askOne asks one name server, over TCP if the answer is too long for a datagram.
func askOne(ctx context.Context, link string, at netip.AddrPort) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(pref64.Name, dns.TypeAAAA)
	q.SetEdns0(1232, false)
	var m *dns.Msg
	var err error
	for _, network := range []string{"udp", "tcp"} {
		client := &dns.Client{Net: network, Timeout: askTimeout, Dialer: &net.Dialer{Timeout: askTimeout, Control: byLink(link)}}
		if m, _, err = client.ExchangeContext(ctx, q, at.String()); err != nil || !m.Truncated {
			break
		}
	}
	return m, err
}

// byLink has a socket use one link alone: the answer is about the network behind it (RFC
// 8880 section 7.1).
func byLink(link string) func(network, address string, c syscall.RawConn) error {
	if link == "" {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), link) }); err != nil {
			return err
		}
		return failed
	}
}

// judge reads prefixes, and how long they or their absence last, out of an answer.
func judge(m *dns.Msg) answer {
	var a answer
	var addresses []netip.Addr
	for _, rr := range m.Answer {
		aaaa, ok := rr.(*dns.AAAA)
		if !ok {
			continue
		}
		address, ok := netip.AddrFromSlice(aaaa.AAAA)
		if !ok {
			continue
		}
		ttl := time.Duration(aaaa.Hdr.Ttl) * time.Second
		if len(addresses) == 0 || ttl < a.ttl {
			a.ttl = ttl
		}
		addresses = append(addresses, address)
	}
	a.prefixes = pref64.Search(addresses)
	if len(addresses) > 0 {
		return a
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			a.ttl = time.Duration(min(soa.Hdr.Ttl, soa.Minttl)) * time.Second
		}
	}
	return a
}

// systemResolvers is where the host's own name servers are listed (resolv.conf(5)).
const systemResolvers = "/etc/resolv.conf"

// SystemResolvers returns the host's own name servers, for hosts with one network.
func SystemResolvers() ([]netip.AddrPort, error) {
	listed, err := dns.ClientConfigFromFile(systemResolvers)
	if err != nil {
		return nil, fmt.Errorf("cannot read the name servers of this host: %w", err)
	}
	var found []netip.AddrPort
	for _, s := range listed.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			found = append(found, netip.AddrPortFrom(a, dnsPort))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s lists no name server", systemResolvers)
	}
	return found, nil
}
