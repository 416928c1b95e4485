// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"net/netip"

	"github.com/miekg/dns"
)

// The name by which hosts find the prefixes, and its addresses (RFC 7050 section 8,
// RFC 8880 section 7.1).
const wellKnownName = "ipv4only.arpa."

var wellKnownAddresses = [2]netip.Addr{
	netip.AddrFrom4([4]byte{192, 0, 0, 170}),
	netip.AddrFrom4([4]byte{192, 0, 0, 171}),
}

// localTTL is the life of what is answered here, in seconds. Hosts ask again ten
// seconds before its end, so it is also how long they keep a prefix that has changed.
const localTTL = 600

// wellKnownAnswer answers what is asked of ipv4only.arpa and below, for which a DNS64 is
// the authority (RFC 8880 section 7.1). The exception, its DS, is not asked here.
func (p *Policy) wellKnownAnswer(q *Query, name string) *dns.Msg {
	owner := q.Msg.Question[0].Name
	var records []dns.RR
	switch {
	case name != wellKnownName:
	case q.Msg.Question[0].Qtype == dns.TypeA:
		for _, a := range wellKnownAddresses {
			records = append(records, &dns.A{Hdr: localHeader(owner, dns.TypeA), A: a.AsSlice()})
		}
	case q.Msg.Question[0].Qtype == dns.TypeAAAA:
		// The well-known prefix stands for these two, although they are not global.
		for i := range p.prefixes {
			for _, a := range wellKnownAddresses {
				records = append(records, newAAAA(owner, localTTL, p.prefixes[i].Embed(a)))
			}
		}
	}
	m := q.local(wellKnownName, records...)
	if name != wellKnownName {
		m.Rcode = dns.RcodeNameError
	}
	return m
}

// localhostName is that of every host for itself, with all names below.
const localhostName = "localhost."

// localhost answers what is asked of these names, by which no one else is meant (RFC 6761
// section 6.3).
func (q *Query) localhost() *dns.Msg {
	owner := q.Msg.Question[0].Name
	var records []dns.RR
	switch q.Msg.Question[0].Qtype {
	case dns.TypeA:
		records = []dns.RR{&dns.A{Hdr: localHeader(owner, dns.TypeA), A: netip.AddrFrom4([4]byte{127, 0, 0, 1}).AsSlice()}}
	case dns.TypeAAAA:
		records = []dns.RR{newAAAA(owner, localTTL, netip.IPv6Loopback())}
	}
	return q.local(localhostName, records...)
}

// local is an answer by this host itself, for a zone of its own; without records it says that
// there are none.
func (q *Query) local(zone string, records ...dns.RR) *dns.Msg {
	m := q.reply(dns.RcodeSuccess)
	m.Authoritative = true
	m.Answer = records
	if len(records) == 0 {
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: localHeader(zone, dns.TypeSOA), Ns: zone, Mbox: "hostmaster." + zone,
			Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: localTTL,
		}}
	}
	return m
}

func localHeader(owner string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: localTTL}
}
