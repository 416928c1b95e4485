// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/translate/pref64"
)

var (
	plainServer = netip.MustParseAddrPort("[2001:db8::11]:53") // knows of no NAT64
	dns64Server = netip.MustParseAddrPort("[2001:db8::64]:53")
)

// names is an advertisement of a router that names a server.
type names struct {
	after    time.Duration
	server   netip.AddrPort
	lifetime time.Duration
}

// interview is a watcher in virtual time, whose questions a test answers.
type interview struct {
	w           *watcher
	now         time.Time
	asked, told []string
}

func newInterview(s Settings) *interview {
	i := new(interview)
	i.w = &watcher{settings: s, log: slog.New(slog.DiscardHandler), sets: make(chan pref64.Set, 1), answers: make(chan asked, 1)}
	i.w.ask = func(_ context.Context, _ string, resolvers []netip.AddrPort) (answer, error) {
		switch {
		case len(resolvers) == 0:
			return answer{}, errSilent
		case slices.Contains(resolvers, dns64Server):
			return answer{prefixes("2001:db8:64::/96"), time.Hour}, nil
		}
		return answer{ttl: time.Hour}, nil
	}
	return i
}

// run has routers speak, and goes on until the end.
func (i *interview) run(t *testing.T, routers []names, start, end time.Time) {
	i.w.begin(start)
	for now := start; now.Before(end); now = i.w.next(now) {
		i.now = now
		for len(routers) > 0 && !now.Before(start.Add(routers[0].after)) {
			said := pref64.Advertisement{Resolvers: []pref64.Resolver{{Addr: routers[0].server.Addr(), Lifetime: routers[0].lifetime}}}
			i.w.advertised(heard{netip.MustParseAddr("fe80::a"), said}, now)
			routers = routers[1:]
		}
		i.w.due(t.Context(), now)
		if i.w.asking {
			if of := fmt.Sprint(i.w.askedOf); len(i.asked) == 0 || i.asked[len(i.asked)-1] != of {
				i.asked = append(i.asked, of)
			}
			i.w.answered(<-i.w.answers, now)
		}
		i.w.tell(now)
		select {
		case set := <-i.w.sets:
			i.told = append(i.told, fmt.Sprint(set.Source, " ", set.Prefixes))
		default:
		}
	}
}

// TestWhoIsAsked has routers name a server, and the host a list of its own, for ten minutes of
// virtual time (RFC 8880 section 7.1).
func TestWhoIsAsked(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	const found, none = "dns [2001:db8:64::/96]", "none []"
	always := func(a ...netip.AddrPort) func(time.Duration) []netip.AddrPort {
		return func(time.Duration) []netip.AddrPort { return a }
	}
	afterMinute := func(before ...netip.AddrPort) func(time.Duration) []netip.AddrPort {
		return func(after time.Duration) []netip.AddrPort {
			if after < time.Minute {
				return before
			}
			return []netip.AddrPort{dns64Server}
		}
	}
	var many []netip.AddrPort
	for n := range byte(20) {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: n}), 53))
	}
	of := func(a ...netip.AddrPort) string { return fmt.Sprint(a) }
	for _, tt := range []struct {
		name        string
		given       []netip.AddrPort
		host        func(after time.Duration) []netip.AddrPort
		routers     []names
		asked, told []string
	}{
		{"a router's goes before the host's", nil, always(plainServer), []names{{0, dns64Server, time.Hour}}, []string{of(dns64Server, plainServer)}, []string{found}},
		{"a router's that comes late", nil, always(plainServer), []names{{10 * time.Second, dns64Server, time.Hour}}, []string{of(plainServer), of(dns64Server, plainServer)}, []string{none, found}},
		{"the host's behind a router's, which knows none", nil, always(dns64Server), []names{{0, plainServer, time.Hour}}, []string{of(plainServer, dns64Server)}, []string{found}},
		{"the host's is the router's", nil, always(dns64Server), []names{{0, dns64Server, time.Hour}}, []string{of(dns64Server)}, []string{found}},
		{"the host has many", nil, always(many...), []names{{0, dns64Server, time.Hour}}, []string{of(append([]netip.AddrPort{dns64Server}, many[:7]...)...)}, []string{found}},
		{"the host's, where no router names one", nil, always(dns64Server), nil, []string{of(dns64Server)}, []string{found}},
		{"the host has none at first", nil, afterMinute(), nil, []string{of(), of(dns64Server)}, []string{none, found}},
		{"the host has that of the network before at first", nil, afterMinute(plainServer), nil, []string{of(plainServer), of(dns64Server)}, []string{none, found}},
		{"a router's whose time is over", nil, always(plainServer), []names{{0, dns64Server, time.Minute}}, []string{of(dns64Server, plainServer), of(plainServer)}, []string{found, none}},
		{"a router's that it withdraws", nil, always(plainServer), []names{{0, dns64Server, time.Hour}, {30 * time.Second, dns64Server, 0}}, []string{of(dns64Server, plainServer), of(plainServer)}, []string{found, none}},
		{"a router that names two, in two advertisements", nil, always(), []names{{0, plainServer, time.Hour}, {0, dns64Server, time.Hour}}, []string{of(plainServer, dns64Server)}, []string{found}},
		{"given", []netip.AddrPort{dns64Server}, always(plainServer), []names{{0, plainServer, time.Hour}}, []string{of(dns64Server)}, []string{found}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var i *interview
			i = newInterview(Settings{Resolvers: tt.given, Fallback: func() []netip.AddrPort {
				return tt.host(i.now.Sub(start))
			}})
			i.run(t, tt.routers, start, start.Add(10*time.Minute))
			if diff := cmp.Diff(tt.asked, i.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.told, i.told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}

// TestManyNames has a neighbour name another server each 100 ms: that makes a question a second,
// and no more.
func TestManyNames(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	w := newInterview(Settings{}).w
	w.begin(start)
	questions := 0
	for n := range 600 {
		now := start.Add(time.Duration(n) * 100 * time.Millisecond)
		server := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(n >> 8), 15: byte(n)})
		w.advertised(heard{netip.MustParseAddr("fe80::a"), pref64.Advertisement{Resolvers: []pref64.Resolver{{Addr: server, Lifetime: 200 * time.Millisecond}}}}, now)
		if w.due(t.Context(), now); w.asking {
			questions++
			w.answered(<-w.answers, now)
		}
	}
	if questions < 2 || questions > 61 {
		t.Errorf("%d questions in a minute", questions)
	}
}

// TestAskInTurn asks two servers, of which one knows of a NAT64, or none. Where one gives no
// answer, it is not known that there is none.
func TestAskInTurn(t *testing.T) {
	t.Parallel()
	handle := func(s dns.Handler) netip.AddrPort {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &dns.Server{PacketConn: conn, Handler: s}
		go func() { _ = server.ActivateAndServe() }()
		t.Cleanup(func() { _ = conn.Close() })
		return conn.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	serve := func(records ...string) netip.AddrPort {
		s := new(nameServer)
		s.set(records...)
		return handle(s)
	}
	refuses := handle(dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
	}))
	silent := handle(dns.HandlerFunc(func(dns.ResponseWriter, *dns.Msg) {}))
	plain, later := serve("arpa. 900 IN SOA a. b. 1 2 3 4 300"), serve("arpa. 900 IN SOA a. b. 1 2 3 4 600")
	knows := serve("ipv4only.arpa. 60 IN AAAA 2001:db8:64::192.0.0.170")
	for _, tt := range []struct {
		name string
		of   []netip.AddrPort
		want string
	}{
		{"the second knows", []netip.AddrPort{plain, knows}, "[2001:db8:64::/96] 1m0s"},
		{"the first knows", []netip.AddrPort{knows, plain}, "[2001:db8:64::/96] 1m0s"},
		{"neither does", []netip.AddrPort{plain, later}, "[] 5m0s"},
		{"the first is silent, the second says none", []netip.AddrPort{silent, plain}, "no answer"},
		{"the first says none, the second fails", []netip.AddrPort{plain, refuses}, "no answer"},
		{"the first is silent, the second knows", []netip.AddrPort{silent, knows}, "[2001:db8:64::/96] 1m0s"},
		{"no one", nil, "no answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, err := ask(t.Context(), "", tt.of)
			got := fmt.Sprint(a.prefixes, " ", a.ttl)
			if err != nil {
				got = "no answer"
			}
			if got != tt.want {
				t.Errorf("%s, %v; want %s", got, err, tt.want)
			}
		})
	}
}
