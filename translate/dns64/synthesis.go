// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"net/netip"

	"github.com/miekg/dns"
)

// noSOA is the longest life of a synthetic record whose domain's SOA was not heard, in
// seconds (RFC 6147 section 5.1.7).
const noSOA = 600

// judgeNative looks at the answer to the AAAA query (RFC 6147 sections 5.1.1 to 5.1.5).
func (l *Lookup) judgeNative(r Result) {
	if r.bogus() || r.Msg != nil && r.Msg.Rcode == dns.RcodeNameError {
		// Forged data must not lead to an A query, by which it could be got around (RFC
		// 6147 section 5.5).
		l.pass(r, OutcomeForwarded)
		return
	}
	l.native = r
	if r.Msg != nil && r.Msg.Rcode == dns.RcodeSuccess {
		answer, left, excluded := l.policy.withoutExcluded(r.Msg.Answer)
		l.nativeLeft = l.from(r.Msg, r.authentic() && !excluded)
		l.nativeLeft.Answer = answer
		if left {
			l.explained = explanations(r.Msg)
			outcome := OutcomeNative
			if excluded {
				outcome = OutcomeExcluded
			}
			l.finish(l.nativeLeft, outcome)
			return
		}
	}
	// Any other error is as good as an empty answer, and so is none at all.
	l.want(l.ask.Name, dns.TypeA, l.judgeA)
	if l.ahead != nil {
		l.Take(*l.ahead)
	}
}

// withoutExcluded returns an answer section without the AAAA records of the exclusion
// set, whether AAAA records are left, and whether some went. Signatures over records
// some of which went go as well.
func (p *Policy) withoutExcluded(section []dns.RR) (kept []dns.RR, left, excluded bool) {
	for _, rr := range section {
		if aaaa, ok := rr.(*dns.AAAA); ok {
			if a, valid := netip.AddrFromSlice(aaaa.AAAA); !valid || within(p.exclude, a) {
				excluded = true
				continue
			}
			left = true
		}
		kept = append(kept, rr)
	}
	if excluded {
		kept = withoutSignatures(kept, dns.TypeAAAA)
	}
	return kept, left, excluded
}

func withoutSignatures(section []dns.RR, covered uint16) []dns.RR {
	var kept []dns.RR
	for _, rr := range section {
		if signature, ok := rr.(*dns.RRSIG); ok && signature.TypeCovered == covered {
			continue
		}
		kept = append(kept, rr)
	}
	return kept
}

// judgeA makes the response of the answer to the A query (RFC 6147 sections 5.1.6,
// 5.1.7 and 5.4).
func (l *Lookup) judgeA(r Result) {
	switch {
	case r.Msg == nil || r.Msg.Rcode != dns.RcodeSuccess:
		l.pass(r, OutcomeEmpty)
		return
	}
	answer, made := l.policy.synthesize(r.Msg.Answer, lifeBound(l.native.Msg))
	l.explained = explanations(r.Msg)
	switch {
	case made:
		m := l.from(r.Msg, r.authentic() && l.nativeLeft != nil && l.native.authentic())
		m.Answer = answer
		l.finish(m, OutcomeSynthesized)
	case l.nativeLeft != nil:
		l.finish(l.nativeLeft, OutcomeEmpty)
	default:
		m := l.from(r.Msg, false)
		m.Answer = answer
		l.finish(m, OutcomeEmpty)
	}
}

// lifeBound returns the longest life of synthetic records by the answer to the AAAA
// query, in seconds.
func lifeBound(native *dns.Msg) uint32 {
	if native == nil {
		return noSOA
	}
	for _, rr := range native.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(lifeOf(soa.Hdr.Ttl), lifeOf(soa.Minttl)) // RFC 2308 section 5
		}
	}
	return noSOA
}

// lifeOf is what a TTL means: with its highest bit set, 0 (RFC 2181 section 8).
func lifeOf(ttl uint32) uint32 {
	if ttl >= 1<<31 {
		return 0
	}
	return ttl
}

// synthesize returns the answer section of a AAAA response made of that of an A
// response: chains of CNAME and DNAME stay, A records become AAAA records. made is
// false if there are none of these.
func (p *Policy) synthesize(section []dns.RR, bound uint32) (answer []dns.RR, made bool) {
	var addresses []netip.Addr
	for _, rr := range withoutSignatures(section, dns.TypeA) {
		a, ok := rr.(*dns.A)
		if !ok {
			answer = append(answer, rr)
			continue
		}
		v4, valid := netip.AddrFromSlice(a.A)
		if v4 = v4.Unmap(); !valid || !v4.Is4() {
			continue
		}
		addresses = p.appendAddresses(addresses[:0], v4)
		for _, address := range addresses {
			answer = append(answer, newAAAA(a.Hdr.Name, min(lifeOf(a.Hdr.Ttl), bound), address))
			made = true
		}
	}
	return answer, made
}

func newAAAA(owner string, ttl uint32, a netip.Addr) *dns.AAAA {
	return &dns.AAAA{
		Hdr:  dns.RR_Header{Name: owner, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: ttl},
		AAAA: a.AsSlice(),
	}
}
