// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

const (
	headerLen = 12      // RFC 1035 section 4.1.1
	bitQR     = 1 << 15 // of the flags: a response
	// maxAdditional are an OPT and a signature.
	maxAdditional = 2
)

// Query is what a client asks.
type Query struct {
	Msg    *dns.Msg
	Client netip.Addr
	// Stream reports that the answer needs not fit into a datagram.
	Stream bool

	opt    *dns.OPT // nil without EDNS
	maxUDP int
}

// Admit looks whether a message is a query that is to be answered. With a reason but
// [ReasonNone] it is not: the reply, if not nil, is all that the client hears, and is
// no longer than what it sent.
func (p *Policy) Admit(raw []byte, from netip.AddrPort, stream bool) (Query, *dns.Msg, Reason) {
	// A prefix holds no address with a zone, and a client is one by whatever link.
	q := Query{Client: from.Addr().Unmap().WithZone(""), Stream: stream, maxUDP: p.maxUDP}
	switch {
	case from.Port() == 0:
		return q, nil, ReasonNoPort
	case len(raw) < headerLen:
		return q, nil, ReasonMalformed
	case binary.BigEndian.Uint16(raw[2:])&bitQR != 0:
		return q, nil, ReasonResponse
	}
	known := within(p.clients, q.Client)
	if raw[2]>>3&15 != dns.OpcodeQuery { // their sections hold other things
		return q, rejection(raw, known, dns.RcodeNotImplemented), orClient(known, ReasonOpcode)
	}
	if counts := binary.BigEndian.Uint64(raw[4:]); counts>>48 != 1 || counts&0xffffffff0000 != 0 || counts&0xffff > maxAdditional {
		return q, rejection(raw, known, dns.RcodeFormatError), orClient(known, ReasonQuestions)
	}
	q.Msg = new(dns.Msg)
	if err := q.Msg.Unpack(raw); err != nil || len(q.Msg.Question) != 1 {
		return q, rejection(raw, known, dns.RcodeFormatError), orClient(known, ReasonMalformed)
	}
	rcode, reason := p.judge(&q, known)
	if reason == ReasonNone {
		return q, nil, ReasonNone
	}
	return q, q.reply(rcode), reason
}

// orClient is the reason, but for strangers that they are strangers.
func orClient(known bool, r Reason) Reason {
	if !known {
		return ReasonClient
	}
	return r
}

// rejection answers what could not be read. Strangers hear nothing of it.
func rejection(raw []byte, known bool, rcode int) *dns.Msg {
	if !known {
		return nil
	}
	m := new(dns.Msg)
	m.Id = binary.BigEndian.Uint16(raw)
	m.Response, m.Opcode, m.Rcode = true, int(raw[2]>>3&15), rcode
	return m
}

// judge looks at a message that could be read.
func (p *Policy) judge(q *Query, known bool) (rcode int, r Reason) {
	question := q.Msg.Question[0]
	options := 0
	for _, rr := range q.Msg.Extra {
		if opt, ok := rr.(*dns.OPT); ok {
			q.opt = opt
			options++
		}
	}
	switch {
	case !known:
		return dns.RcodeRefused, ReasonClient
	case options > 1: // RFC 6891 section 6.1.1
		return dns.RcodeFormatError, ReasonMalformed
	case options == 1 && q.opt.Version() != 0:
		return dns.RcodeBadVers, ReasonVersion
	case question.Qtype == dns.TypeNone || question.Qtype == dns.TypeOPT ||
		question.Qtype >= dns.TypeTKEY && question.Qtype != dns.TypeANY && question.Qtype < 256:
		return dns.RcodeRefused, ReasonType
	case !q.Msg.RecursionDesired:
		return dns.RcodeRefused, ReasonRecursion
	}
	return dns.RcodeSuccess, ReasonNone
}

// do reports whether the client understands DNSSEC.
func (q *Query) do() bool { return q.opt != nil && q.opt.Do() }

// reply starts an answer.
func (q *Query) reply(rcode int) *dns.Msg {
	m := new(dns.Msg)
	m.Id, m.Opcode, m.Response = q.Msg.Id, q.Msg.Opcode, true
	m.RecursionDesired, m.RecursionAvailable = q.Msg.RecursionDesired, true
	m.CheckingDisabled = q.Msg.CheckingDisabled
	m.Rcode = rcode
	m.Question = q.Msg.Question
	return m
}

// Failure is the answer that something went wrong here.
func (q *Query) Failure() *dns.Msg { return q.reply(dns.RcodeServerFailure) }

// Pack brings an answer into the form for the client: with an OPT record if it sent
// one (RFC 6891 section 7), and cut with the TC bit set where it is larger than the client
// or the operator allows over UDP, or than a message can be: of an answer of 64 KiB a
// longer one may be made.
func (q *Query) Pack(m *dns.Msg, explained []*dns.EDNS0_EDE) ([]byte, error) {
	m.Compress = true
	var opt *dns.OPT
	if q.opt != nil {
		opt = &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		opt.SetUDPSize(uint16(q.maxUDP))
		opt.SetDo(q.do())
		for _, e := range explained {
			opt.Option = append(opt.Option, e)
		}
		m.Extra = append(m.Extra[:len(m.Extra):len(m.Extra)], opt)
	} else if m.Rcode > 15 {
		m.Rcode = dns.RcodeServerFailure // the upper bits have no place
	}
	size := q.size()
	if opt != nil && len(explained) > 0 && m.Len() > size {
		// What explains goes before what is explained, its text first; that options are left
		// out is told by TC (RFC 8914 section 3).
		for i, e := range explained {
			opt.Option[i] = &dns.EDNS0_EDE{InfoCode: e.InfoCode}
		}
		if m.Len() > size {
			opt.Option, m.Truncated = nil, true
		}
	}
	if m.Len() > size {
		// The additional section goes before anything that the client asked for, and
		// without a word (RFC 2181 section 9).
		m.Extra = slices.DeleteFunc(m.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype != dns.TypeOPT })
		m.Truncate(size)
	}
	wire, err := m.Pack()
	if err == nil && len(wire) > size {
		return nil, errTooLong
	}
	return wire, err
}

var errTooLong = errors.New("the answer does not fit into a message")

// size is the largest answer, in octets.
func (q *Query) size() int {
	switch {
	case q.Stream:
		return dns.MaxMsgSize
	case q.opt == nil:
		return MinUDP
	}
	return min(max(int(q.opt.UDPSize()), MinUDP), q.maxUDP)
}
