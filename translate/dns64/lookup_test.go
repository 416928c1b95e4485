// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"
)

var (
	client     = netip.MustParseAddrPort("[2001:db8:1::7]:40000")
	dualClient = netip.MustParseAddrPort("[2001:db8:1:d::7]:40000")
	stranger   = netip.MustParseAddrPort("[2001:db8:f::7]:40000")
)

// settings are those of most tests.
func settings() Settings {
	return Settings{
		Prefixes:    []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")},
		Exclude:     DefaultExclude,
		Clients:     []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fe80::/10")},
		NoSynthesis: []netip.Prefix{netip.MustParsePrefix("2001:db8:1:d::/64")},
	}
}

func policy(t testing.TB, change func(*Settings)) *Policy {
	t.Helper()
	s := settings()
	if change != nil {
		change(&s)
	}
	p, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask packs a query; words before the name and type set bits.
func ask(t testing.TB, text string) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.Id, m.RecursionDesired = 0x1234, true
	words := strings.Fields(text)
	do, edns := false, false
	for len(words) > 2 {
		switch words[0] {
		case "do":
			do, edns = true, true
		case "cd":
			m.CheckingDisabled = true
		case "edns":
			edns = true
		case "chaos":
			m.Question = []dns.Question{{Qclass: dns.ClassCHAOS}}
		case "hesiod":
			m.Question = []dns.Question{{Qclass: dns.ClassHESIOD}}
		default:
			t.Fatalf("unknown word %q", words[0])
		}
		words = words[1:]
	}
	class := uint16(dns.ClassINET)
	if len(m.Question) > 0 {
		class = m.Question[0].Qclass
	}
	m.Question = []dns.Question{{Name: words[0], Qtype: dns.StringToType[words[1]], Qclass: class}}
	if edns {
		m.SetEdns0(4096, do)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// said is what an upstream answers: words for the header, then records, one a line,
// with "authority" and "additional" between the sections. Nothing at all is silence.
func said(t testing.TB, text string) Result {
	t.Helper()
	if text == "" {
		return Result{}
	}
	r := Result{Msg: new(dns.Msg)}
	r.Msg.Response = true
	section := &r.Msg.Answer
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch line {
		case "", "ok":
		case "trusted":
			r.Trusted = true
		case "authentic":
			r.Msg.AuthenticatedData = true
		case "BADVERS": // a code of two names
			r.Msg.Rcode = dns.RcodeBadVers
		case "truncated":
			r.Msg.Truncated = true
		case "bogus":
			r.Msg.SetEdns0(1232, true)
			r.Msg.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeDNSBogus}}
		case "authority":
			section = &r.Msg.Ns
		case "additional":
			section = &r.Msg.Extra
		default:
			if code, ok := dns.StringToRcode[line]; ok {
				r.Msg.Rcode = code
				continue
			}
			rr, err := dns.NewRR(line)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			*section = append(*section, rr)
		}
	}
	return r
}

// lines is a section as text, with single blanks.
func lines(section []dns.RR) []string {
	var out []string
	for _, rr := range section {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, strings.Join(strings.Fields(rr.String()), " "))
		}
	}
	return out
}

const (
	soa300   = "authority\nexample.net. 300 IN SOA ns.example.net. h.example.net. 1 2 3 4 120"
	native   = "host.example.net. 500 IN AAAA 2001:db8:2::1"
	mapped   = "host.example.net. 500 IN AAAA ::ffff:192.0.2.1"
	v4       = "host.example.net. 500 IN A 198.51.100.7"
	made     = "host.example.net. 120 IN AAAA 2001:db8:64::c633:6407"
	made500  = "host.example.net. 500 IN AAAA 2001:db8:64::c633:6407"
	chain    = "www.example.net. 400 IN CNAME host.example.net."
	sigA     = "host.example.net. 500 IN RRSIG A 8 3 500 20330101000000 20230101000000 1 example.net. AAAA"
	sigAAAA  = "host.example.net. 500 IN RRSIG AAAA 8 3 500 20330101000000 20230101000000 1 example.net. AAAA"
	glue     = "additional\nns.example.net. 100 IN A 198.51.100.53"
	question = "host.example.net. AAAA"
)

func TestLookup(t *testing.T) {
	for _, tt := range exchangeCases() {
		t.Run(tt.name, func(t *testing.T) {
			from := tt.from
			if !from.IsValid() {
				from = client
			}
			p := policy(t, tt.change)
			q, reply, reason := p.Admit(ask(t, tt.query), from, false)
			if reply != nil || reason != ReasonNone {
				t.Fatalf("not admitted: %s", reason)
			}
			l := p.Begin(&q)
			var asked []string
			for {
				a, more := l.Next()
				if !more {
					break
				}
				key := a.Name + " " + dns.TypeToString[a.Type]
				asked = append(asked, key)
				if a.CD != q.Msg.CheckingDisabled || a.DO != q.do() || a.Class != q.Msg.Question[0].Qclass {
					t.Errorf("asked with other bits: %+v", a)
				}
				l.Take(said(t, tt.upstream[key]))
			}
			m, explained, outcome := l.Response()
			if diff := cmp.Diff(tt.asked, asked, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			wire, err := q.Pack(m, explained)
			if err != nil {
				t.Fatal(err)
			}
			got := new(dns.Msg)
			if err := got.Unpack(wire); err != nil {
				t.Fatal(err)
			}
			if outcome != tt.outcome || got.Rcode != tt.rcode || got.AuthenticatedData != tt.ad {
				t.Errorf("outcome %s, rcode %s, AD %v; want %s, %s, %v", outcome, dns.RcodeToString[got.Rcode], got.AuthenticatedData,
					tt.outcome, dns.RcodeToString[tt.rcode], tt.ad)
			}
			if got.Id != 0x1234 || !got.Response || !got.RecursionAvailable || got.Truncated || !slices.Equal(got.Question, q.Msg.Question) {
				t.Errorf("header or question: %s", got)
			}
			// RFC 4035 sections 3.2.1 and 3.2.2: DO and CD of the query stand in the answer.
			opt := got.IsEdns0()
			if got.CheckingDisabled != q.Msg.CheckingDisabled || !got.RecursionDesired || (opt != nil) != (q.opt != nil) ||
				opt != nil && (opt.Do() != q.do() || opt.UDPSize() != DefaultUDP || opt.Version() != 0) {
				t.Errorf("bits of the query do not come back: %s", got)
			}
			for section, pair := range map[string][2][]string{
				"answer": {tt.answer, lines(got.Answer)}, "authority": {tt.ns, lines(got.Ns)}, "additional": {tt.extra, lines(got.Extra)},
			} {
				if diff := cmp.Diff(fields(pair[0]), pair[1], cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", section, diff)
				}
			}
		})
	}
}

// fields brings lines into the form of lines.
func fields(texts []string) []string {
	var out []string
	for _, text := range texts {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		out = append(out, lines([]dns.RR{rr})...)
	}
	return out
}

func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
	}{
		{"nobody may ask", func(s *Settings) { s.Clients = nil }},
		{"a prefix of a length that RFC 6052 does not know", func(s *Settings) { s.Prefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8::/80")} }},
		{"too many prefixes", func(s *Settings) { s.Prefixes = make([]netip.Prefix, MaxPrefixes+1) }},
		{"a range of IPv6", func(s *Settings) { s.Ranges = []Range{{IPv4: netip.MustParsePrefix("2001:db8::/32")}} }},
		{"a range with a wrong prefix", func(s *Settings) {
			s.Ranges = []Range{{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/80")}}
		}},
		{"a PTR name that is none", func(s *Settings) { s.PTRName = strings.Repeat("a", 64) }},
		{"too large answers", func(s *Settings) { s.MaxUDP = MaxUDP + 1 }},
		{"too small answers", func(s *Settings) { s.MaxUDP = MinUDP - 1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := settings()
			tt.change(&s)
			if _, err := New(s); err == nil {
				t.Error("no error")
			}
		})
	}
}
