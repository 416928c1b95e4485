// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"net/netip"

	"github.com/miekg/dns"
)

// exchangeCase is one query from the client's to its answer. The upstream's words stand
// by "name TYPE".
type exchangeCase struct {
	name     string
	change   func(*Settings)
	from     netip.AddrPort
	query    string
	upstream map[string]string

	rcode   int
	answer  []string
	ns      []string
	extra   []string
	ad      bool
	outcome Outcome
	asked   []string
}

func asks(n string) []string { return []string{n + " AAAA", n + " A"} }

func exchangeCases() []exchangeCase {
	aaaa, a := "host.example.net. AAAA", "host.example.net. A"
	rev, v4rev := reverseName("2001:db8:64::c633:6407"), reverseName("198.51.100.7")
	both := asks("host.example.net.")
	prefixes := func(texts ...string) func(*Settings) {
		return func(s *Settings) {
			s.Prefixes = nil
			for _, text := range texts {
				s.Prefixes = append(s.Prefixes, netip.MustParsePrefix(text))
			}
		}
	}
	soaLine := []string{"example.net. 300 IN SOA ns.example.net. h.example.net. 1 2 3 4 120"}
	return []exchangeCase{
		{name: "a AAAA record: no synthesis", query: question,
			upstream: map[string]string{aaaa: native}, answer: []string{native}, outcome: OutcomeNative, asked: both[:1]},
		{name: "none: an A record becomes one, as old as the SOA lets negative answers be", query: question,
			upstream: map[string]string{aaaa: soa300, a: v4}, answer: []string{made}, outcome: OutcomeSynthesized, asked: both},
		{name: "an SOA whose own TTL is less", query: question,
			upstream: map[string]string{aaaa: "authority\nexample.net. 60 IN SOA ns.example.net. h.example.net. 1 2 3 4 120", a: v4},
			answer:   []string{"host.example.net. 60 IN AAAA 2001:db8:64::c633:6407"}, outcome: OutcomeSynthesized, asked: both},
		{name: "an A record that lives less than the SOA", query: question,
			upstream: map[string]string{aaaa: soa300, a: "host.example.net. 30 IN A 198.51.100.7"},
			answer:   []string{"host.example.net. 30 IN AAAA 2001:db8:64::c633:6407"}, outcome: OutcomeSynthesized, asked: both},
		{name: "no SOA, a short A record", query: question,
			upstream: map[string]string{aaaa: "ok", a: v4}, answer: []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "no SOA, a long A record: ten minutes", query: question,
			upstream: map[string]string{aaaa: "ok", a: "host.example.net. 86400 IN A 198.51.100.7"},
			answer:   []string{"host.example.net. 600 IN AAAA 2001:db8:64::c633:6407"}, outcome: OutcomeSynthesized, asked: both},
		{name: "a TTL with its highest bit set is 0", query: question,
			upstream: map[string]string{aaaa: "ok", a: "host.example.net. 4294967295 IN A 198.51.100.7"},
			answer:   []string{"host.example.net. 0 IN AAAA 2001:db8:64::c633:6407"}, outcome: OutcomeSynthesized, asked: both},
		{name: "NXDOMAIN is told as it is, and nothing more is asked", query: question,
			upstream: map[string]string{aaaa: "NXDOMAIN\n" + soa300}, rcode: dns.RcodeNameError, ns: soaLine, outcome: OutcomeForwarded, asked: both[:1]},
		{name: "SERVFAIL for AAAA is as good as empty", query: question,
			upstream: map[string]string{aaaa: "SERVFAIL", a: v4}, answer: []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "REFUSED for AAAA is as good as empty", query: question,
			upstream: map[string]string{aaaa: "REFUSED", a: v4}, answer: []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "FORMERR and NOTIMP too", query: question,
			upstream: map[string]string{aaaa: "NOTIMP", a: v4}, answer: []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "silence for AAAA is as good as empty", query: question,
			upstream: map[string]string{aaaa: "", a: v4}, answer: []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "silence for both: SERVFAIL", query: question,
			upstream: map[string]string{}, rcode: dns.RcodeServerFailure, outcome: OutcomeFailed, asked: both},
		{name: "neither: the answer to the AAAA query", query: question,
			upstream: map[string]string{aaaa: soa300, a: "authority\nexample.net. 299 IN SOA ns.example.net. h.example.net. 1 2 3 4 120"},
			ns:       soaLine, outcome: OutcomeEmpty, asked: both},
		{name: "an error for AAAA and nothing for A: the empty answer", query: question,
			upstream: map[string]string{aaaa: "SERVFAIL", a: soa300}, ns: soaLine, outcome: OutcomeEmpty, asked: both},
		{name: "an error for A is told", query: question,
			upstream: map[string]string{aaaa: soa300, a: "REFUSED"}, rcode: dns.RcodeRefused, outcome: OutcomeEmpty, asked: both},
		{name: "NXDOMAIN for A behind an error is told", query: question,
			upstream: map[string]string{aaaa: "SERVFAIL", a: "NXDOMAIN\n" + soa300}, rcode: dns.RcodeNameError, ns: soaLine, outcome: OutcomeEmpty, asked: both},
		{name: "only excluded AAAA records: as good as empty", query: question,
			upstream: map[string]string{aaaa: mapped, a: v4}, answer: []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "only excluded AAAA records, and no A record: empty", query: question,
			upstream: map[string]string{aaaa: mapped, a: soa300}, outcome: OutcomeEmpty, asked: both},
		{name: "some excluded: the rest, without a signature over all", query: "do " + question,
			upstream: map[string]string{aaaa: "trusted\nauthentic\n" + native + "\n" + mapped + "\n" + sigAAAA},
			answer:   []string{native}, outcome: OutcomeExcluded, asked: both[:1]},
		{name: "an exclusion set of the operator", query: question,
			change:   func(s *Settings) { s.Exclude = []netip.Prefix{netip.MustParsePrefix("2001:db8:2::/48")} },
			upstream: map[string]string{aaaa: native, a: v4}, answer: []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "no exclusion set at all", query: question,
			change:   func(s *Settings) { s.Exclude = nil },
			upstream: map[string]string{aaaa: mapped}, answer: []string{"host.example.net. 500 IN AAAA ::ffff:192.0.2.1"}, outcome: OutcomeNative, asked: both[:1]},
		{name: "a CNAME that leads to AAAA records", query: "www.example.net. AAAA",
			upstream: map[string]string{"www.example.net. AAAA": chain + "\n" + native}, answer: []string{chain, native}, outcome: OutcomeNative, asked: []string{"www.example.net. AAAA"}},
		{name: "a CNAME that leads to A records is kept", query: "www.example.net. AAAA",
			upstream: map[string]string{"www.example.net. AAAA": chain + "\n" + soa300, "www.example.net. A": chain + "\n" + v4},
			answer:   []string{chain, made}, outcome: OutcomeSynthesized, asked: asks("www.example.net.")},
		{name: "a DNAME and its CNAME are kept", query: "www.old.example. AAAA",
			upstream: map[string]string{"www.old.example. AAAA": soa300,
				"www.old.example. A": "old.example. 50 IN DNAME example.net.\nwww.old.example. 50 IN CNAME www.example.net.\n" + chain + "\n" + v4},
			answer:  []string{"old.example. 50 IN DNAME example.net.", "www.old.example. 50 IN CNAME www.example.net.", chain, made},
			outcome: OutcomeSynthesized, asked: asks("www.old.example.")},
		{name: "records that nobody asked for are not told", query: question,
			upstream: map[string]string{aaaa: native + "\nbank.example. 500 IN AAAA 2001:db8:bad::1\n" + v4}, answer: []string{native}, outcome: OutcomeNative, asked: both[:1]},
		{name: "nor do they stand for AAAA records of the name", query: question,
			upstream: map[string]string{aaaa: "bank.example. 500 IN AAAA 2001:db8:bad::1\n" + soa300, a: v4}, answer: []string{made}, outcome: OutcomeSynthesized, asked: both},
		{name: "nor is anything made of them", query: question,
			upstream: map[string]string{aaaa: soa300, a: "bank.example. 500 IN A 203.0.113.66\n" + v4}, answer: []string{made}, outcome: OutcomeSynthesized, asked: both},
		{name: "nor of them alone", query: question,
			upstream: map[string]string{aaaa: soa300, a: "bank.example. 500 IN A 203.0.113.66"}, ns: soaLine, outcome: OutcomeEmpty, asked: both},
		{name: "nor are they told to other questions", query: "host.example.net. MX",
			upstream: map[string]string{"host.example.net. MX": "bank.example. 70 IN MX 10 ns.example.net.\nhost.example.net. 70 IN MX 10 ns.example.net."},
			answer:   []string{"host.example.net. 70 IN MX 10 ns.example.net."}, outcome: OutcomeForwarded, asked: []string{"host.example.net. MX"}},
		{name: "an upstream that knows another EDNS", query: "edns host.example.net. MX",
			upstream: map[string]string{"host.example.net. MX": "BADVERS"}, rcode: dns.RcodeServerFailure, outcome: OutcomeForwarded, asked: []string{"host.example.net. MX"}},
		{name: "an upstream that cannot read, for A", query: question,
			upstream: map[string]string{aaaa: soa300, a: "FORMERR"}, rcode: dns.RcodeServerFailure, outcome: OutcomeEmpty, asked: both},
		{name: "an upstream that does not know how", query: "host.example.net. MX",
			upstream: map[string]string{"host.example.net. MX": "NOTIMP"}, rcode: dns.RcodeServerFailure, outcome: OutcomeForwarded, asked: []string{"host.example.net. MX"}},
		{name: "several A records", query: question,
			upstream: map[string]string{aaaa: soa300, a: v4 + "\nhost.example.net. 90 IN A 203.0.113.9"},
			answer:   []string{made, "host.example.net. 90 IN AAAA 2001:db8:64::cb00:7109"}, outcome: OutcomeSynthesized, asked: both},
		{name: "several prefixes, in their order", query: question, change: prefixes("2001:db8:64::/96", "2001:db8:65::/64", "2001:db8:66::/48"),
			upstream: map[string]string{aaaa: soa300, a: v4},
			answer: []string{made, "host.example.net. 120 IN AAAA 2001:db8:65:0:c6:3364:700:0",
				"host.example.net. 120 IN AAAA 2001:db8:66:c633:64:700::"}, outcome: OutcomeSynthesized, asked: both},
		{name: "no prefix: the well-known one", query: question, change: prefixes(),
			upstream: map[string]string{aaaa: soa300, a: "host.example.net. 500 IN A 1.1.1.1"},
			answer:   []string{"host.example.net. 120 IN AAAA 64:ff9b::101:101"}, outcome: OutcomeSynthesized, asked: both},
		{name: "the well-known prefix never with a private address", query: question, change: prefixes("64:ff9b::/96"),
			upstream: map[string]string{aaaa: soa300, a: "host.example.net. 500 IN A 10.0.0.1"}, ns: soaLine, outcome: OutcomeEmpty, asked: both},
		{name: "of two prefixes the one that may", query: question, change: prefixes("64:ff9b::/96", "2001:db8:64::/96"),
			upstream: map[string]string{aaaa: soa300, a: "host.example.net. 500 IN A 10.0.0.1"},
			answer:   []string{"host.example.net. 120 IN AAAA 2001:db8:64::a00:1"}, outcome: OutcomeSynthesized, asked: both},
		{name: "an address that cannot be sent to", query: question,
			upstream: map[string]string{aaaa: soa300, a: "host.example.net. 500 IN A 127.0.0.1"}, ns: soaLine, outcome: OutcomeEmpty, asked: both},
		{name: "an IPv4 range with a prefix of its own", query: question,
			change: func(s *Settings) {
				s.Ranges = []Range{{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:a::/96")}, {IPv4: netip.MustParsePrefix("198.51.100.128/25")}}
			},
			upstream: map[string]string{aaaa: soa300, a: v4},
			answer:   []string{"host.example.net. 120 IN AAAA 2001:db8:a::c633:6407"}, outcome: OutcomeSynthesized, asked: both},
		{name: "the longest range counts, and may have none", query: question,
			change: func(s *Settings) {
				s.Ranges = []Range{{netip.MustParsePrefix("198.51.0.0/16"), netip.MustParsePrefix("2001:db8:a::/96")}, {IPv4: netip.MustParsePrefix("198.51.100.0/24")}}
			},
			upstream: map[string]string{aaaa: soa300, a: v4}, ns: soaLine, outcome: OutcomeEmpty, asked: both},
		{name: "the additional and authority sections are those of the last answer, unchanged", query: question,
			upstream: map[string]string{aaaa: soa300, a: v4 + "\nauthority\nexample.net. 80 IN NS ns.example.net.\n" + glue},
			answer:   []string{made}, ns: []string{"example.net. 80 IN NS ns.example.net."}, extra: []string{"ns.example.net. 100 IN A 198.51.100.53"},
			outcome: OutcomeSynthesized, asked: both},
		{name: "A queries are answered unchanged", query: "host.example.net. A",
			upstream: map[string]string{a: v4}, answer: []string{v4}, outcome: OutcomeForwarded, asked: both[1:]},
		{name: "MX queries too, with A records beside them", query: "host.example.net. MX",
			upstream: map[string]string{"host.example.net. MX": "host.example.net. 70 IN MX 10 ns.example.net.\n" + glue},
			answer:   []string{"host.example.net. 70 IN MX 10 ns.example.net."}, extra: []string{"ns.example.net. 100 IN A 198.51.100.53"},
			outcome: OutcomeForwarded, asked: []string{"host.example.net. MX"}},
		{name: "another class: no DNS64", query: "hesiod " + question,
			upstream: map[string]string{aaaa: soa300}, ns: soaLine, outcome: OutcomeForwarded, asked: both[:1]},
		{name: "a dual-stack client: no DNS64", from: dualClient, query: question,
			upstream: map[string]string{aaaa: soa300}, ns: soaLine, outcome: OutcomeForwarded, asked: both[:1]},
		{name: "a dual-stack client hears what the upstream says of ipv4only.arpa", from: dualClient, query: "ipv4only.arpa. AAAA",
			upstream: map[string]string{}, rcode: dns.RcodeServerFailure, outcome: OutcomeFailed, asked: []string{"ipv4only.arpa. AAAA"}},
		{name: "CD and DO: the client validates, and synthesizes itself", query: "cd do " + question,
			upstream: map[string]string{aaaa: soa300}, ns: soaLine, outcome: OutcomeForwarded, asked: both[:1]},
		{name: "CD alone: a client that does not know DNSSEC", query: "cd " + question,
			upstream: map[string]string{aaaa: soa300, a: v4}, answer: []string{made}, outcome: OutcomeSynthesized, asked: both},
		{name: "DO, both answers valid by a trusted upstream: AD", query: "do " + question,
			upstream: map[string]string{aaaa: "trusted\nauthentic\n" + soa300, a: "trusted\nauthentic\n" + v4 + "\n" + sigA},
			answer:   []string{made}, ad: true, outcome: OutcomeSynthesized, asked: both},
		{name: "DO, one answer not valid: no AD", query: "do " + question,
			upstream: map[string]string{aaaa: "trusted\n" + soa300, a: "trusted\nauthentic\n" + v4},
			answer:   []string{made}, outcome: OutcomeSynthesized, asked: both},
		{name: "DO, an error in place of the negative answer: no AD", query: "do " + question,
			upstream: map[string]string{aaaa: "trusted\nauthentic\nSERVFAIL", a: "trusted\nauthentic\n" + v4},
			answer:   []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "DO, an upstream that nobody trusts: no AD", query: "do " + question,
			upstream: map[string]string{aaaa: "authentic\n" + native}, answer: []string{native}, outcome: OutcomeNative, asked: both[:1]},
		{name: "DO, native and valid: AD, signatures stay", query: "do " + question,
			upstream: map[string]string{aaaa: "trusted\nauthentic\n" + native + "\n" + sigAAAA},
			answer:   []string{native, sigAAAA}, ad: true, outcome: OutcomeNative, asked: both[:1]},
		{name: "DO clear: never AD", query: question,
			upstream: map[string]string{aaaa: "trusted\nauthentic\n" + native}, answer: []string{native}, outcome: OutcomeNative, asked: both[:1]},
		{name: "forged by the word of a trusted upstream: no way around by A", query: question,
			upstream: map[string]string{aaaa: "trusted\nSERVFAIL\nbogus", a: v4}, rcode: dns.RcodeServerFailure, outcome: OutcomeForwarded, asked: both[:1]},
		{name: "forged by the word of another: as any error", query: question,
			upstream: map[string]string{aaaa: "SERVFAIL\nbogus", a: v4}, answer: []string{made500}, outcome: OutcomeSynthesized, asked: both},
		{name: "capitals in the question", query: "HOST.example.NET. AAAA",
			upstream: map[string]string{aaaa: soa300, a: v4}, answer: []string{made}, outcome: OutcomeSynthesized, asked: both},

		{name: "the version of the server: nobody is asked for theirs", query: "chaos version.bind. TXT",
			rcode: dns.RcodeRefused, outcome: OutcomeLocal},
		{name: "for a dual-stack client neither", from: dualClient, query: "chaos id.server. TXT",
			rcode: dns.RcodeRefused, outcome: OutcomeLocal},
		{name: "localhost AAAA", query: "localhost. AAAA", answer: []string{"localhost. 600 IN AAAA ::1"}, outcome: OutcomeLocal},
		{name: "localhost A", query: "localhost. A", answer: []string{"localhost. 600 IN A 127.0.0.1"}, outcome: OutcomeLocal},
		{name: "below localhost, in capitals, by a dual-stack client that validates", from: dualClient, query: "cd do A.LocalHost. AAAA",
			answer: []string{"A.LocalHost. 600 IN AAAA ::1"}, outcome: OutcomeLocal},
		{name: "localhost of another type: empty", query: "localhost. MX",
			ns: []string{"localhost. 600 IN SOA localhost. hostmaster.localhost. 1 3600 600 86400 600"}, outcome: OutcomeLocal},
		{name: "a name that only ends like localhost", query: "notlocalhost. MX",
			upstream: map[string]string{"notlocalhost. MX": soa300}, ns: soaLine, outcome: OutcomeForwarded, asked: []string{"notlocalhost. MX"}},
		{name: "localhost of somebody's domain", query: "localhost.example.net. MX",
			upstream: map[string]string{"localhost.example.net. MX": soa300}, ns: soaLine, outcome: OutcomeForwarded, asked: []string{"localhost.example.net. MX"}},

		{name: "ipv4only.arpa A", query: "ipv4only.arpa. A",
			answer: []string{"ipv4only.arpa. 600 IN A 192.0.0.170", "ipv4only.arpa. 600 IN A 192.0.0.171"}, outcome: OutcomeLocal},
		{name: "ipv4only.arpa AAAA, by every prefix", query: "ipv4only.arpa. AAAA", change: prefixes("2001:db8:64::/96", "64:ff9b::/96"),
			answer: []string{"ipv4only.arpa. 600 IN AAAA 2001:db8:64::c000:aa", "ipv4only.arpa. 600 IN AAAA 2001:db8:64::c000:ab",
				"ipv4only.arpa. 600 IN AAAA 64:ff9b::c000:aa", "ipv4only.arpa. 600 IN AAAA 64:ff9b::c000:ab"}, outcome: OutcomeLocal},
		{name: "ipv4only.arpa AAAA with CD and DO", query: "cd do ipv4only.arpa. AAAA",
			answer: []string{"ipv4only.arpa. 600 IN AAAA 2001:db8:64::c000:aa", "ipv4only.arpa. 600 IN AAAA 2001:db8:64::c000:ab"}, outcome: OutcomeLocal},
		{name: "ipv4only.arpa of another type: empty", query: "ipv4only.arpa. NS",
			ns: []string{"ipv4only.arpa. 600 IN SOA ipv4only.arpa. hostmaster.ipv4only.arpa. 1 3600 600 86400 600"}, outcome: OutcomeLocal},
		{name: "below ipv4only.arpa: no such name", query: "a.ipv4only.arpa. AAAA", rcode: dns.RcodeNameError,
			ns: []string{"ipv4only.arpa. 600 IN SOA ipv4only.arpa. hostmaster.ipv4only.arpa. 1 3600 600 86400 600"}, outcome: OutcomeLocal},
		{name: "DS below ipv4only.arpa: no such name", query: "a.ipv4only.arpa. DS", rcode: dns.RcodeNameError,
			ns: []string{"ipv4only.arpa. 600 IN SOA ipv4only.arpa. hostmaster.ipv4only.arpa. 1 3600 600 86400 600"}, outcome: OutcomeLocal},
		{name: "ipv4only.arpa DS is asked", query: "ipv4only.arpa. DS",
			upstream: map[string]string{"ipv4only.arpa. DS": soa300}, ns: soaLine, outcome: OutcomeForwarded, asked: []string{"ipv4only.arpa. DS"}},

		{name: "PTR below the prefix: by the name of the IPv4 address", query: reverseName("2001:db8:64::c633:6407") + " PTR",
			upstream: map[string]string{"7.100.51.198.in-addr.arpa. PTR": "7.100.51.198.in-addr.arpa. 900 IN PTR host.example.net."},
			answer:   []string{reverseName("2001:db8:64::c633:6407") + " 600 IN CNAME 7.100.51.198.in-addr.arpa.", "7.100.51.198.in-addr.arpa. 900 IN PTR host.example.net."},
			outcome:  OutcomeReverse, asked: []string{"7.100.51.198.in-addr.arpa. PTR"}},
		{name: "PTR below the well-known prefix, which is not configured", query: reverseName("64:ff9b::c633:6407") + " PTR",
			upstream: map[string]string{"7.100.51.198.in-addr.arpa. PTR": "7.100.51.198.in-addr.arpa. 90 IN PTR host.example.net."},
			answer:   []string{reverseName("64:ff9b::c633:6407") + " 90 IN CNAME 7.100.51.198.in-addr.arpa.", "7.100.51.198.in-addr.arpa. 90 IN PTR host.example.net."},
			outcome:  OutcomeReverse, asked: []string{"7.100.51.198.in-addr.arpa. PTR"}},
		{name: "PTR whose IPv4 address has no name: as any other query", query: reverseName("2001:db8:64::c633:6407") + " PTR",
			upstream: map[string]string{"7.100.51.198.in-addr.arpa. PTR": "NXDOMAIN\n" + soa300, reverseName("2001:db8:64::c633:6407") + " PTR": "NXDOMAIN\n" + soa300},
			rcode:    dns.RcodeNameError, ns: soaLine, outcome: OutcomeForwarded, asked: []string{"7.100.51.198.in-addr.arpa. PTR", reverseName("2001:db8:64::c633:6407") + " PTR"}},
		{name: "PTR whose IPv4 name is an alias already (RFC 2317): by the end of that", query: rev + " PTR",
			upstream: map[string]string{v4rev + " PTR": v4rev + " 300 IN CNAME 7.0/25.100.51.198.in-addr.arpa.\n7.0/25.100.51.198.in-addr.arpa. 900 IN PTR host.example.net."},
			answer:   []string{rev + " 300 IN CNAME 7.0/25.100.51.198.in-addr.arpa.", "7.0/25.100.51.198.in-addr.arpa. 900 IN PTR host.example.net."},
			outcome:  OutcomeReverse, asked: []string{v4rev + " PTR"}},
		{name: "PTR whose IPv4 name is an alias of nothing: as any other query", query: rev + " PTR",
			upstream: map[string]string{v4rev + " PTR": v4rev + " 300 IN CNAME 7.0/25.100.51.198.in-addr.arpa.\n" + soa300, rev + " PTR": "NXDOMAIN\n" + soa300},
			rcode:    dns.RcodeNameError, ns: soaLine, outcome: OutcomeForwarded, asked: []string{v4rev + " PTR", rev + " PTR"}},
		{name: "PTR of another name in the answer: as any other query", query: rev + " PTR",
			upstream: map[string]string{v4rev + " PTR": "8.100.51.198.in-addr.arpa. 300 IN PTR bank.example.", rev + " PTR": "NXDOMAIN\n" + soa300},
			rcode:    dns.RcodeNameError, ns: soaLine, outcome: OutcomeForwarded, asked: []string{v4rev + " PTR", rev + " PTR"}},
		{name: "another type at a name that has a PTR: what the IPv4 name has", query: rev + " TXT",
			upstream: map[string]string{v4rev + " PTR": v4rev + " 900 IN PTR host.example.net.", v4rev + " TXT": soa300},
			answer:   []string{rev + " 600 IN CNAME " + v4rev}, ns: soaLine, outcome: OutcomeReverse, asked: []string{v4rev + " PTR", v4rev + " TXT"}},
		{name: "AAAA at such a name: nothing is synthesized", query: rev + " AAAA",
			upstream: map[string]string{v4rev + " PTR": v4rev + " 900 IN PTR host.example.net.", v4rev + " AAAA": soa300},
			answer:   []string{rev + " 600 IN CNAME " + v4rev}, ns: soaLine, outcome: OutcomeReverse, asked: []string{v4rev + " PTR", v4rev + " AAAA"}},
		{name: "another type by RFC 2317: what the end of the alias has", query: rev + " TXT",
			upstream: map[string]string{v4rev + " PTR": v4rev + " 300 IN CNAME 7.x.arpa.\n7.x.arpa. 900 IN PTR host.example.net.", "7.x.arpa. TXT": "7.x.arpa. 20 IN TXT hello"},
			answer:   []string{rev + " 300 IN CNAME 7.x.arpa.", "7.x.arpa. 20 IN TXT hello"}, outcome: OutcomeReverse, asked: []string{v4rev + " PTR", "7.x.arpa. TXT"}},
		{name: "another type, and no one answers", query: rev + " TXT",
			upstream: map[string]string{v4rev + " PTR": v4rev + " 900 IN PTR host.example.net."},
			rcode:    dns.RcodeServerFailure, outcome: OutcomeFailed, asked: []string{v4rev + " PTR", v4rev + " TXT"}},
		{name: "the CNAME itself", query: rev + " CNAME",
			upstream: map[string]string{v4rev + " PTR": v4rev + " 900 IN PTR host.example.net."},
			answer:   []string{rev + " 600 IN CNAME " + v4rev}, outcome: OutcomeReverse, asked: []string{v4rev + " PTR"}},
		{name: "another type at a name without a PTR: as any other query", query: rev + " TXT",
			upstream: map[string]string{v4rev + " PTR": "NXDOMAIN\n" + soa300, rev + " TXT": "NXDOMAIN\n" + soa300},
			rcode:    dns.RcodeNameError, ns: soaLine, outcome: OutcomeForwarded, asked: []string{v4rev + " PTR", rev + " TXT"}},
		{name: "another type at a name of the operator: empty", query: rev + " TXT", change: func(s *Settings) { s.PTRName = "nat64.example.net" },
			ns: []string{rev + " 600 IN SOA " + rev + " hostmaster." + rev + " 1 3600 600 86400 600"}, outcome: OutcomeLocal},
		{name: "another type at an address of ipv4only.arpa: empty", query: reverseName("2001:db8:64::c000:aa") + " AAAA",
			ns: []string{reverseName("2001:db8:64::c000:aa") + " 600 IN SOA " + reverseName("2001:db8:64::c000:aa") + " hostmaster." + reverseName("2001:db8:64::c000:aa") + " 1 3600 600 86400 600"}, outcome: OutcomeLocal},
		{name: "PTR by a name of the operator", query: reverseName("2001:db8:64::c633:6407") + " PTR", change: func(s *Settings) { s.PTRName = "nat64.example.net" },
			answer: []string{reverseName("2001:db8:64::c633:6407") + " 600 IN PTR nat64.example.net."}, outcome: OutcomeLocal},
		{name: "PTR of an address of ipv4only.arpa", query: reverseName("2001:db8:64::c000:aa") + " PTR",
			answer: []string{reverseName("2001:db8:64::c000:aa") + " 600 IN PTR ipv4only.arpa."}, outcome: OutcomeLocal},
		{name: "PTR elsewhere: as any other query", query: reverseName("2001:db8:2::1") + " PTR",
			upstream: map[string]string{reverseName("2001:db8:2::1") + " PTR": soa300}, ns: soaLine, outcome: OutcomeForwarded, asked: []string{reverseName("2001:db8:2::1") + " PTR"}},
		{name: "PTR of half an address: as any other query", query: "0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa. PTR",
			upstream: map[string]string{}, rcode: dns.RcodeServerFailure, outcome: OutcomeFailed, asked: []string{"0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa. PTR"}},
	}
}

func reverseName(a string) string {
	name, err := dns.ReverseAddr(a)
	if err != nil {
		panic(err)
	}
	return name
}
