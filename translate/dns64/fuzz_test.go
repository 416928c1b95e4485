// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// FuzzQuery brings any message in, answers what is asked for it by any other message,
// and looks that nothing comes out that may not.
func FuzzQuery(f *testing.F) {
	for _, tt := range exchangeCases() {
		query := ask(f, tt.query)
		f.Add(query, []byte(nil), false)
		for _, text := range tt.upstream {
			if r := said(f, text); r.Msg != nil {
				if b, err := r.Msg.Pack(); err == nil {
					f.Add(query, b, true)
				}
			}
		}
	}
	s := settings()
	s.Ranges = []Range{{IPv4: netip.MustParsePrefix("10.0.0.0/8")}}
	p, err := New(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw, upstream []byte, stream bool) {
		q, m, reason := p.Admit(raw, client, stream)
		var explained []*dns.EDNS0_EDE
		if reason == ReasonNone {
			l := p.Begin(&q)
			cache := NewCache(roomy())
			for asked := 0; ; asked++ {
				a, more := l.Next()
				if !more {
					break
				}
				if asked > 2 {
					t.Fatal("asks and asks")
				}
				r := Result{Msg: new(dns.Msg), Trusted: stream}
				if r.Msg.Unpack(upstream) != nil {
					r.Msg = nil
				}
				cache.Put(a, netip.Addr{}, r, start)
				if kept, ok := cache.Get(a, netip.Addr{}, start.Add(time.Second)); ok {
					r = kept
				}
				l.Take(r)
			}
			m, explained, _ = l.Response()
			if m == nil {
				t.Fatal("no response")
			}
			for _, rr := range m.Answer {
				if a, ok := rr.(*dns.AAAA); ok && q.Msg.Question[0].Qtype == dns.TypeAAAA && q.Msg.Question[0].Qclass == dns.ClassINET &&
					!(q.Msg.CheckingDisabled && q.do()) && a.AAAA.To4() != nil && len(a.AAAA) == 16 && m.Rcode == dns.RcodeSuccess {
					t.Fatalf("an excluded address: %s", a)
				}
			}
			if m.AuthenticatedData && !q.do() {
				t.Fatal("AD without DO")
			}
		}
		if m == nil {
			return
		}
		wire, err := q.Pack(m, explained)
		if err != nil {
			return // an upstream's record that cannot be packed again: SERVFAIL
		}
		if !stream && q.Msg != nil && len(wire) > q.size() {
			t.Fatalf("%d octets for a client that takes %d", len(wire), q.size())
		}
		if got := new(dns.Msg); got.Unpack(wire) != nil || got.Id != uint16(raw[0])<<8|uint16(raw[1]) || !got.Response {
			t.Fatalf("not an answer to the query: %x", wire)
		}
	})
}
