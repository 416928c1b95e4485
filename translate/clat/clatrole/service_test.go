// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// announcing is a NAT64 that tells hosts of its prefix.
const announcing = `
[[nat64]]
clients = ["2001:db8:6::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.64"]
announce_pref64 = ["v6"]
`

// TestService has a host with IPv6 alone reach IPv4 by a CLAT, through a gateway with
// NAT64 and DNS64, of which it hears from router advertisements. Host and gateway are
// services both.
//
//	host, CLAT -- v6 -- gateway, NAT64, DNS64 -- v4 -- 192.0.2.2
func TestService(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	nameServer(t, w.Four, "192.0.2.2:53")
	gateway := program.NewService(t, w.Gateway, announcing+`[[dns64]]
listen = ["2001:db8:6::1"]
clients = ["2001:db8:6::/48"]
prefixes = ["2001:db8:64::/96"]
upstreams = ["192.0.2.2:53"]
`)
	at := gateway.Start(t)
	host := program.NewService(t, w.Six, "[[clat]]\n")
	p := host.Start(t)
	p.AwaitLog(t, "msg=serving")

	four := gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 7000))
	six := gatewaytest.Open(t, w.Six, netip.MustParseAddrPort("0.0.0.0:0"))
	six.Send(t, four.At(), "hello")
	text, seen, _ := four.Receive(t)
	if text != "hello" || seen.Addr() != netip.MustParseAddr("192.0.2.64") {
		t.Fatalf("four heard %q from %s\n%s\n%s", text, seen, p.Log(), at.Log())
	}
	four.Send(t, seen, "hello too")
	if text, from, _ := six.Receive(t); text != "hello too" || from != four.At() {
		t.Errorf("the host heard %q from %s", text, from)
	}
	w.Six.Do(t, func() error {
		question := new(dns.Msg).SetQuestion("four.example.", dns.TypeAAAA)
		answer, _, err := (&dns.Client{Timeout: testutil.Patience}).Exchange(question, "[2001:db8:6::1]:53")
		if err != nil || len(answer.Answer) != 1 || !strings.HasSuffix(answer.Answer[0].String(), "2001:db8:64::c000:202") {
			t.Errorf("the DNS64 answers %v, %v\n%s", answer, err, at.Log())
		}
		return nil
	})
	host.End(t, p)
	gateway.End(t, at)
}

// TestServiceRefused has a CLAT on which something is forbidden that it needs. What it
// does in vain changes the host's network, which does not have it try again at once, and
// it reports it once.
func TestServiceRefused(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	gateway := program.NewService(t, w.Gateway, announcing)
	gateway.Start(t)
	text, err := os.ReadFile(program.UnitFile(t))
	if err != nil {
		t.Fatal(err)
	}
	unit := program.File(t, strings.ReplaceAll(string(text), " AF_PACKET", ""))
	made := make(chan netlink.LinkUpdate, 1000)
	done := make(chan struct{})
	defer close(done)
	w.Six.Do(t, func() error { return netlink.LinkSubscribe(made, done) })
	host := program.NewServiceOf(t, unit, w.Six, "[[clat]]\n")
	p := host.Start(t)
	seen := map[int32]bool{}
	for end := time.After(testutil.Patience); len(seen) < 3; {
		select {
		case link := <-made:
			if link.Attrs().Name == "clat" {
				seen[link.Index] = true
			}
		case <-end:
			t.Fatalf("%d tries\n%s", len(seen), p.Log())
		}
	}
	host.Stop(t, p, syscall.SIGTERM)
	if told := strings.Count(p.Log(), "level=WARN"); told != 1 {
		t.Errorf("told %d times\n%s", told, p.Log())
	}
}

// nameServer knows the IPv4 address of every name.
func nameServer(t *testing.T, ns *testutil.Netns, at string) {
	t.Helper()
	var conn net.PacketConn
	ns.Do(t, func() (err error) {
		conn, err = net.ListenPacket("udp4", at)
		return err
	})
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 2),
			}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = conn.Close() })
}
