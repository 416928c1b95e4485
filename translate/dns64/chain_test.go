// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"
)

// TestOnlyAsked has upstreams say more than was asked.
func TestOnlyAsked(t *testing.T) {
	const (
		evil     = "bank.example. 500 IN A 203.0.113.66"
		evilAlso = "bank.example. 500 IN AAAA 2001:db8:bad::1"
		sigChain = "www.example.net. 400 IN RRSIG CNAME 8 3 400 20330101000000 20230101000000 1 example.net. AAAA"
		dname    = "old.example. 50 IN DNAME example.net."
		sigDNAME = "old.example. 50 IN RRSIG DNAME 8 2 50 20330101000000 20230101000000 1 old.example. AAAA"
		moved    = "www.old.example. 50 IN CNAME www.example.net."
	)
	long, longest := []string{}, []string{}
	for i := range maxChain + 4 {
		link := fmt.Sprintf("a%d.example.net. 10 IN CNAME a%d.example.net.", i, i+1)
		if long = append(long, link); i < maxChain {
			longest = append(longest, link)
		}
	}
	for _, tt := range []struct {
		name  string
		asked string // name and type
		said  []string
		want  []string
	}{
		{"what was asked", "host.example.net. A", []string{v4, sigA}, []string{v4, sigA}},
		{"another name beside it", "host.example.net. A", []string{evil, v4, evilAlso}, []string{v4}},
		{"another name alone", "host.example.net. A", []string{evil}, nil},
		{"a name below, and one above", "host.example.net. A", []string{"a.host.example.net. 5 IN A 203.0.113.1", "example.net. 5 IN A 203.0.113.2"}, nil},
		{"another type", "host.example.net. AAAA", []string{v4, native, sigA}, []string{native}},
		{"another class", "host.example.net. A", []string{"host.example.net. 500 CH A 198.51.100.7"}, nil},
		{"capitals", "host.example.net. A", []string{"HOST.example.NET. 500 IN A 198.51.100.7"}, []string{"HOST.example.NET. 500 IN A 198.51.100.7"}},
		{"a chain with its signatures", "www.example.net. A", []string{chain, sigChain, v4, sigA, evil}, []string{chain, sigChain, v4, sigA}},
		{"a chain in another order", "www.example.net. A", []string{v4, chain}, []string{v4, chain}},
		{"a chain that leads elsewhere than the data", "www.example.net. A", []string{chain, evil}, []string{chain}},
		{"a chain that does not begin at the name", "other.example.net. A", []string{chain, v4}, nil},
		{"data at a name that is an alias", "www.example.net. A", []string{chain, "www.example.net. 5 IN A 203.0.113.66", v4}, []string{chain, v4}},
		{"two aliases at one name", "www.example.net. A", []string{chain, "www.example.net. 5 IN CNAME bank.example.", v4, evil}, []string{chain, v4}},
		{"a name that is an alias of itself", "a.example.net. A", []string{"a.example.net. 5 IN CNAME a.example.net."}, []string{"a.example.net. 5 IN CNAME a.example.net."}},
		{"a longer chain than anybody needs", "a0.example.net. A", long, longest},
		{"a DNAME, its signature and its CNAME", "www.old.example. A", []string{dname, sigDNAME, moved, chain, v4}, []string{dname, sigDNAME, moved, chain, v4}},
		{"a DNAME without its CNAME", "www.old.example. A", []string{dname, chain, v4}, []string{dname, chain, v4}},
		{"a DNAME of another name", "host.example.net. A", []string{dname, sigDNAME, v4}, []string{v4}},
		{"a DNAME above that leads elsewhere", "www.example.net. A", []string{"net. 5 IN DNAME bank.example.", chain, v4}, []string{chain, v4}},
		{"a DNAME of the root", "host.example.net. A", []string{". 5 IN DNAME bank.example.", v4}, []string{v4}},
		{"a DNAME itself", "old.example. DNAME", []string{dname, sigDNAME, moved}, []string{dname, sigDNAME}},
		{"an alias itself is not followed", "www.example.net. CNAME", []string{chain, sigChain, v4}, []string{chain, sigChain}},
		{"everything", "host.example.net. ANY", []string{v4, native, sigA, evil}, []string{v4, native, sigA}},
		{"signatures", "host.example.net. RRSIG", []string{sigA, sigAAAA, v4}, []string{sigA, sigAAAA}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := new(dns.Msg)
			if err := q.Unpack(ask(t, tt.asked)); err != nil {
				t.Fatal(err)
			}
			var section []dns.RR
			for _, text := range tt.said {
				rr, err := dns.NewRR(text)
				if err != nil {
					t.Fatal(err)
				}
				section = append(section, rr)
			}
			got := onlyAsked(key(q.Question[0].Name, q.Question[0].Qtype), section)
			if diff := cmp.Diff(fields(tt.want), lines(got), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}
