// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// reverseLabels are those of a whole address below ip6.arpa (RFC 3596 section 2.5).
const reverseLabels = 32

// addressOf returns the address of a reverse name in small letters; ok is false for
// anything but a whole IPv6 address.
func addressOf(name string) (a netip.Addr, ok bool) {
	digits, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(digits) != 2*reverseLabels-1 {
		return a, false
	}
	var raw [16]byte
	for i := range reverseLabels {
		at := len(digits) - 1 - 2*i
		if i > 0 && digits[at+1] != '.' {
			return a, false
		}
		digit := strings.IndexByte("0123456789abcdef", digits[at])
		if digit < 0 {
			return a, false
		}
		raw[i/2] |= byte(digit << (4 * (1 - i%2)))
	}
	return netip.AddrFrom16(raw), true
}

// reverse answers reverse queries below the prefixes (RFC 6147 section 5.3.1, RFC 8880
// section 7.2.1); others go their way.
func (l *Lookup) reverse(name string) {
	address, ok := addressOf(name)
	var v4 netip.Addr
	if ok {
		v4, ok = l.policy.embedded(address)
	}
	switch {
	case !ok:
		l.forward(name)
	case l.policy.ptrName != "":
		l.finish(l.pointer(l.policy.ptrName), OutcomeLocal)
	case slices.Contains(wellKnownAddresses[:], v4):
		l.finish(l.pointer(wellKnownName), OutcomeLocal)
	default:
		b := v4.As4()
		l.want(fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0]), dns.TypePTR, func(r Result) { l.alias(name, r) })
	}
}

// pointer is an answer by this host itself.
func (l *Lookup) pointer(to string) *dns.Msg {
	m := l.query.reply(dns.RcodeSuccess)
	m.Authoritative = true
	m.Answer = []dns.RR{&dns.PTR{
		Hdr: dns.RR_Header{Name: l.query.Msg.Question[0].Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: localTTL},
		Ptr: to,
	}}
	return m
}

// alias puts a CNAME before the PTR records of the IPv4 address. Where that name has
// none of its own, or is an alias itself, the query is one like any other: the CNAME
// would lead nowhere, or make a chain longer.
func (l *Lookup) alias(name string, r Result) {
	target := l.ask.Name
	if r.Msg == nil || r.Msg.Rcode != dns.RcodeSuccess || !pointsTo(r.Msg.Answer, target) {
		l.forward(name)
		return
	}
	m := l.from(r.Msg, false) // nobody has signed the CNAME
	m.Answer = append([]dns.RR{&dns.CNAME{
		Hdr:    dns.RR_Header{Name: l.query.Msg.Question[0].Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: min(r.Msg.Answer[0].Header().Ttl, noSOA)},
		Target: target,
	}}, r.Msg.Answer...)
	l.finish(m, OutcomeReverse)
}

// pointsTo tells whether an answer has PTR records at the name, and no CNAME.
func pointsTo(answer []dns.RR, name string) bool {
	found := false
	for _, rr := range answer {
		switch rr.Header().Rrtype {
		case dns.TypeCNAME, dns.TypeDNAME:
			return false
		case dns.TypePTR:
			found = found || strings.EqualFold(rr.Header().Name, name)
		}
	}
	return found
}
