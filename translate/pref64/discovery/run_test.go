// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

const (
	patience = testutil.Patience
	// hostEnv makes this program a host that watches, in the namespace where it is
	// started.
	hostEnv = "ISTHMUS_TEST_PREF64_HOST"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostEnv) != "" {
		watchAndPrint()
		return
	}
	testutil.ParallelTests(8)
	os.Exit(m.Run())
}

// watchAndPrint prints each set on a line of its own until standard input ends.
func watchAndPrint() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	s := Settings{Interface: "lan0", AdvertisementWait: time.Second}
	if at := os.Getenv(hostEnv); at != "routers" {
		s.Resolvers = []netip.AddrPort{netip.MustParseAddrPort(at)}
	}
	sets, err := Watch(ctx, s)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	for set := range sets {
		fmt.Println(set.Source, set.Prefixes)
	}
}

// network is a router and a host on one link, lan0 at both ends.
type network struct{ router, host *testutil.Netns }

func newNetwork(t *testing.T) network {
	t.Helper()
	n := network{testutil.NewNetns(t), testutil.NewNetns(t)}
	n.router.AddressesAtOnce(t)
	n.host.AddressesAtOnce(t)
	n.join(t, "lan0", netip.MustParsePrefix("2001:db8:1::/64"))
	return n
}

// join makes the link; name is that of the router's end.
func (n network) join(t *testing.T, name string, prefix netip.Prefix) {
	t.Helper()
	n.router.Do(t, func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "lan0", PeerNamespace: netlink.NsFd(n.host.Handle())}
		return netlink.LinkAdd(link)
	})
	address := prefix.Addr()
	for _, end := range []struct {
		of   *testutil.Netns
		link string
	}{{n.router, name}, {n.host, "lan0"}} {
		address = address.Next()
		end.of.Do(t, func() error {
			lan, err := netlink.LinkByName(end.link)
			if err != nil {
				return err
			}
			own := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 128)}}
			return errors.Join(netlink.LinkSetUp(lan), netlink.AddrAdd(lan, own))
		})
	}
	n.host.AwaitLinks(t, "lan0")
	n.router.AwaitLinks(t, name)
}

// watched is a host that watches.
type watched struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *watched) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Split(strings.TrimSpace(w.text.String()), "\n")
	return all[len(all)-1]
}

func (w *watched) await(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(patience); w.last() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the host says %q, want %q", w.last(), want)
		}
	}
}

// awaitText waits until a text was said.
func (w *watched) awaitText(t *testing.T, want string) {
	t.Helper()
	said := func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.text.String()
	}
	for end := time.Now().Add(patience); !strings.Contains(said(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in:\n%s", want, said())
		}
	}
}

func (n network) watch(t *testing.T, resolver string) *watched {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), hostEnv+"="+resolver)
	w := new(watched)
	cmd.Stdout, cmd.Stderr = w, w
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.host.Do(t, cmd.Start)
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return w
}

// announce runs an announcer in the router.
func (n network) announce(t *testing.T, a *Announcer) (stop func(cause error)) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	started := make(chan struct{})
	go n.router.Do(t, func() error {
		close(started)
		err := a.Run(ctx)
		ended <- err
		return err
	})
	<-started
	stop = func(cause error) {
		cancel(cause)
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			ended <- nil
		case <-time.After(patience):
			t.Error("it does not end")
		}
	}
	t.Cleanup(func() { stop(context.Canceled) })
	return stop
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func announcer(t *testing.T, log *slog.Logger, texts ...string) *Announcer {
	t.Helper()
	a, err := NewAnnouncer(AnnounceSettings{Interface: "lan0", Prefixes: prefixes(texts...), Interval: pref64.MinInterval}, log)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func value(a *Announcer, name string) float64 {
	found := -1.0
	a.Collect(func(m role.Metric) {
		if m.Name == name {
			found = m.Value
		}
	})
	return found
}

// awaitValue waits until a counter has at least a value.
func awaitValue(t *testing.T, a *Announcer, name string, least float64) {
	t.Helper()
	for end := time.Now().Add(patience); value(a, name) < least; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is %v, want %v", name, value(a, name), least)
		}
	}
}

// solicit has the host ask for an advertisement.
func (n network) solicit(t *testing.T) {
	t.Helper()
	n.host.Do(t, func() error {
		s, err := listen("lan0", nil, ipv6.ICMPTypeRouterAdvertisement)
		if err != nil {
			return err
		}
		defer s.close()
		return s.write(pref64.AppendSolicitation(nil), netip.Addr{}, allRouters)
	})
}

// TestAnnounce has a host learn prefixes, their change and their end from a router.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	a := announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96")
	stop := n.announce(t, a)
	w := n.watch(t, "routers")
	w.await(t, "router advertisement [2001:db8:64::/96]")
	// A host that has heard an advertisement has no reason to solicit one.
	n.solicit(t)
	awaitValue(t, a, "pref64_solicited_total", 1)
	if err := a.Set(AnnounceSettings{Interface: "lan0", Prefixes: prefixes("2001:db8:65::/64", "64:ff9b::/96"), Interval: pref64.MinInterval}); err != nil {
		t.Fatal(err)
	}
	w.await(t, "router advertisement [2001:db8:65::/64 64:ff9b::/96]")
	stop(context.Canceled)
	w.await(t, "none []")
	if sent, failed := value(a, "pref64_sent_total"), value(a, "pref64_failed_total"); sent < 3 || failed != 0 {
		t.Errorf("%v sent, %v failed", sent, failed)
	}
	n.router.Do(t, func() error {
		lan, err := netlink.LinkByName("lan0")
		if err != nil {
			return err
		}
		addresses, err := testutil.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(lan, netlink.FAMILY_V6) })
		if err == nil && len(addresses) != 2 {
			err = fmt.Errorf("addresses are left: %v", addresses)
		}
		return err
	})
}

// TestBackAgain withdraws a prefix and announces it again before anybody was told of the
// first: what is told is that it is there. What is really withdrawn is told several times,
// and not forgotten when it could not be sent.
func TestBackAgain(t *testing.T) {
	t.Parallel()
	a := announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96")
	for _, p := range []string{"2001:db8:65::/96", "2001:db8:64::/96"} {
		if err := a.Set(AnnounceSettings{Interface: "lan0", Prefixes: prefixes(p)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.withdrawn) != 1 || a.withdrawn[0].Prefix != prefixes("2001:db8:65::/96")[0] || a.withdrawn[0].Lifetime != 0 {
		t.Errorf("withdrawn: %v", a.withdrawn)
	}
	for i := range 1000 {
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 8), byte(i)}), 96)
		if err := a.Set(AnnounceSettings{Interface: "lan0", Prefixes: []netip.Prefix{p}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.withdrawn) != maxWithdrawn {
		t.Errorf("%d are remembered", len(a.withdrawn))
	}
	n := newNetwork(t)
	n.router.Do(t, func() error {
		s, err := listen("lan0", nil, ipv6.ICMPTypeRouterSolicitation)
		if err != nil {
			return err
		}
		defer s.close()
		a.source = sourceOf(s.link)
		for _, step := range []struct {
			up   bool
			left int
		}{{true, 2}, {false, 2}, {true, 1}, {true, 0}} {
			lan, err := netlink.LinkByName("lan0")
			if err != nil {
				return err
			}
			if step.up {
				err = netlink.LinkSetUp(lan)
			} else {
				err = netlink.LinkSetDown(lan)
			}
			if err != nil {
				return err
			}
			for end := time.Now().Add(patience); step.up && s.assume(a.source) != nil; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					return errors.New("the link has no address again")
				}
			}
			a.schedule = pref64.NewSchedule(a.interval, newRandom(), time.Now())
			a.advertise(s)
			if a.farewells != step.left || (len(a.withdrawn) > 0) != (step.left > 0) {
				t.Errorf("up %v: %d farewells left, %d prefixes; want %d", step.up, a.farewells, len(a.withdrawn), step.left)
			}
		}
		return nil
	})
}

// TestInterfaceMadeAnew ends the announcer when its interface is removed, so that who runs it
// starts it again on the next one of that name.
func TestInterfaceMadeAnew(t *testing.T) {
	n := newNetwork(t)
	a := announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96")
	ended := make(chan error, 1)
	go n.router.Do(t, func() error {
		ended <- a.Run(t.Context())
		return nil
	})
	awaitValue(t, a, "pref64_sent_total", 1)
	n.router.Do(t, func() error {
		lan, err := netlink.LinkByName("lan0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(lan)
	})
	select {
	case err := <-ended:
		if !errors.Is(err, errGone) {
			t.Errorf("it ends by %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on without an interface")
	}
}

// TestManyRouters has a neighbour feign routers without number: all are counted, few are told
// of.
func TestManyRouters(t *testing.T) {
	var log watched
	a := announcer(t, slog.New(slog.NewTextHandler(&log, nil)), "2001:db8:64::/96")
	message, err := pref64.AppendAdvertisement(nil, []pref64.Option{{Prefix: prefixes("2001:db8:66::/96")[0], Lifetime: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		a.hear(message, netip.AddrFrom16([16]byte{0xfe, 0x80, 14: byte(i >> 8), 15: byte(i)}))
	}
	if n := strings.Count(log.text.String(), "\n"); n < 1 || n > 20 || value(a, "pref64_inconsistent_total") != 1000 {
		t.Errorf("%d lines, %v counted", n, value(a, "pref64_inconsistent_total"))
	}
}

// TestLeave keeps the prefixes of hosts where a successor goes on.
func TestLeave(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	stop := n.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96"))
	w := n.watch(t, "routers")
	w.await(t, "router advertisement [2001:db8:64::/96]")
	w.mu.Lock()
	w.text.Reset() // what it said before it heard anybody
	w.mu.Unlock()
	stop(role.ErrLeave)
	n.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96", "2001:db8:65::/96"))
	w.await(t, "router advertisement [2001:db8:64::/96 2001:db8:65::/96]")
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(w.text.String(), "none") {
		t.Errorf("the host had no prefix for a while:\n%s", w.text.String())
	}
}

// TestDefaultRouterStays has the host keep a default route by the router that also sends
// our advertisements, whose router lifetime is 0.
func TestDefaultRouterStays(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.router.Do(t, func() error {
		s, err := listen("lan0", nil, ipv6.ICMPTypeRouterSolicitation)
		if err != nil {
			return err
		}
		defer s.close()
		m := make([]byte, 16)
		m[0], m[6], m[7] = 134, 0x07, 0x08 // a default router for half an hour
		return s.write(m, netip.Addr{}, allNodes)
	})
	routes := func() (count int) {
		n.host.Do(t, func() error {
			lan, err := netlink.LinkByName("lan0")
			if err != nil {
				return err
			}
			list, err := testutil.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(lan, netlink.FAMILY_V6) })
			for _, r := range list {
				if r.Dst == nil || r.Dst.IP.IsUnspecified() {
					count++
				}
			}
			return err
		})
		return count
	}
	for end := time.Now().Add(patience); routes() != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no default route at all")
		}
	}
	n.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96"))
	n.watch(t, "routers").await(t, "router advertisement [2001:db8:64::/96]")
	if routes() != 1 {
		t.Error("the host has lost its default route")
	}
}

// TestInconsistent has two routers say different things.
func TestInconsistent(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	var log watched
	a := announcer(t, slog.New(slog.NewTextHandler(&log, nil)), "2001:db8:64::/96")
	n.announce(t, a)
	other := network{n.host, n.router}
	other.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:65::/96"))
	awaitValue(t, a, "pref64_inconsistent_total", 1)
	log.awaitText(t, "another router announces other NAT64 prefixes") // which comes behind the counter
}

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
		t.Error("nobody to ask, and no error")
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

// echoes is a socket that hears what it is told to, after each request.
type echoes struct {
	net.PacketConn
	answers [][]echoReply // to each request
	heard   []echoReply
	sent    []*icmp.Echo
}

// echoReply says of whom it is, and whether its identifier is that of the request.
type echoReply struct {
	from  string
	right bool
}

func (e *echoes) SetReadDeadline(time.Time) error { return nil }

func (e *echoes) WriteTo(b []byte, _ net.Addr) (int, error) {
	m, err := icmp.ParseMessage(58, b)
	if err != nil {
		return 0, err
	}
	e.sent = append(e.sent, m.Body.(*icmp.Echo))
	if n := len(e.sent); n <= len(e.answers) {
		e.heard = e.answers[n-1]
	}
	return len(b), nil
}

func (e *echoes) ReadFrom(b []byte) (int, net.Addr, error) {
	if len(e.heard) == 0 {
		return 0, nil, os.ErrDeadlineExceeded
	}
	a := e.heard[0]
	e.heard = e.heard[1:]
	reply := icmp.Message{Type: ipv6.ICMPTypeEchoReply, Body: &icmp.Echo{ID: e.sent[0].ID, Seq: 1}}
	if !a.right {
		reply.Body = &icmp.Echo{ID: e.sent[0].ID ^ 1, Seq: 1}
	}
	raw, err := reply.Marshal(nil)
	return copy(b, raw), &net.IPAddr{IP: net.ParseIP(a.from)}, err
}

// TestConnectivityCheck: echo requests at 0, 1 and 3 s, given up 3 s later; only the reply
// of who was asked counts (RFC 7050 section 3.2).
func TestConnectivityCheck(t *testing.T) {
	if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(checkTimes, want) {
		t.Errorf("waits %v, want %v", checkTimes, want)
	}
	server, other := "64:ff9b::c000:201", "64:ff9b::c000:202"
	for _, tt := range []struct {
		name    string
		answers [][]echoReply
		sent    int
		works   bool
	}{
		{"an answer", [][]echoReply{{{server, true}}}, 1, true},
		{"an answer to the last", [][]echoReply{nil, nil, {{server, true}}}, 3, true},
		{"silence", nil, 3, false},
		{"somebody else", [][]echoReply{{{other, true}}, {{other, true}}}, 3, false},
		{"an answer to somebody else's question", [][]echoReply{{{server, false}}}, 3, false},
		{"others before the right one", [][]echoReply{nil, {{other, true}, {server, false}, {server, true}}}, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := &echoes{answers: tt.answers}
			if err := ping(t.Context(), conn, netip.MustParseAddr(server)); (err == nil) != tt.works {
				t.Errorf("error %v", err)
			}
			if len(conn.sent) != tt.sent {
				t.Errorf("%d requests, want %d", len(conn.sent), tt.sent)
			}
		})
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
