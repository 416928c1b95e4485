// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/translate/pref64"
)

// nameServer answers in the router with the AAAA records that hold now.
type nameServer struct {
	mu      sync.Mutex
	records []string
	asked   int
	checked bool // a query had the CD bit
}

func (s *nameServer) set(records ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = records
}

func (s *nameServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.checked = s.checked || q.CheckingDisabled
	m := new(dns.Msg)
	m.SetReply(q)
	for _, text := range s.records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		if rr.Header().Rrtype == dns.TypeSOA {
			m.Ns = append(m.Ns, rr)
		} else {
			m.Answer = append(m.Answer, rr)
		}
	}
	_ = w.WriteMsg(m)
}

func (n network) resolve(t *testing.T, handler dns.Handler) {
	t.Helper()
	n.router.Do(t, func() error {
		conn, err := net.ListenPacket("udp", "[2001:db8:1::1]:53")
		if err != nil {
			return err
		}
		server := &dns.Server{PacketConn: conn, Handler: handler}
		go func() { _ = server.ActivateAndServe() }()
		t.Cleanup(func() { _ = server.Shutdown() })
		return nil
	})
}

// TestDNSThenRouters has a host learn by DNS, ask again before the end, and change over to
// what routers say.
func TestDNSThenRouters(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	var s nameServer
	s.set("ipv4only.arpa. 1 IN AAAA 2001:db8:53::192.0.0.170", "ipv4only.arpa. 1 IN AAAA 2001:db8:53::192.0.0.171")
	n.resolve(t, &s)
	w := n.watch(t, "[2001:db8:1::1]:53")
	w.await(t, "dns [2001:db8:53::/96]")
	s.set("ipv4only.arpa. 1 IN AAAA 2001:db8:54::192.0.0.170")
	w.await(t, "dns [2001:db8:54::/96]")
	if said := w.said(); strings.Contains(said, "none") {
		t.Errorf("there was a gap:\n%s", said)
	}
	stop := n.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96"))
	w.await(t, "router advertisement [2001:db8:64::/96]")
	stop(context.Canceled)
	w.await(t, "dns [2001:db8:54::/96]")
	s.set("arpa. 1 IN SOA a. b. 1 2 3 4 1")
	w.await(t, "none []")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checked {
		t.Error("a query had the CD bit")
	}
}

// TestRefresh has one prefix asked for again and again, for minutes of virtual time. No one hears
// that it has gone while it has not.
func TestRefresh(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	const learnt, none = "dns [2001:db8:53::/96]", "none []"
	fixed := func(ttl time.Duration) func(time.Duration) (time.Duration, error) {
		return func(time.Duration) (time.Duration, error) { return ttl, nil }
	}
	for _, tt := range []struct {
		name      string
		takes     time.Duration // an answer
		ttl       func(after time.Duration) (time.Duration, error)
		questions int // at most, in five minutes
		want      []string
	}{
		{"a minute", 50 * time.Millisecond, fixed(time.Minute), 6, []string{learnt}},
		{"a second", 50 * time.Millisecond, fixed(time.Second), 300, []string{learnt}},
		{"no TTL", 50 * time.Millisecond, fixed(0), 300, []string{learnt}},
		{"a slow answer", 15 * time.Second, fixed(time.Second), 20, []string{learnt}},
		{"a resolver that counts from 12 to 0", 50 * time.Millisecond, func(after time.Duration) (time.Duration, error) {
			return 12*time.Second - after.Truncate(time.Second)%(13*time.Second), nil
		}, 75, []string{learnt}},
		{"each other answer is lost", 2 * time.Second, func(after time.Duration) (time.Duration, error) {
			if after/(5*time.Second)%2 == 1 {
				return 0, errSilent
			}
			return 5 * time.Second, nil
		}, 100, []string{learnt}},
		{"silence after a minute", 2 * time.Second, func(after time.Duration) (time.Duration, error) {
			if after > time.Minute {
				return 0, errSilent
			}
			return 30 * time.Second, nil
		}, 20, []string{learnt, none}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &watcher{log: slog.New(slog.DiscardHandler), sets: make(chan pref64.Set, 1), answers: make(chan asked, 1), ask: ask}
			var told []string
			step := func(now time.Time) {
				w.due(t.Context(), now)
				w.tell(now)
				select {
				case set := <-w.sets:
					told = append(told, fmt.Sprint(set.Source, " ", set.Prefixes))
				default:
				}
			}
			w.begin(start)
			questions := 0
			for now := start; now.Before(start.Add(5 * time.Minute)); now = w.next(now) {
				if step(now); !w.asking {
					continue
				}
				questions++
				a := <-w.answers // of no one: the row answers
				end := now.Add(tt.takes)
				for ; now.Before(end); now = w.next(now) {
					step(now)
				}
				now = end
				var ttl time.Duration
				if ttl, a.err = tt.ttl(now.Sub(start)); a.err == nil {
					a.answer = answer{prefixes("2001:db8:53::/96"), ttl}
				}
				w.answered(a, now)
				step(now)
			}
			if diff := cmp.Diff(tt.want, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if questions > tt.questions {
				t.Errorf("%d questions, want %d at most", questions, tt.questions)
			}
		})
	}
}

// TestSilence has a host without anybody to tell it anything.
func TestSilence(t *testing.T) {
	t.Parallel()
	newNetwork(t).watch(t, "routers").await(t, "none []")
}

func TestRefusedSettings(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, s := range []AnnounceSettings{
		{Interface: "lan0", Prefixes: prefixes("2001:db8::/80")},
		{Interface: "lan0", Prefixes: prefixes("64:ff9b::/96"), Interval: time.Second},
		{Interface: "lan0", Prefixes: prefixes("64:ff9b::/96"), Interval: time.Hour},
	} {
		if _, err := NewAnnouncer(s, log); err == nil {
			t.Errorf("no error for %+v", s)
		}
	}
	if _, err := Watch(t.Context(), Settings{}); err == nil {
		t.Error("no one to ask, and no error")
	}
	if _, err := Watch(t.Context(), Settings{Interface: "none0"}); err == nil || !strings.Contains(err.Error(), "there is no interface none0") {
		t.Errorf("error %v", err)
	}
	for _, server := range []string{"192.0.0.170", "2001:db8::1"} {
		if err := Check(t.Context(), "", prefixes("64:ff9b::/96")[0], netip.MustParseAddr(server)); err == nil {
			t.Errorf("checked with %s", server)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records []string
		want    string
	}{
		{"the least TTL", []string{"ipv4only.arpa. 90 IN AAAA 64:ff9b::192.0.0.170", "ipv4only.arpa. 60 IN AAAA 64:ff9b::192.0.0.171"}, "[64:ff9b::/96] 1m0s"},
		{"nothing, and for how long", []string{"arpa. 900 IN SOA a. b. 1 2 3 4 300"}, "[] 5m0s"},
		{"nothing at all", nil, "[] 0s"},
		{"addresses that say nothing", []string{"ipv4only.arpa. 30 IN AAAA 2001:db8::1"}, "[] 30s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := new(dns.Msg)
			for _, text := range tt.records {
				rr, err := dns.NewRR(text)
				if err != nil {
					t.Fatal(err)
				}
				if rr.Header().Rrtype == dns.TypeSOA {
					m.Ns = append(m.Ns, rr)
				} else {
					m.Answer = append(m.Answer, rr)
				}
			}
			a := judge(m)
			if got := fmt.Sprint(a.prefixes, " ", a.ttl); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
