// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/translate/dns64"
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

// TestAnsweredMeanwhile has a query join a question that was answered after it had looked for that in the cache: it is not
// asked again.
func TestAnsweredMeanwhile(t *testing.T) {
	u := answering(t, netip.AddrPort{}, records(aRecord))
	r := serve(t, nil, u.at)
	only(t, r.query(t, "udp", nil), made)
	asked := u.asked.Load()
	client := netip.MustParseAddr("127.0.0.1")
	for _, kind := range []uint16{dns.TypeAAAA, dns.TypeA} {
		a := dns64.Ask{Name: "host.example.net.", Type: kind, Class: dns.ClassINET}
		f := r.resolver.join(a, client)
		select {
		case <-f.done:
		default:
			t.Errorf("%s is waited for", dns.TypeToString[kind])
		}
		r.resolver.part(a, f)
		if f.copy().Msg == nil {
			t.Errorf("%s has no answer", dns.TypeToString[kind])
		}
	}
	if u.asked.Load() != asked {
		t.Error("the upstream was asked again")
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

// TestRubbish is counted, and harms no one.
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

// TestReloadPastSilence has other upstreams asked what a silent one still is: no one joins
// that question, and its answer is not kept.
func TestReloadPastSilence(t *testing.T) {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release() // or nothing ends after a failure
	late := records("x. 300 IN AAAA 2001:db8::1")
	silent := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		<-hold
		late(w, q)
	})
	good := answering(t, netip.AddrPort{}, records("x. 300 IN AAAA 2001:db8::2"))
	r := serve(t, nil, silent.at)
	var first sync.WaitGroup
	first.Go(func() { only(t, r.query(t, "tcp", nil), "2001:db8::1") })
	eventually(t, "the first upstream is asked", func() bool { return silent.asked.Load() > 0 })
	cfg := r.cfg
	cfg.Upstreams = []netip.AddrPort{good.at}
	change, err := r.Prepare(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := change(); err != nil {
		t.Fatal(err)
	}
	only(t, r.query(t, "udp", nil), "2001:db8::2")
	release()
	first.Wait()
	only(t, r.query(t, "udp", nil), "2001:db8::2")
	if n := r.value("merged_total", ""); n != 0 {
		t.Errorf("%v merged", n)
	}
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

// TestExamineItself finds that an upstream is an address of this host, where the DNS64 listens.
func TestExamineItself(t *testing.T) {
	cfg := defaults()
	cfg.Listen = []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), free(t).Port())}
	for to, itself := range map[string]bool{"127.0.0.1": true, "192.0.2.53": false} {
		cfg.Upstreams = []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(to), cfg.Listen[0].Port())}
		if err := Examine(cfg); itself != (err != nil && strings.Contains(err.Error(), "is this DNS64 itself")) {
			t.Errorf("%s: %v", to, err)
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
		client := &dns.Client{Timeout: patience} // its socket hears no one else
		m, _, err := client.Exchange(q, netip.AddrPortFrom(netip.MustParseAddr(to), at.Port()).String())
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		only(t, m, made)
	}
}
