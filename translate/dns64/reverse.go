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

// reverse answers what is asked of reverse names below the prefixes, of whatever type (RFC 6147
// section 5.3.1, RFC 8880 section 7.2.1), and reports whether it does: others go their way.
func (l *Lookup) reverse(name string) bool {
	address, ok := addressOf(name)
	if !ok {
		return false
	}
	v4, ok := l.policy.embedded(address)
	switch {
	case !ok:
		return false
	case l.policy.ptrName != "":
		l.finish(l.pointer(l.policy.ptrName), OutcomeLocal)
	case slices.Contains(wellKnownAddresses[:], v4):
		l.finish(l.pointer(wellKnownName), OutcomeLocal)
	default:
		b := v4.As4()
		l.want(fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0]), dns.TypePTR, func(r Result) { l.alias(name, r) })
	}
	return true
}

// pointer is an answer by this host itself.
func (l *Lookup) pointer(to string) *dns.Msg {
	question := l.query.Msg.Question[0]
	var records []dns.RR
	if question.Qtype == dns.TypePTR || question.Qtype == dns.TypeANY {
		records = []dns.RR{&dns.PTR{Hdr: localHeader(question.Name, dns.TypePTR), Ptr: to}}
	}
	return l.query.local(question.Name, records...)
}

// alias answers by a CNAME to the PTR records of the IPv4 address. If that name is an alias
// itself, as where less than a /24 is delegated (RFC 2317), the CNAME leads to its end: the
// chain grows no longer. Where there are no PTR records, the query is one like any other.
func (l *Lookup) alias(name string, r Result) {
	question := l.query.Msg.Question[0]
	target, ttl := pointsTo(r.Msg)
	if target == "" {
		l.forward(name)
		return
	}
	answer := func(r Result) {
		if r.Msg == nil {
			l.pass(r, OutcomeFailed)
			return
		}
		m := l.from(r.Msg, false) // no one has signed the CNAME
		m.Answer = []dns.RR{&dns.CNAME{
			Hdr:    dns.RR_Header{Name: question.Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: min(ttl, noSOA)},
			Target: target,
		}}
		for _, rr := range r.Msg.Answer {
			if strings.EqualFold(rr.Header().Name, target) {
				m.Answer = append(m.Answer, rr)
			}
		}
		l.finish(m, OutcomeReverse)
	}
	switch question.Qtype {
	case dns.TypePTR:
		answer(r)
	case dns.TypeCNAME, dns.TypeANY:
		answer(Result{Msg: new(dns.Msg)})
	default: // the name exists, and has what its target has
		l.want(target, question.Qtype, answer)
	}
}

// pointsTo returns the name at which an answer has PTR records, and the least TTL on the way
// there and of these; it is empty if there are none.
func pointsTo(m *dns.Msg) (name string, ttl uint32) {
	if m == nil || m.Rcode != dns.RcodeSuccess {
		return "", 0
	}
	ttl = noSOA
	for _, rr := range m.Answer {
		h := rr.Header()
		ttl = min(ttl, lifeOf(h.Ttl))
		if h.Rrtype == dns.TypePTR {
			name = strings.ToLower(h.Name)
		}
	}
	return name, ttl
}
