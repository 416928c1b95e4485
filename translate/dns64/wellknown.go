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
	m := q.reply(dns.RcodeSuccess)
	m.Authoritative = true
	owner := q.Msg.Question[0].Name
	switch {
	case name != wellKnownName:
		m.Rcode = dns.RcodeNameError
	case q.Msg.Question[0].Qtype == dns.TypeA:
		for _, a := range wellKnownAddresses {
			m.Answer = append(m.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: localTTL},
				A:   a.AsSlice(),
			})
		}
	case q.Msg.Question[0].Qtype == dns.TypeAAAA:
		// The well-known prefix stands for these two, although they are not global.
		for i := range p.prefixes {
			for _, a := range wellKnownAddresses {
				m.Answer = append(m.Answer, newAAAA(owner, localTTL, p.prefixes[i].Embed(a)))
			}
		}
	}
	if len(m.Answer) == 0 {
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: dns.RR_Header{Name: wellKnownName, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: localTTL},
			Ns:  wellKnownName, Mbox: "hostmaster." + wellKnownName,
			Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: localTTL,
		}}
	}
	return m
}
