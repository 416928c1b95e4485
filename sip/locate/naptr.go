// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package locate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// NAPTR is a record by which a domain names a service (RFC 3403 section 4.1).
type NAPTR struct {
	Order, Preference      uint16
	Flags, Service, Regexp string
	Replacement            string
}

// transport is what a service of SIP is carried by, "" for what is none that we know (RFC 3263
// section 4.1).
func (r NAPTR) transport() string {
	switch strings.ToUpper(r.Service) {
	case "SIP+D2U":
		return "UDP"
	case "SIP+D2T":
		return "TCP"
	case "SIPS+D2T":
		return "TLS"
	}
	return ""
}

// chosen are the records that lead to SRV records of services that we know, by transports of use, best
// first. A regular expression has no place in them.
func chosen(records []NAPTR, use func(transport string) bool) []NAPTR {
	list := slices.DeleteFunc(slices.Clone(records), func(r NAPTR) bool {
		t := r.transport()
		return t == "" || !use(t) || !strings.EqualFold(r.Flags, "s") || r.Regexp != "" || strings.Trim(r.Replacement, ".") == ""
	})
	slices.SortStableFunc(list, func(a, b NAPTR) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Preference, b.Preference))
	})
	return list[:min(len(list), maxServices)]
}

// System asks the name servers of this host.
type System struct {
	*net.Resolver
	// Dial opens a connection to one of them.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Servers is the file that lists them, for NAPTR records; "" is /etc/resolv.conf.
	Servers string
}

// NewSystem makes one whose sockets are opened by dial.
func NewSystem(dial func(ctx context.Context, network, address string) (net.Conn, error)) System {
	return System{Resolver: &net.Resolver{PreferGo: true, Dial: dial}, Dial: dial}
}

// maxServers is how many name servers are asked for NAPTR records, each by UDP and, if that answer is
// cut off, by TCP.
const maxServers = 2

// LookupNAPTR asks one name server after the other.
func (s System) LookupNAPTR(ctx context.Context, name string) (list []NAPTR, err error) {
	file := cmp.Or(s.Servers, "/etc/resolv.conf")
	c, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the list of name servers %s: %w", file, err)
	}
	err = errors.New("no name server is listed")
	for _, server := range c.Servers[:min(len(c.Servers), maxServers)] {
		var answer *dns.Msg
		if answer, err = s.ask(ctx, net.JoinHostPort(server, c.Port), name); err == nil {
			return naptrs(answer), nil
		}
	}
	return nil, err
}

// ask asks one name server.
func (s System) ask(ctx context.Context, server, name string) (answer *dns.Msg, err error) {
	for _, network := range []string{"udp", "tcp"} {
		if answer, err = s.exchange(ctx, network, server, name); err != nil || !answer.Truncated {
			break
		}
	}
	if err == nil && answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		err = fmt.Errorf("the name server %s answers %s", server, dns.RcodeToString[answer.Rcode])
	}
	return answer, err
}

// perServer is how long one name server has: what it leaves of Within is for the other records.
const perServer = time.Second

func (s System) exchange(ctx context.Context, network, server, name string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, perServer)
	defer cancel()
	conn, err := s.Dial(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), dns.TypeNAPTR)
	question.SetEdns0(1232, false)
	answer, _, err := (&dns.Client{Net: network, Timeout: perServer, UDPSize: 1232}).ExchangeWithConnContext(ctx, question, &dns.Conn{Conn: conn, UDPSize: 1232})
	return answer, err
}

// naptrs are the records of an answer.
func naptrs(answer *dns.Msg) (list []NAPTR) {
	for _, rr := range answer.Answer {
		if r, ok := rr.(*dns.NAPTR); ok {
			list = append(list, NAPTR{r.Order, r.Preference, r.Flags, r.Service, r.Regexp, r.Replacement})
		}
	}
	return list
}
