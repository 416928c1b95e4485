// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

// TestFailover has the first upstream die, and come back.
func TestFailover(t *testing.T) {
	configtest.InEffect(t, "dns64", "listen", "upstreams")
	first := answering(t, netip.AddrPort{}, records("x. 0 IN AAAA 2001:db8::1"))
	second := answering(t, netip.AddrPort{}, records("x. 0 IN AAAA 2001:db8::2"))
	r := serve(t, nil, first.at, second.at)
	only(t, r.query(t, "udp", nil), "2001:db8::1")
	first.stop()
	only(t, r.query(t, "udp", nil), "2001:db8::2")
	only(t, r.query(t, "udp", nil), "2001:db8::2")
	status := r.Status().(Status)
	if status.Upstreams[0].Answers || !status.Upstreams[1].Answers || r.value("upstreams_answering", "") != 1 {
		t.Errorf("status %+v", status.Upstreams)
	}
	failed := status.Upstreams[0].Failed
	only(t, r.query(t, "udp", nil), "2001:db8::2")
	if again := r.Status().(Status).Upstreams[0]; again.Failed != failed && again.Asked == failed {
		t.Error("a dead upstream is asked first")
	}
	answering(t, first.at, records("x. 0 IN AAAA 2001:db8::3"))
	eventually(t, "the first is back", func() bool { return r.Status().(Status).Upstreams[0].Answers })
	only(t, r.query(t, "udp", nil), "2001:db8::3")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"does not answer", "answers again"} {
		if n := strings.Count(r.log.String(), word); n != 1 {
			t.Errorf("%q stands %d times in the log:\n%s", word, n, r.log)
		}
	}
}

// TestNobodyAnswers ends in SERVFAIL.
func TestNobodyAnswers(t *testing.T) {
	silent := answering(t, netip.AddrPort{}, func(dns.ResponseWriter, *dns.Msg) {})
	r := serve(t, func(c *Settings) { c.UpstreamTimeout = 100 * time.Millisecond }, silent.at)
	if m := r.query(t, "udp", nil); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("answer %v", m)
	}
	if r.value("answers_total", "failed") != 1 {
		t.Error("not counted")
	}
}

// TestSilentUpstream leaves no time for a second upstream behind a silent one: it is asked
// first as soon as the silence is noticed.
func TestSilentUpstream(t *testing.T) {
	silent := answering(t, netip.AddrPort{}, func(dns.ResponseWriter, *dns.Msg) {})
	good := answering(t, netip.AddrPort{}, records("x. 0 IN MX 1 mail.example.net."))
	r := serve(t, func(c *Settings) { c.UpstreamTimeout, c.QueryTimeout = 3*time.Second, 3*time.Second }, silent.at, good.at)
	for n, want := range []int{dns.RcodeServerFailure, dns.RcodeServerFailure, dns.RcodeSuccess} {
		m := r.query(t, "udp", func(q *dns.Msg) { q.SetQuestion(fmt.Sprintf("host%d.example.net.", n), dns.TypeMX) })
		if m.Rcode != want {
			t.Errorf("query %d: %v", n, m)
		}
	}
	if status := r.Status().(Status).Upstreams; status[0].Answers || !status[1].Answers {
		t.Errorf("status %+v", status)
	}
}

// TestHurriedUpstream: who was asked in the last moment, or for somebody who has gone, is not
// silent for that.
func TestHurriedUpstream(t *testing.T) {
	silent := answering(t, netip.AddrPort{}, func(dns.ResponseWriter, *dns.Msg) {})
	u := newUpstreams(&Settings{Upstreams: []netip.AddrPort{silent.at}, UpstreamTimeout: patience}, slog.New(slog.DiscardHandler))
	a := dns64.Ask{Name: "host.example.net.", Type: dns.TypeA, Class: dns.ClassINET}
	for range 2 {
		late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		u.askOne(late, 0, a)
		cancel()
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, leave)
		u.askOne(gone, 0, a)
	}
	if s := u.status()[0]; !s.Answers || s.Failed != 4 {
		t.Errorf("status %+v", s)
	}
}

// TestDroppedQuestion has an authority drop questions for AAAA records, so that upstreams
// say nothing: clients have an answer before they lose patience, all by one question, and
// the AAAA records as soon as these are heard.
func TestDroppedQuestion(t *testing.T) {
	for _, n := range []int{1, 2} {
		hold := make(chan struct{})
		release := sync.OnceFunc(func() { close(hold) })
		defer release() // or nothing ends after a failure
		answer := records(aRecord, "x. 500 IN AAAA 2001:db8::1")
		var upstreams []netip.AddrPort
		var first *upstreamDouble
		for range n {
			u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
				if q.Question[0].Qtype == dns.TypeAAAA {
					<-hold
				}
				answer(w, q)
			})
			if first == nil {
				first = u
			}
			upstreams = append(upstreams, u.at)
		}
		r := serve(t, func(c *Settings) { c.UpstreamTimeout, c.QueryTimeout = 10*patience, 10*patience }, upstreams...)
		for range 2 {
			only(t, r.query(t, "udp", nil), made)
		}
		only(t, r.query(t, "tcp", nil), made)
		if asked := first.asked.Load(); asked != 2 {
			t.Errorf("asked %d times, want once for AAAA and once for A", asked)
		}
		if r.value("waiting", "") != 3 {
			t.Error("the places are free before the upstream has answered")
		}
		release()
		eventually(t, "the answer is heard", func() bool { return r.value("waiting", "") == 0 })
		only(t, r.query(t, "udp", nil), "2001:db8::1")
	}
}

// TestErrorsOfUpstreams asks the next one about errors, but believes a trusted one.
func TestErrorsOfUpstreams(t *testing.T) {
	configtest.InEffect(t, "dns64", "trusted")
	failing := func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		_ = w.WriteMsg(m.SetRcode(q, dns.RcodeServerFailure))
	}
	for _, trusted := range []bool{false, true} {
		first := answering(t, netip.AddrPort{}, failing)
		second := answering(t, netip.AddrPort{}, records("x. 0 IN MX 1 mail.example.net."))
		r := serve(t, func(c *Settings) {
			if trusted {
				c.Trusted = c.Upstreams[:1]
			}
		}, first.at, second.at)
		m := r.query(t, "udp", func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeMX })
		if failed := m.Rcode == dns.RcodeServerFailure; failed != trusted {
			t.Errorf("trusted %v: %v", trusted, m)
		}
	}
}

// TestForgedAnswers sends wrong answers before the right one: other identifiers, other
// questions, other cases, rubbish.
func TestForgedAnswers(t *testing.T) {
	right := records("x. 0 IN AAAA 2001:db8::1")
	wrong := records("x. 0 IN AAAA 2001:db8::bad")
	u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		forged := func(change func(*dns.Msg)) {
			m := q.Copy()
			change(m)
			wrong(w, m)
		}
		forged(func(m *dns.Msg) { m.Id++ })
		forged(func(m *dns.Msg) { m.Question[0].Name = "other.example.net." })
		forged(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeA })
		forged(func(m *dns.Msg) { m.Question[0].Name = swapCase(m.Question[0].Name) })
		_, _ = w.Write([]byte("rubbish"))
		right(w, q)
	})
	r := serve(t, func(c *Settings) { c.MixedCase = true }, u.at)
	for range 5 {
		m := r.query(t, "udp", nil)
		only(t, m, "2001:db8::1")
		if m.Question[0].Name != "host.example.net." || m.Answer[0].Header().Name != "host.example.net." {
			t.Errorf("the case of the question got out: %v", m)
		}
	}
}

func swapCase(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r ^ 0x20
		}
		return r
	}, name)
}

// TestLongAnswers come from the upstream by TCP, and go to clients as they take it.
func TestLongAnswers(t *testing.T) {
	configtest.InEffect(t, "dns64", "udp_size")
	var texts []string
	for i := range 100 {
		texts = append(texts, fmt.Sprintf("x. 300 IN AAAA 2001:db8::%x", i+1))
	}
	all := records(texts...)
	u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		if w.RemoteAddr().Network() == "udp" {
			m := new(dns.Msg)
			m.SetReply(q)
			m.Truncated = true
			_ = w.WriteMsg(m)
			return
		}
		all(w, q)
	})
	r := serve(t, written(t, "udp_size = 700"), u.at)
	if m := r.query(t, "tcp", nil); len(m.Answer) != 100 || m.Truncated {
		t.Errorf("%d records by TCP, TC %v", len(m.Answer), m.Truncated)
	}
	for _, size := range []uint16{0, 1232, 4096} {
		m := r.query(t, "udp", func(q *dns.Msg) {
			if size > 0 {
				q.SetEdns0(size, false)
			}
		})
		m.Compress = true
		if !m.Truncated || m.Len() > 700 {
			t.Errorf("size %d: TC %v, %d octets", size, m.Truncated, m.Len())
		}
	}
	m := r.query(t, "udp", func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeANY })
	if !m.Truncated { // which cuts nothing
		t.Errorf("ANY: %v", m)
	}
	if r.value("truncated_total", "") != 3 {
		t.Error("not counted")
	}
}

// TestOldUpstream knows no EDNS, or not this one, and says so in one way or the other.
func TestOldUpstream(t *testing.T) {
	right := records("x. 0 IN AAAA 2001:db8::1")
	opt := new(dns.Msg).SetEdns0(1232, false).Extra
	for _, tt := range []struct {
		name  string
		error func(q *dns.Msg) *dns.Msg
	}{
		{"FORMERR without the question", func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcodeFormatError(q) }},
		{"FORMERR with an OPT record", func(q *dns.Msg) *dns.Msg {
			m := new(dns.Msg).SetRcode(q, dns.RcodeFormatError)
			m.Extra = opt
			return m
		}},
		{"NOTIMP", func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeNotImplemented) }},
		{"BADVERS", func(q *dns.Msg) *dns.Msg {
			m := new(dns.Msg).SetRcode(q, dns.RcodeBadVers)
			m.Extra = opt
			return m
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			refused, again := make(map[uint16]bool), []uint16(nil)
			u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
				mu.Lock()
				defer mu.Unlock()
				if q.IsEdns0() != nil {
					refused[q.Id] = true
					_ = w.WriteMsg(tt.error(q))
					return
				}
				again = append(again, q.Id)
				right(w, q)
			})
			r := serve(t, nil, u.at)
			only(t, r.query(t, "udp", nil), "2001:db8::1")
			mx := r.query(t, "udp", func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeMX })
			if mx.Rcode != dns.RcodeSuccess {
				t.Errorf("another type: %v", mx)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.ContainsFunc(again, func(id uint16) bool { return !refused[id] }) {
				t.Errorf("%d questions were repeated with identifiers that may have been guessed", len(again))
			}
		})
	}
}

// TestUnreadableAnswers have no one wait for better ones: they are fetched by TCP, and the
// next upstream is asked where that is no better.
func TestUnreadableAnswers(t *testing.T) {
	right := records("x. 0 IN AAAA 2001:db8::1")
	header := func(q *dns.Msg, rcode byte, rest ...byte) []byte {
		return append([]byte{byte(q.Id >> 8), byte(q.Id), 0x81, 0x80 | rcode, 0, 1}, rest...)
	}
	for _, tt := range []struct {
		name   string
		answer func(q *dns.Msg) []byte
	}{
		{"a question cut off", func(q *dns.Msg) []byte { return header(q, 0, 0, 0, 0, 0, 0, 0, 4, 'h') }},
		{"a header without its question", func(q *dns.Msg) []byte { return header(q, 0, 0, 1, 0, 0, 0, 0) }},
		{"an error without its question", func(q *dns.Msg) []byte { return header(q, dns.RcodeRefused, 0, 0, 0, 0, 0, 0) }},
		{"a record that is none", func(q *dns.Msg) []byte {
			b, _ := new(dns.Msg).SetReply(q).Pack()
			b[7] = 1
			return append(b, 0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 9, 0, 3, 1, 2, 3)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			broken := func(byTCP func(dns.ResponseWriter, *dns.Msg)) netip.AddrPort {
				return answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
					if byTCP != nil && w.RemoteAddr().Network() == "tcp" {
						byTCP(w, q)
						return
					}
					_, _ = w.Write(tt.answer(q))
				}).at
			}
			long := func(c *Settings) { c.UpstreamTimeout, c.QueryTimeout = 10*patience, 10*patience }
			if tt.name != "an error without its question" {
				only(t, serve(t, long, broken(right)).query(t, "udp", nil), "2001:db8::1")
			}
			r := serve(t, long, broken(nil), answering(t, netip.AddrPort{}, right).at)
			only(t, r.query(t, "udp", nil), "2001:db8::1")
			if s := r.Status().(Status).Upstreams[0]; !s.Answers || s.Failed != 0 {
				t.Errorf("taken for silent: %+v", s)
			}
			if m := serve(t, long, broken(nil)).query(t, "udp", nil); m.Rcode == dns.RcodeSuccess {
				t.Errorf("nothing but that: %v", m)
			}
		})
	}
}
