// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// patience is how long a test waits for what must come.
const patience = testutil.Patience

var (
	loopback  = netip.MustParseAddr("127.0.0.1")
	loopbacks = netip.MustParsePrefix("127.0.0.0/8")
	prefix    = netip.MustParsePrefix("2001:db8:64::/96")
)

// free returns a loopback address whose port no one has.
func free(*testing.T) netip.AddrPort { return netip.AddrPortFrom(loopback, testutil.FreePort()) }

// upstreamDouble is a name server that says what a test wants.
type upstreamDouble struct {
	at       netip.AddrPort
	udp, tcp *dns.Server
	asked    atomic.Int64
}

// answering starts a double. What handle leaves unanswered stays so.
func answering(t *testing.T, at netip.AddrPort, handle func(w dns.ResponseWriter, q *dns.Msg)) *upstreamDouble {
	t.Helper()
	if !at.IsValid() {
		at = free(t)
	}
	u := &upstreamDouble{at: at}
	counted := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		u.asked.Add(1)
		handle(w, q)
	})
	var started sync.WaitGroup
	for _, s := range []**dns.Server{&u.udp, &u.tcp} {
		network := "udp"
		if s == &u.tcp {
			network = "tcp"
		}
		started.Add(1)
		*s = &dns.Server{Net: network, Addr: at.String(), Handler: counted, NotifyStartedFunc: started.Done}
		go func(s *dns.Server) { _ = s.ListenAndServe() }(*s)
	}
	started.Wait()
	t.Cleanup(u.stop)
	return u
}

func (u *upstreamDouble) stop() {
	_ = u.udp.Shutdown()
	_ = u.tcp.Shutdown()
}

// records answers with the records of that type, or else with an SOA.
func records(texts ...string) func(w dns.ResponseWriter, q *dns.Msg) {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		for _, text := range texts {
			rr, err := dns.NewRR(text)
			if err != nil {
				panic(err)
			}
			if rr.Header().Rrtype == q.Question[0].Qtype {
				rr.Header().Name = q.Question[0].Name
				m.Answer = append(m.Answer, rr)
			}
		}
		if len(m.Answer) == 0 {
			soa, _ := dns.NewRR("example.net. 300 IN SOA ns.example.net. h.example.net. 1 2 3 4 120")
			m.Ns = []dns.RR{soa}
		}
		_ = w.WriteMsg(m)
	}
}

// rig is a running DNS64.
type rig struct {
	*Instance
	at   netip.AddrPort
	stop func() error
	log  *strings.Builder // to be read after stop
}

// serve runs a DNS64 with those upstreams. It waits for a slow one, as those of tests may
// be; one that is not there is known by the kernel's word.
func serve(t *testing.T, change func(*Settings), upstreams ...netip.AddrPort) *rig {
	t.Helper()
	return serveIn(t, func(run func() error) error { return run() }, change, upstreams...)
}

// defaults are the settings of a section without keys.
func defaults() (s Settings) {
	key.SetDefaults(s.keys())
	return s
}

// serveIn is serve with the sockets for clients elsewhere: within runs what opens them.
func serveIn(t *testing.T, within func(func() error) error, change func(*Settings), upstreams ...netip.AddrPort) *rig {
	t.Helper()
	cfg := defaults()
	cfg.Listen = []netip.AddrPort{free(t)}
	cfg.Upstreams, cfg.Clients = upstreams, []netip.Prefix{loopbacks}
	cfg.Prefixes = []netip.Prefix{prefix}
	cfg.UpstreamTimeout, cfg.QueryTimeout = patience, patience
	if change != nil {
		change(&cfg)
	}
	log := new(strings.Builder)
	i, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- within(func() error { return i.Run(ctx) }) }()
	select {
	case <-i.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	r := &rig{Instance: i, at: cfg.Listen[0], log: log}
	r.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("it does not end")
		}
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// query asks and returns the answer.
func (r *rig) query(t *testing.T, network string, change func(*dns.Msg)) *dns.Msg {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion("host.example.net.", dns.TypeAAAA)
	if change != nil {
		change(q)
	}
	client := &dns.Client{Net: network, Timeout: patience, UDPSize: 4096}
	m, _, err := client.Exchange(q, r.at.String())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// value is a metric without labels, or with that reason.
func (r *rig) value(name, reason string) float64 {
	found := -1.0
	r.Collect(func(m role.Metric) {
		if m.Name == name && m.Reason == reason {
			found = m.Value
		}
	})
	return found
}

// eventually waits for a condition that something else brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}
