// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"
)

// TestAhead has upstreams take their time: answers come when they are due, and not before
// AAAA records have had their time.
func TestAhead(t *testing.T) {
	const never = time.Hour
	for _, tt := range []struct {
		name     string
		query    string
		aaaa, a  string
		at, took time.Duration // when the AAAA answer comes, and how long the A answer takes
		done     time.Duration
		answer   []string
		asksA    bool
		outcome  Outcome
	}{
		{name: "AAAA records at once: no question for A", aaaa: native, at: headStart - 1, done: headStart - 1,
			answer: []string{native}, outcome: OutcomeNative},
		{name: "AAAA records a little later", aaaa: native, at: time.Second, took: 10 * time.Millisecond, done: time.Second,
			answer: []string{native}, asksA: true, outcome: OutcomeNative},
		{name: "AAAA records at the last moment", aaaa: native, at: nativeTime - 1, took: 10 * time.Millisecond, done: nativeTime - 1,
			answer: []string{native}, asksA: true, outcome: OutcomeNative},
		{name: "AAAA records never: the question counts as failed", at: never, a: v4, took: 10 * time.Millisecond, done: nativeTime,
			answer: []string{made500}, asksA: true, outcome: OutcomeSynthesized},
		{name: "A records that are late, too", at: never, a: v4, took: 4 * time.Second, done: headStart + 4*time.Second,
			answer: []string{made500}, asksA: true, outcome: OutcomeSynthesized},
		{name: "no AAAA records, and A records were asked for meanwhile", aaaa: soa300, at: time.Second, a: v4, took: 10 * time.Millisecond, done: time.Second,
			answer: []string{made}, asksA: true, outcome: OutcomeSynthesized},
		{name: "no AAAA records, and A records soon", aaaa: soa300, at: time.Second, a: v4, took: time.Second, done: headStart + time.Second,
			answer: []string{made}, asksA: true, outcome: OutcomeSynthesized},
		{name: "no A records: AAAA records have all the time", aaaa: native, at: 7 * time.Second, a: soa300, took: 10 * time.Millisecond, done: 7 * time.Second,
			answer: []string{native}, asksA: true, outcome: OutcomeNative},
		{name: "A records of which no AAAA records are made: the same", aaaa: native, at: 7 * time.Second, a: "host.example.net. 500 IN A 127.0.0.1", took: 10 * time.Millisecond,
			done: 7 * time.Second, answer: []string{native}, asksA: true, outcome: OutcomeNative},
		{name: "an error for A: the same", aaaa: native, at: 7 * time.Second, a: "SERVFAIL", took: 10 * time.Millisecond, done: 7 * time.Second,
			answer: []string{native}, asksA: true, outcome: OutcomeNative},
		{name: "forged AAAA records: what was asked ahead is no way around", aaaa: "trusted\nSERVFAIL\nbogus", at: 2 * time.Second, a: v4, took: 10 * time.Millisecond,
			done: 2 * time.Second, asksA: true, outcome: OutcomeForwarded},
		{name: "no such name: nor then", aaaa: "NXDOMAIN\n" + soa300, at: 2 * time.Second, a: v4, took: 10 * time.Millisecond,
			done: 2 * time.Second, asksA: true, outcome: OutcomeForwarded},
		{name: "a client that validates: nothing is asked for it", query: "cd do " + question, aaaa: soa300, at: 5 * time.Second,
			done: 5 * time.Second, outcome: OutcomeForwarded},
		{name: "another type: nothing either", query: "host.example.net. A", aaaa: v4, at: 5 * time.Second,
			done: 5 * time.Second, answer: []string{v4}, outcome: OutcomeForwarded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			query := tt.query
			if query == "" {
				query = question
			}
			p := policy(t, nil)
			q, _, _ := p.Admit(ask(t, query), client, false)
			l := p.Begin(&q)
			asksA, answered := false, false
			var asked, now time.Duration // when A was asked for
			for {
				next, more := l.Next()
				if !more {
					break
				}
				first := next.Type == q.Msg.Question[0].Qtype
				switch other, ok := l.Ahead(now); {
				case first && now >= tt.at:
					l.Take(said(t, tt.aaaa))
					continue
				case first && l.Late(now):
					l.Take(Result{})
					continue
				case !first && now >= asked+tt.took:
					l.Take(said(t, tt.a))
					continue
				case ok && !asksA:
					asksA, asked = true, now
					if other != key("host.example.net.", dns.TypeA) {
						t.Fatalf("asks for %+v", other)
					}
				case ok && !answered && now >= asked+tt.took:
					answered = true
					l.TakeAhead(said(t, tt.a))
					continue
				}
				// The next moment at which anything happens.
				soonest := never
				for _, at := range []time.Duration{tt.at, asked + tt.took, l.Again(now)} {
					if at > now {
						soonest = min(soonest, at)
					}
				}
				if now = soonest; now == never {
					t.Fatal("waits for ever")
				}
			}
			m, _, outcome := l.Response()
			if now != tt.done || asksA != tt.asksA || outcome != tt.outcome {
				t.Errorf("after %v, A asked for %v, %s; want %v, %v, %s", now, asksA, outcome, tt.done, tt.asksA, tt.outcome)
			}
			if diff := cmp.Diff(fields(tt.answer), lines(m.Answer), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}
