// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"strings"

	"github.com/miekg/dns"
)

// Ask is what an upstream is asked, and the key under which its answer is kept.
type Ask struct {
	// Name is a full domain name in small letters.
	Name        string
	Type, Class uint16
	// CD and DO are the bits of those names, as the client has set them: both change
	// what a validating upstream says.
	CD, DO bool
}

// Result is what came back.
type Result struct {
	// Msg is nil if no upstream answered.
	Msg *dns.Msg
	// Trusted reports that the upstream validates, and that its word counts.
	Trusted bool
}

// about returns the result with the answer to the question alone.
func (r Result) about(a Ask) Result {
	if r.Msg != nil {
		m := *r.Msg
		m.Answer = onlyAsked(a, m.Answer)
		r.Msg = &m
	}
	return r
}

// authentic reports whether a trusted upstream has found all of the message valid.
func (r Result) authentic() bool { return r.Trusted && r.Msg != nil && r.Msg.AuthenticatedData }

// bogus reports whether a trusted upstream refuses the data as forged: the word for that
// is an extended error (RFC 8914 section 4).
func (r Result) bogus() bool {
	if !r.Trusted || r.Msg == nil || r.Msg.Rcode != dns.RcodeServerFailure {
		return false
	}
	for _, e := range explanations(r.Msg) {
		switch e.InfoCode {
		case dns.ExtendedErrorCodeDNSBogus, dns.ExtendedErrorCodeSignatureExpired, dns.ExtendedErrorCodeSignatureNotYetValid,
			dns.ExtendedErrorCodeDNSKEYMissing, dns.ExtendedErrorCodeRRSIGsMissing, dns.ExtendedErrorCodeNoZoneKeyBitSet,
			dns.ExtendedErrorCodeNSECMissing, dns.ExtendedErrorCodeSignatureExpiredBeforeValid:
			return true
		}
	}
	return false
}

// explanations are the extended errors in a message.
func explanations(m *dns.Msg) []*dns.EDNS0_EDE {
	opt := m.IsEdns0()
	if opt == nil {
		return nil
	}
	var found []*dns.EDNS0_EDE
	for _, o := range opt.Option {
		if e, ok := o.(*dns.EDNS0_EDE); ok {
			found = append(found, e)
		}
	}
	return found
}

// Lookup is the way from a query to its answer.
type Lookup struct {
	policy *Policy
	query  *Query

	ask  Ask
	take func(Result) // what to do with the answer to ask; nil if done

	response  *dns.Msg
	explained []*dns.EDNS0_EDE
	outcome   Outcome

	// wantsNative reports that AAAA records are asked for, and ahead is the answer about A
	// records that came before theirs, which is enough to make AAAA records of.
	wantsNative bool
	ahead       *Result
	enough      bool

	native     Result   // to the AAAA query
	nativeLeft *dns.Msg // the same, less what is excluded; nil if it was an error
}

// Begin starts the way of a query that was admitted.
func (p *Policy) Begin(q *Query) *Lookup {
	l := &Lookup{policy: p, query: q}
	question := q.Msg.Question[0]
	name := strings.ToLower(question.Name)
	switch {
	case question.Qtype == dns.TypeANY && !q.Stream:
		// All that a name has is more than a forged source should be sent.
		m := q.reply(dns.RcodeSuccess)
		m.Truncated = true
		l.finish(m, OutcomeLocal)
	case question.Qclass == dns.ClassCHAOS:
		// It is about the server itself (RFC 4892 section 2.1): an upstream would tell of itself.
		l.finish(q.reply(dns.RcodeRefused), OutcomeLocal)
	case question.Qclass == dns.ClassINET && dns.IsSubDomain(localhostName, name):
		l.finish(q.localhost(), OutcomeLocal)
	case question.Qclass != dns.ClassINET || within(p.noSynthesis, q.Client):
		l.forward(name)
	case dns.IsSubDomain(wellKnownName, name) && (question.Qtype != dns.TypeDS || name != wellKnownName):
		l.finish(p.wellKnownAnswer(q, name), OutcomeLocal)
	case l.reverse(name):
	case question.Qtype == dns.TypeAAAA && !(q.Msg.CheckingDisabled && q.do()):
		l.want(name, dns.TypeAAAA, l.judgeNative)
		l.wantsNative = true
	default:
		l.forward(name)
	}
	return l
}

// Next is what an upstream is to be asked. ok is false once there is a response.
func (l *Lookup) Next() (ask Ask, ok bool) { return l.ask, l.take != nil }

// Take goes on with the answer to what [Lookup.Next] said.
func (l *Lookup) Take(r Result) {
	take := l.take
	l.take, l.wantsNative = nil, false
	take(r.about(l.ask))
}

// Response is the answer for the client, once there is nothing more to ask, and what
// upstreams explained about it.
func (l *Lookup) Response() (*dns.Msg, []*dns.EDNS0_EDE, Outcome) {
	return l.response, l.explained, l.outcome
}

func (l *Lookup) want(name string, qtype uint16, take func(Result)) {
	l.ask = Ask{
		Name: name, Type: qtype, Class: l.query.Msg.Question[0].Qclass,
		CD: l.query.Msg.CheckingDisabled, DO: l.query.do(),
	}
	l.take = take
}

// forward has the query itself answered, whatever comes.
func (l *Lookup) forward(name string) {
	l.want(name, l.query.Msg.Question[0].Qtype, func(r Result) { l.pass(r, OutcomeForwarded) })
}

// pass answers as the upstream did.
func (l *Lookup) pass(r Result, o Outcome) {
	if r.Msg == nil {
		l.finish(l.query.Failure(), OutcomeFailed)
		return
	}
	l.explained = explanations(r.Msg)
	l.finish(l.from(r.Msg, r.authentic()), o)
}

func (l *Lookup) finish(m *dns.Msg, o Outcome) { l.response, l.outcome = m, o }

// from makes a response of an upstream's. The AD bit is for clients that set DO alone
// (RFC 6147 section 5.5).
func (l *Lookup) from(m *dns.Msg, authentic bool) *dns.Msg {
	out := l.query.reply(told(m.Rcode))
	out.AuthenticatedData = authentic && l.query.do()
	out.Answer, out.Ns = m.Answer, m.Ns
	for _, rr := range m.Extra {
		switch rr.Header().Rrtype {
		case dns.TypeOPT, dns.TypeTSIG: // they belong to one hop
		default:
			out.Extra = append(out.Extra, rr)
		}
	}
	return out
}

// told is the error that a client hears where an upstream told one: what the two could not
// agree upon in form is none of the client's.
func told(rcode int) int {
	if DislikesEDNS(rcode) || rcode > 15 {
		return dns.RcodeServerFailure
	}
	return rcode
}

// DislikesEDNS reports whether an error may be about the OPT record of the question, which is
// then to be asked without one: name servers from before EDNS, and such as take another
// version for the first, tell it so (RFC 6891 sections 6.1.3 and 7).
func DislikesEDNS(rcode int) bool {
	return rcode == dns.RcodeFormatError || rcode == dns.RcodeNotImplemented || rcode == dns.RcodeBadVers
}
