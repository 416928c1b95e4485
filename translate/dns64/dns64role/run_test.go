// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

const (
	aRecord = "host.example.net. 500 IN A 198.51.100.7"
	made    = "2001:db8:64::c633:6407"
)

func only(t *testing.T, m *dns.Msg, want string) {
	t.Helper()
	if len(m.Answer) != 1 {
		t.Fatalf("answer %v", m)
	}
	if a, ok := m.Answer[0].(*dns.AAAA); !ok || a.AAAA.String() != want {
		t.Errorf("answer %v, want %s", m.Answer[0], want)
	}
}

// TestCacheAndMerging has many clients ask one thing at one time: the upstream hears it
// once, and not again.
func TestCacheAndMerging(t *testing.T) {
	hold := make(chan struct{})
	answer := records(aRecord)
	u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		<-hold
		answer(w, q)
	})
	r := serve(t, func(c *Settings) { c.UpstreamTimeout, c.QueryTimeout = patience, 2*patience }, u.at) // none is asked again
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() { only(t, r.query(t, "udp", nil), made) })
	}
	eventually(t, "all wait", func() bool { return r.value("waiting", "") == 20 && r.value("merged_total", "") >= 19 })
	close(hold)
	clients.Wait()
	only(t, r.query(t, "tcp", nil), made)
	if asked := u.asked.Load(); asked != 2 {
		t.Errorf("the upstream was asked %d times, want once for AAAA and once for A", asked)
	}
	if n := r.value("answers_total", "synthesized"); n != 21 {
		t.Errorf("%v synthesized", n)
	}
	if r.value("tcp_queries_total", "") != 1 || r.value("udp_queries_total", "") != 20 || r.value("cache_entries", "") != 2 {
		t.Error("counters")
	}
}

// TestLongLives has clients told of no longer life than the cache allows, fresh or not.
func TestLongLives(t *testing.T) {
	u := answering(t, netip.AddrPort{}, records("x. 86400 IN AAAA 2001:db8::1"))
	r := serve(t, func(c *Settings) { c.CacheMaxTTL = time.Minute }, u.at)
	for range 2 {
		if m := r.query(t, "udp", nil); len(m.Answer) != 1 || m.Answer[0].Header().Ttl > 60 {
			t.Errorf("answer %v", m)
		}
	}
}

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

// TestUnreadableAnswers have nobody wait for better ones: they are fetched by TCP, and the
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

// TestRefusals has strangers, fast clients and too many questions turned away, each
// counted by its reason.
func TestRefusals(t *testing.T) {
	configtest.InEffect(t, "dns64", "clients", "burst", "max_queries")
	u := answering(t, netip.AddrPort{}, records(aRecord))
	r := serve(t, func(c *Settings) { c.Clients = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }, u.at)
	if m := r.query(t, "udp", nil); m.Rcode != dns.RcodeRefused || r.value("dropped_total", "client_refused") != 1 {
		t.Errorf("a stranger: %v", m)
	}

	r = serve(t, func(c *Settings) { c.RatePerClient, c.Burst = 1, 3 }, u.at)
	conn, err := net.Dial("udp", r.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q, _ := new(dns.Msg).SetQuestion("ipv4only.arpa.", dns.TypeAAAA).Pack()
	for range 20 {
		if _, err := conn.Write(q); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all were seen", func() bool { return r.value("udp_queries_total", "") == 20 })
	eventually(t, "the rate is kept", func() bool {
		return r.value("dropped_total", "rate_limited")+r.value("answers_total", "local") == 20
	})
	if n := r.value("dropped_total", "rate_limited"); n < 10 {
		t.Errorf("%v dropped", n)
	}

	silent := answering(t, netip.AddrPort{}, func(dns.ResponseWriter, *dns.Msg) {})
	r = serve(t, func(c *Settings) { c.MaxQueries = 1 }, silent.at)
	waiting, err := net.Dial("udp", r.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	q, _ = new(dns.Msg).SetQuestion("slow.example.net.", dns.TypeAAAA).Pack()
	if _, err := waiting.Write(q); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one waits", func() bool { return r.value("waiting", "") == 1 })
	if m := r.query(t, "udp", nil); m.Rcode != dns.RcodeServerFailure || r.value("dropped_total", "busy") != 1 {
		t.Errorf("one too many: %v", m)
	}
}

// TestStreams bounds connections, and answers several queries of one as their answers come.
func TestStreams(t *testing.T) {
	hold := make(chan struct{})
	answer := records(aRecord)
	u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		if strings.HasPrefix(q.Question[0].Name, "slow") {
			<-hold
		}
		answer(w, q)
	})
	r := serve(t, func(c *Settings) { c.IdleTimeout, c.MaxConnections = 2*patience, 8 }, u.at)
	conn, err := dns.Dial("tcp", r.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	for _, name := range []string{"slow.example.net.", "fast.example.net."} {
		if err := conn.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeAAAA)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"fast.example.net.", "slow.example.net."} {
		m, err := conn.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		if m.Question[0].Name != want {
			t.Errorf("answer about %s, want %s", m.Question[0].Name, want)
		}
		if want == "fast.example.net." {
			close(hold)
		}
	}
	// One address may have an eighth of them. Which of two goes is a matter of time.
	second, err := net.Dial("tcp", r.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	eventually(t, "one of two connections goes where there is room for one", func() bool {
		return r.value("dropped_total", "connections_full") == 1 && r.value("connections", "") == 1
	})
}

// TestSilentStream is closed.
func TestSilentStream(t *testing.T) {
	configtest.InEffect(t, "dns64", "idle_timeout")
	r := serve(t, func(c *Settings) { c.IdleTimeout = 300 * time.Millisecond }, free(t))
	conn, err := net.Dial("tcp", r.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(defaults().IdleTimeout - time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a silent connection ends with %v", err)
	}
	eventually(t, "the place is free", func() bool { return r.value("connections", "") == 0 })
}

// TestRubbish is counted, and harms nobody.
func TestRubbish(t *testing.T) {
	u := answering(t, netip.AddrPort{}, records(aRecord))
	r := serve(t, nil, u.at)
	conn, err := net.Dial("udp", r.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, b := range [][]byte{{}, {1}, make([]byte, 11), make([]byte, 12), make([]byte, 1400)} {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all were seen", func() bool {
		return r.value("dropped_total", "malformed") == 3 && r.value("dropped_total", "not_one_question") == 2
	})
	only(t, r.query(t, "udp", nil), made)
}

// TestReload changes all but the addresses under a running instance.
func TestReload(t *testing.T) {
	first := answering(t, netip.AddrPort{}, records("x. 300 IN A 198.51.100.1"))
	second := answering(t, netip.AddrPort{}, records("x. 300 IN A 198.51.100.2"))
	r := serve(t, nil, first.at)
	only(t, r.query(t, "udp", nil), "2001:db8:64::c633:6401")
	cfg := r.cfg
	reload := func() error {
		change, err := r.Prepare(cfg)
		if err != nil {
			return err
		}
		_, err = change()
		return err
	}
	cfg.Prefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8:65::/96")}
	if err := reload(); err != nil {
		t.Fatal(err)
	}
	only(t, r.query(t, "udp", nil), "2001:db8:65::c633:6401")
	if first.asked.Load() != 2 {
		t.Error("another prefix needs no other answers")
	}
	cfg.Upstreams = []netip.AddrPort{second.at}
	if err := reload(); err != nil {
		t.Fatal(err)
	}
	only(t, r.query(t, "udp", nil), "2001:db8:65::c633:6402")
	cfg.Clients = nil
	if err := reload(); err == nil {
		t.Error("nobody may ask any more, and no error")
	}
	only(t, r.query(t, "udp", nil), "2001:db8:65::c633:6402")
}

func TestExamine(t *testing.T) {
	cfg := defaults()
	cfg.Listen = []netip.AddrPort{free(t)}
	if err := Examine(cfg); err != nil {
		t.Error(err)
	}
	taken, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(cfg.Listen[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg.Listen = append(cfg.Listen, netip.MustParseAddrPort("192.0.2.1:5300"))
	err = Examine(cfg)
	for _, word := range []string{"in use by another program", "is not an address of this host"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v lacks %q", err, word)
		}
	}
}

// TestAnyAddress listens on all addresses: answers come from the one that was asked.
func TestAnyAddress(t *testing.T) {
	u := answering(t, netip.AddrPort{}, records(aRecord))
	at := netip.AddrPortFrom(netip.IPv6Unspecified(), free(t).Port())
	serve(t, func(c *Settings) {
		c.Listen = []netip.AddrPort{at}
		c.Clients = append(c.Clients, netip.MustParsePrefix("::1/128"))
	}, u.at)
	for _, to := range []string{"127.0.0.2", "127.0.0.1", "::1"} {
		q := new(dns.Msg).SetQuestion("host.example.net.", dns.TypeAAAA)
		client := &dns.Client{Timeout: patience} // its socket hears nobody else
		m, _, err := client.Exchange(q, netip.AddrPortFrom(netip.MustParseAddr(to), at.Port()).String())
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		only(t, m, made)
	}
}
