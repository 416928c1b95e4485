// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestAdmit(t *testing.T) {
	query := ask(t, "edns host.example.net. AAAA")
	change := func(f func([]byte) []byte) []byte { return f(append([]byte(nil), query...)) }
	message := func(f func(*dns.Msg)) []byte {
		m := new(dns.Msg)
		m.SetQuestion("host.example.net.", dns.TypeAAAA)
		f(m)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	qtype := func(n uint16) []byte { return message(func(m *dns.Msg) { m.Question[0].Qtype = n }) }
	const silent = -1
	for _, tt := range []struct {
		name   string
		raw    []byte
		from   netip.AddrPort
		reason Reason
		rcode  int // of the reply, or silent
	}{
		{"a query", query, client, ReasonNone, silent},
		{"a query by IPv4", query, netip.MustParseAddrPort("192.0.2.7:5000"), ReasonNone, silent},
		{"a query by IPv4 in an IPv6 socket", query, netip.MustParseAddrPort("[::ffff:192.0.2.7]:5000"), ReasonNone, silent},
		{"a query by a link-local address", query, netip.MustParseAddrPort("[fe80::7%eth0]:5000"), ReasonNone, silent},
		{"nothing", nil, client, ReasonMalformed, silent},
		{"half a header", query[:11], client, ReasonMalformed, silent},
		{"a source that cannot be answered", query, netip.AddrPortFrom(client.Addr(), 0), ReasonNoPort, silent},
		{"a response", change(func(b []byte) []byte { b[2] |= 0x80; return b }), client, ReasonResponse, silent},
		{"a stranger", query, stranger, ReasonClient, dns.RcodeRefused},
		{"a stranger's rubbish", query[:20], stranger, ReasonClient, silent},
		{"a question cut off", query[:20], client, ReasonMalformed, dns.RcodeFormatError},
		{"no question", change(func(b []byte) []byte { b[5] = 0; return b }), client, ReasonQuestions, dns.RcodeFormatError},
		{"two questions", change(func(b []byte) []byte { b[5] = 2; return b }), client, ReasonQuestions, dns.RcodeFormatError},
		{"a query with an answer", change(func(b []byte) []byte { b[7] = 1; return b }), client, ReasonQuestions, dns.RcodeFormatError},
		{"an update", message(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), client, ReasonOpcode, dns.RcodeNotImplemented},
		{"an update with its sections", change(func(b []byte) []byte { b[2], b[9] = dns.OpcodeUpdate<<3, 1; return b }), client, ReasonOpcode, dns.RcodeNotImplemented},
		{"a session of RFC 8490, without a question", change(func(b []byte) []byte { b[2], b[5] = dns.OpcodeStateful<<3, 0; return b }), client, ReasonOpcode, dns.RcodeNotImplemented},
		{"a stranger's update", change(func(b []byte) []byte { b[2] = dns.OpcodeUpdate << 3; return b }), stranger, ReasonClient, silent},
		{"two OPT records", message(func(m *dns.Msg) { m.SetEdns0(512, false); m.SetEdns0(512, false) }), client, ReasonMalformed, dns.RcodeFormatError},
		{"another version of EDNS, by one who validates", message(func(m *dns.Msg) { m.CheckingDisabled = true; m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), client, ReasonVersion, dns.RcodeBadVers},
		{"another version of EDNS", message(func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), client, ReasonVersion, dns.RcodeBadVers},
		{"a zone transfer", qtype(dns.TypeAXFR), client, ReasonType, dns.RcodeRefused},
		{"a pseudo type", qtype(dns.TypeTSIG), client, ReasonType, dns.RcodeRefused},
		{"the first pseudo type", qtype(dns.TypeTKEY), client, ReasonType, dns.RcodeRefused},
		{"the last type before them", qtype(dns.TypeTKEY - 1), client, ReasonNone, silent},
		{"the first type behind them", qtype(256), client, ReasonNone, silent},
		{"an OPT record's type", qtype(dns.TypeOPT), client, ReasonType, dns.RcodeRefused},
		{"a header alone", make([]byte, headerLen), client, ReasonQuestions, dns.RcodeFormatError},
		{"type 0", qtype(dns.TypeNone), client, ReasonType, dns.RcodeRefused},
		{"a type that nobody knows", qtype(65280), client, ReasonNone, silent},
		{"no recursion wanted", message(func(m *dns.Msg) { m.RecursionDesired = false }), client, ReasonRecursion, dns.RcodeRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, reply, reason := policy(t, nil).Admit(tt.raw, tt.from, false)
			if reason != tt.reason {
				t.Fatalf("reason %s, want %s", reason, tt.reason)
			}
			if reply == nil {
				if tt.rcode != silent {
					t.Fatal("no reply")
				}
				return
			}
			wire, err := q.Pack(reply, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(wire) > len(tt.raw) {
				t.Errorf("the reply has %d octets, the query %d", len(wire), len(tt.raw))
			}
			got := new(dns.Msg)
			if err := got.Unpack(wire); err != nil || got.Rcode != tt.rcode || !got.Response {
				t.Errorf("reply %v, %v; want rcode %d", got, err, tt.rcode)
			}
			sent, flags := binary.BigEndian.Uint16(tt.raw), binary.BigEndian.Uint16(tt.raw[2:])
			if got.Id != sent || got.Opcode != int(flags>>11&15) {
				t.Errorf("identifier %#x, opcode %d of %x", got.Id, got.Opcode, tt.raw)
			}
			if tt.rcode != dns.RcodeFormatError && tt.rcode != dns.RcodeNotImplemented && (!slices.Equal(got.Question, q.Msg.Question) || got.RecursionDesired != (flags&(1<<8) != 0) || got.CheckingDisabled != (flags&(1<<4) != 0)) {
				t.Errorf("what was asked does not come back: %v", got)
			}
		})
	}
}

func TestReasonsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range NumReasons + 1 {
		name := r.String()
		if name == "" || seen[name] || strings.ContainsAny(name, " -") {
			t.Errorf("reason %d is called %q", r, name)
		}
		seen[name] = true
	}
	for o := range NumOutcomes + 1 {
		if o.String() == "" {
			t.Errorf("outcome %d has no name", o)
		}
	}
}

// TestSizes has an answer of many records meet clients that take less.
func TestSizes(t *testing.T) {
	var records strings.Builder
	for i := range 60 {
		fmt.Fprintf(&records, "host.example.net. 500 IN AAAA 2001:db8:2::%x\n", i)
	}
	for _, tt := range []struct {
		name   string
		size   uint16 // 0: no EDNS
		maxUDP int
		stream bool
		most   int
		cut    bool
	}{
		{"no EDNS", 0, 0, false, 512, true},
		{"less than anybody may say", 100, 0, false, 512, true},
		{"more than the operator lets out", 4096, 0, false, 1232, true},
		{"what the client says", 700, 0, false, 700, true},
		{"an operator who lets more out", 4096, 4096, false, 4096, false},
		{"a stream", 512, 0, true, 65535, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := policy(t, func(s *Settings) { s.MaxUDP = tt.maxUDP })
			m := new(dns.Msg)
			m.SetQuestion("host.example.net.", dns.TypeAAAA)
			if tt.size > 0 {
				m.SetEdns0(tt.size, false)
			}
			raw, _ := m.Pack()
			q, _, _ := p.Admit(raw, client, tt.stream)
			l := p.Begin(&q)
			l.Take(said(t, records.String()+glue))
			answer, _, _ := l.Response()
			wire, err := q.Pack(answer, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := new(dns.Msg)
			if err := got.Unpack(wire); err != nil {
				t.Fatal(err)
			}
			if len(wire) > tt.most || got.Truncated != tt.cut || !tt.cut && len(got.Answer) != 60 {
				t.Errorf("%d octets, TC %v, %d records", len(wire), got.Truncated, len(got.Answer))
			}
			if (got.IsEdns0() != nil) != (tt.size > 0) {
				t.Error("an OPT record in the answer to one without, or the other way round")
			}
		})
	}
}

// TestAdditionalGoesFirst has an answer that would fit without its additional section: it
// goes, and no one is told to come again by TCP.
func TestAdditionalGoesFirst(t *testing.T) {
	p := policy(t, nil)
	q, _, _ := p.Admit(ask(t, "host.example.net. A"), client, false)
	l := p.Begin(&q)
	var b strings.Builder
	b.WriteString(v4 + "\nadditional\n")
	for i := range 40 {
		fmt.Fprintf(&b, "ns%d.example.net. 100 IN A 198.51.100.53\n", i)
	}
	l.Take(said(t, b.String()))
	m, _, _ := l.Response()
	wire, err := q.Pack(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := new(dns.Msg)
	if err := got.Unpack(wire); err != nil || got.Truncated || len(got.Answer) != 1 || len(got.Extra) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestAnyOverUDP has everything that a name has fetched by TCP alone.
func TestAnyOverUDP(t *testing.T) {
	p := policy(t, nil)
	for _, stream := range []bool{false, true} {
		q, _, _ := p.Admit(ask(t, "host.example.net. ANY"), client, stream)
		l := p.Begin(&q)
		if _, more := l.Next(); more != stream {
			t.Errorf("stream %v: asked %v", stream, more)
		}
		if m, _, _ := l.Response(); !stream && (m == nil || !m.Truncated) {
			t.Error("not cut")
		}
	}
}

// TestExplanations has what an upstream explains told to clients that know EDNS.
func TestExplanations(t *testing.T) {
	for _, tt := range []struct{ query, upstream string }{
		{"do host.example.net. AAAA", "trusted\nSERVFAIL\nbogus"},
		{"host.example.net. AAAA", "trusted\nSERVFAIL\nbogus"},
		{"do host.example.net. AAAA", "bogus\n" + native},
	} {
		p := policy(t, nil)
		q, _, _ := p.Admit(ask(t, tt.query), client, false)
		l := p.Begin(&q)
		l.Take(said(t, tt.upstream))
		m, explained, _ := l.Response()
		wire, err := q.Pack(m, explained)
		if err != nil {
			t.Fatal(err)
		}
		got := new(dns.Msg)
		if err := got.Unpack(wire); err != nil {
			t.Fatal(err)
		}
		if want := strings.HasPrefix(tt.query, "do"); (len(explanations(got)) == 1) != want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestExplanationsGoFirst has explanations for which there is no room go before what they
// explain: their texts first, and then, with a word, they themselves.
func TestExplanationsGoFirst(t *testing.T) {
	text := strings.Repeat("because ", 75)
	for _, tt := range []struct {
		name      string
		explained []*dns.EDNS0_EDE
		left      int
		cut       bool
	}{
		{"one with a long text", []*dns.EDNS0_EDE{{InfoCode: dns.ExtendedErrorCodeStaleAnswer, ExtraText: text}}, 1, false},
		{"very many", slices.Repeat([]*dns.EDNS0_EDE{{InfoCode: dns.ExtendedErrorCodeStaleAnswer}}, 100), 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			query := new(dns.Msg).SetQuestion("host.example.net.", dns.TypeAAAA).SetEdns0(512, false)
			raw, _ := query.Pack()
			p := policy(t, nil)
			q, _, _ := p.Admit(raw, client, false)
			l := p.Begin(&q)
			l.Take(said(t, native))
			m, _, _ := l.Response()
			wire, err := q.Pack(m, tt.explained)
			if err != nil {
				t.Fatal(err)
			}
			got := new(dns.Msg)
			if err := got.Unpack(wire); err != nil || len(wire) > 512 || len(got.Answer) != 1 || got.Truncated != tt.cut {
				t.Errorf("%d octets, %v, %v", len(wire), got, err)
			}
			if left := explanations(got); len(left) != tt.left || tt.left > 0 && left[0].InfoCode != tt.explained[0].InfoCode {
				t.Errorf("left: %v", left)
			}
			if tt.left > 0 && tt.explained[0].ExtraText != text {
				t.Error("what an upstream said, and others may be told, has changed")
			}
		})
	}
}

// TestLongStream has an answer made that is longer than a message can be, of one that was
// not: it is cut. On a stream the rest would be read as further messages.
func TestLongStream(t *testing.T) {
	p := policy(t, nil)
	q, _, _ := p.Admit(ask(t, "host.example.net. AAAA"), client, true)
	l := p.Begin(&q)
	l.Take(said(t, ""))
	all := new(dns.Msg)
	for i := range 4000 {
		rr, err := dns.NewRR(fmt.Sprintf("host.example.net. 100 IN A 8.8.%d.%d", i>>8, i&255))
		if err != nil {
			t.Fatal(err)
		}
		all.Answer = append(all.Answer, rr)
	}
	l.Take(Result{Msg: all})
	m, _, _ := l.Response()
	wire, err := q.Pack(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := new(dns.Msg)
	if err := got.Unpack(wire); err != nil || len(wire) > dns.MaxMsgSize || !got.Truncated || len(got.Answer) < 2000 {
		t.Errorf("%d octets, TC %v, %d records, %v", len(wire), got.Truncated, len(got.Answer), err)
	}
}
