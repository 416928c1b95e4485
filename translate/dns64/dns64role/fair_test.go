// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

// crowd is a DNS64 in a namespace, with clients of many networks. Its upstream, which is
// outside, never answers for names that begin with "slow".
type crowd struct {
	*rig
	t    *testing.T
	ns   *testutil.Netns
	sent float64
}

func newCrowd(t *testing.T, clients ...string) *crowd {
	answer := records(aRecord)
	u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		if !strings.HasPrefix(q.Question[0].Name, "slow") {
			answer(w, q)
		}
	})
	port.WidenReadBuffer(u.udp.PacketConn.(*net.UDPConn)) // a question lost there is none of the DNS64's
	c := &crowd{t: t, ns: testutil.NewNetns(t)}
	c.ns.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range append(clients, "2001:db8::53") {
			addr, err := netlink.ParseAddr(a + "/128")
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(lo, addr); err != nil {
				return err
			}
		}
		for _, a := range append(clients, "2001:db8::53") { // a socket that connects before goes nowhere, ever
			testutil.AwaitLocal(t, netip.MustParseAddr(a))
		}
		return nil
	})
	c.rig = serveIn(t, func(run func() error) (err error) {
		c.ns.Do(t, func() error { err = run(); return nil })
		return err
	}, func(c *Settings) {
		c.Listen = []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::53]:53")}
		c.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
		c.UpstreamTimeout, c.QueryTimeout = 10*patience, 10*patience // what is slow stays so
	}, u.at)
	return c
}

// dial opens a socket of a client.
func (c *crowd) dial(network, client string) net.Conn {
	var conn net.Conn
	c.ns.Do(c.t, func() (err error) {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(client)}}
		if network == "tcp" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(client)}
		}
		conn, err = d.Dial(network, c.at.String())
		return err
	})
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// flood asks for slow names, each once, from all clients in turn, until so many were seen.
// The kernel may lose some where other tests flood it, too.
func (c *crowd) flood(names int, clients ...string) {
	var conns []net.Conn
	for _, client := range clients {
		conns = append(conns, c.dial("udp", client))
	}
	seen := func() float64 { return c.value("udp_queries_total", "") }
	wanted := seen() + float64(names)
	progress := time.Now()
	for before := seen(); before < wanted; before = seen() {
		const most = 50 // what a socket buffer takes
		for range most {
			c.sent++
			q, err := new(dns.Msg).SetQuestion(fmt.Sprintf("slow%v.example.net.", c.sent), dns.TypeAAAA).Pack()
			if err != nil {
				c.t.Fatal(err)
			}
			if _, err := conns[int(c.sent)%len(conns)].Write(q); err != nil {
				c.t.Fatal(err)
			}
		}
		for last, since := before, time.Now(); last < before+most && time.Since(since) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
			if now := seen(); now > last {
				last, since, progress = now, time.Now(), time.Now()
			}
		}
		if time.Since(progress) > patience {
			c.t.Fatalf("in vain: %v queries were to be seen, and %v were; the kernel has counted\n%s", wanted, before, c.ns.Counted(c.t))
		}
	}
}

// ask asks for names that the cache does not hold, all at one time, and returns how many
// were answered well. A question is repeated once, as by a stub resolver: the kernel may lose it.
func (c *crowd) ask(network, client string, names int) int {
	var good atomic.Int64
	var all sync.WaitGroup
	for i := range names {
		conn := &dns.Conn{Conn: c.dial(network, client)}
		q := new(dns.Msg).SetQuestion(fmt.Sprintf("fast%v-%d.example.net.", c.sent, i), dns.TypeAAAA)
		all.Go(func() {
			for range 2 {
				_ = conn.SetDeadline(time.Now().Add(patience / 2))
				if conn.WriteMsg(q) != nil {
					return
				}
				if m, err := conn.ReadMsg(); err == nil {
					if m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1 {
						good.Add(1)
					}
					return
				}
			}
		})
	}
	all.Wait()
	return int(good.Load())
}

// hosts are addresses by a pattern.
func hosts(pattern string, n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(pattern, i+1))
	}
	return list
}

// TestVictimsAreServed has one network, and then a hundred, ask for names of slow servers:
// another client has every answer.
func TestVictimsAreServed(t *testing.T) {
	testutil.NeedRoot(t)
	const victim, names = "2001:db8:b::1", 20
	one, many := hosts("2001:db8:a::%x", 5), hosts("2001:db8:a:%x::1", 100)
	c := newCrowd(t, append(append(one, many...), victim)...)

	c.flood(5000, one...)
	t.Logf("five addresses of a /64: %v of their queries wait, %v dropped as rate_limited, %v as client_share",
		c.value("waiting", ""), c.value("dropped_total", "rate_limited"), c.value("dropped_total", "client_share"))
	if waiting := c.value("waiting", ""); waiting > 4096/8 {
		t.Errorf("%v queries of one network wait", waiting)
	}
	if good := c.ask("udp", victim, names); good != names {
		t.Errorf("under one network's attack, %d of %d queries are answered", good, names)
	}

	c.flood(10_000, many...)
	if waiting := c.value("waiting", ""); waiting != 4096 {
		t.Errorf("%v wait, want all that may", waiting)
	}
	var attack sync.WaitGroup
	attack.Go(func() { c.flood(5000, many...) })
	good, asked := 0, 0
	for range 10 {
		good, asked = good+c.ask("udp", victim, names), asked+names
	}
	attack.Wait()
	t.Logf("a hundred networks: %v wait, %v dropped as busy", c.value("waiting", ""), c.value("dropped_total", "busy"))
	if good != asked {
		t.Errorf("under the attack of a hundred networks, %d of %d queries are answered", good, asked)
	}

	for _, client := range many {
		for range 6 {
			c.dial("tcp", client)
		}
	}
	if good := c.ask("tcp", victim, 5); good != 5 {
		t.Errorf("with 600 connections of a hundred networks, %d of 5 queries by TCP are answered", good)
	}
}

// resolve waits for the answer to one question, unless ctx is done before.
func resolve(ctx context.Context, r *rig, a dns64.Ask, client netip.Addr) dns64.Result {
	f := r.resolver.join(a, client)
	defer r.resolver.part(a, f)
	select {
	case <-f.done:
		return f.copy()
	case <-ctx.Done():
		return dns64.Result{}
	}
}

// TestMergedOutlivesFirst: a question that two wait for goes on when the first gives way,
// and ends with the last.
func TestMergedOutlivesFirst(t *testing.T) {
	hold := make(chan struct{})
	answer := records(aRecord)
	u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		if <-hold; !strings.HasPrefix(q.Question[0].Name, "slow") {
			answer(w, q)
		}
	})
	r := serve(t, nil, u.at)
	a := dns64.Ask{Name: "host.example.net.", Type: dns.TypeA, Class: dns.ClassINET}
	first, giveWay := context.WithCancel(t.Context())
	var both sync.WaitGroup
	both.Go(func() {
		if got := resolve(first, r, a, loopback); got.Msg != nil {
			t.Error("an answer for who waits no more")
		}
	})
	eventually(t, "the first waits", func() bool { return r.value("cache_misses_total", "") == 1 })
	both.Go(func() {
		if got := resolve(t.Context(), r, a, loopback.Next()); got.Msg == nil || len(got.Msg.Answer) != 1 {
			t.Errorf("the second has %v", got.Msg)
		}
	})
	eventually(t, "the second waits", func() bool { return r.value("merged_total", "") == 1 })
	giveWay()
	eventually(t, "the first has gone", func() bool {
		r.resolver.mu.Lock()
		defer r.resolver.mu.Unlock()
		return r.resolver.waiting[a].waiters == 1
	})
	close(hold)
	both.Wait()
	if u.asked.Load() != 1 {
		t.Errorf("the upstream was asked %d times", u.asked.Load())
	}

	a.Name = "slow.example.net."
	alone, end := context.WithCancel(t.Context())
	both.Go(func() { resolve(alone, r, a, loopback) })
	eventually(t, "one waits", func() bool { return r.value("cache_misses_total", "") == 2 })
	end()
	both.Wait()
	if n := len(r.resolver.waiting); n != 0 {
		t.Errorf("%d questions wait for nobody", n)
	}
	// Run ends at once, since nothing waits for that answer.
}

// askAsAnother has another client ask for another name.
func askAsAnother(t *testing.T, r *rig) {
	t.Helper()
	other, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, net.UDPAddrFromAddrPort(r.at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	q, _ := new(dns.Msg).SetQuestion("other.example.net.", dns.TypeAAAA).Pack()
	if _, err := other.Write(q); err != nil {
		t.Fatal(err)
	}
}

// TestGivesWay has a query end for another client's: its client hears SERVFAIL.
func TestGivesWay(t *testing.T) {
	silent := answering(t, netip.AddrPort{}, func(dns.ResponseWriter, *dns.Msg) {})
	r := serve(t, func(c *Settings) { c.MaxQueries = 1 }, silent.at)
	answers := make(chan *dns.Msg, 1)
	go func() { answers <- r.query(t, "udp", nil) }()
	eventually(t, "one waits", func() bool { return r.value("waiting", "") == 1 })
	askAsAnother(t, r)
	select {
	case m := <-answers:
		if m.Rcode != dns.RcodeServerFailure || r.value("dropped_total", "busy") != 1 {
			t.Errorf("answer %v, %v counted", m, r.value("dropped_total", "busy"))
		}
	case <-time.After(patience):
		t.Fatal("no answer")
	}
	if r.value("waiting", "") != 1 {
		t.Error("the other does not wait")
	}
}

// TestGivesWayAnswered has a query give its place up that is answered, and waits only for AAAA
// records that are late: that is no query dropped.
func TestGivesWayAnswered(t *testing.T) {
	answer := records(aRecord)
	u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Qtype == dns.TypeA {
			answer(w, q)
		}
	})
	r := serve(t, func(c *Settings) { c.MaxQueries, c.UpstreamTimeout, c.QueryTimeout = 1, 10*patience, 10*patience }, u.at)
	only(t, r.query(t, "udp", nil), made)
	if r.value("waiting", "") != 1 {
		t.Fatal("the place is free")
	}
	askAsAnother(t, r)
	eventually(t, "the other's question is asked", func() bool { return r.value("cache_misses_total", "") >= 3 })
	if n := r.value("dropped_total", "busy"); n != 0 {
		t.Errorf("%v counted", n)
	}
}

// TestStrangersShareConnections: those who may not ask have the connections of one client,
// all together, and hear REFUSED.
func TestStrangersShareConnections(t *testing.T) {
	configtest.InEffect(t, "dns64", "max_connections")
	r := serve(t, func(c *Settings) {
		c.MaxConnections, c.Clients = 16, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	}, free(t))
	if m := r.query(t, "tcp", nil); m.Rcode == dns.RcodeRefused {
		t.Error("a client is refused")
	}
	eventually(t, "its connection is closed", func() bool { return r.value("connections", "") == 0 })
	for i := range 16 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i))}}
		conn, err := d.Dial("tcp", r.at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	eventually(t, "all but two are closed", func() bool {
		return r.value("connections", "") == 2 && r.value("dropped_total", "connections_full") == 14
	})
}
