// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// TestServerThatCalls is not taken for the one at its address and port: by TLS a server proves its name, and who opens
// a connection to us has not (RFC 5922, RFC 5923 section 9.2).
func TestServerThatCalls(t *testing.T) {
	w := newWorld(t)
	s := w.serve(fmt.Sprintf("roots_file = %q", w.path("cert.pem")))
	bob, alice := w.phone("bob", "UDP", server6, 2), w.phone("alice", "UDP", server6, 1)
	bob.mustRegisterSecurely()
	conn := w.dial("TLS", "[2001:db8::2]:5061", server6)
	defer conn.Close()
	if err := conn.(*tls.Conn).Handshake(); err != nil {
		t.Fatal(err)
	}
	s.await(t, "connections", "", 1)
	alice.call("sip:bob@example.net")
	over := &phone{t: t, w: w, name: "bob", transport: "TLS", conn: conn}
	if m, err := over.next(300 * time.Millisecond); err == nil {
		t.Errorf("a server that has proved nothing gets\n%s", m)
	}
}

// TestServersAtOneAddress have a connection each, by the name that they have proved (RFC 5923 section 8.1).
func TestServersAtOneAddress(t *testing.T) {
	w := newWorld(t)
	s := &w.serve("").streams
	of := func(transport, name string) transaction.Target {
		return transaction.Target{Transport: transport, Remote: netip.MustParseAddrPort("[2001:db8::2]:5061"), Name: name}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	came, evil, plain := s.enter(of("TLS", ""), false), s.enter(of("TLS", "evil.example"), true), s.enter(of("TCP", ""), false)
	for _, tt := range []struct {
		to   transaction.Target
		want *stream
	}{
		{of("TLS", ""), nil}, {of("TLS", "evil.example"), evil}, {of("TLS", "good.example"), nil}, {of("TCP", ""), plain}, {came.at, came}, {evil.at, evil},
	} {
		if got := s.find(tt.to); got != tt.want {
			t.Errorf("%+v goes by %p, want %p", tt.to, got, tt.want)
		}
	}
	if serverName(evil.at) != "evil.example" || serverName(came.at) != "2001:db8::2" {
		t.Errorf("they prove to be %s and %s", serverName(evil.at), serverName(came.at))
	}
}

// TestReplyByName has a response whose connection is gone go to the server that its Via names, which proves that by TLS
// (RFC 3261 section 18.2.2, RFC 5922).
func TestReplyByName(t *testing.T) {
	for _, tt := range []struct{ transport, sentBy, remote, name string }{
		{"TLS", "proxy.Example.net", "[2001:db8::2]:5061", "proxy.example.net"},
		{"TLS", "proxy.example.net:5071", "[2001:db8::2]:5071", "proxy.example.net"},
		{"TLS", "[2001:db8::9]", "[2001:db8::2]:5061", ""},
		{"TCP", "proxy.example.net", "[2001:db8::2]:5060", ""},
	} {
		m := &message.Message{Status: 200}
		m.Add("Via", "SIP/2.0/"+tt.transport+" "+tt.sentBy+";branch=z9hG4bK1")
		to := replyTo(m, transaction.Target{Transport: tt.transport, Remote: netip.MustParseAddrPort("[2001:db8::2]:40000"), Connection: 1})
		if want := (transaction.Target{Transport: tt.transport, Remote: netip.MustParseAddrPort(tt.remote), Name: tt.name}); to != want {
			t.Errorf("%s by %s: %+v, want %+v", tt.sentBy, tt.transport, to, want)
		}
	}
}

// TestAvoided are servers that could not be reached, or have not proved their name, but none that nothing was tried with.
func TestAvoided(t *testing.T) {
	w := newWorld(t)
	s := w.serve(`connect_timeout = "300ms"`)
	listener := w.listen("[2001:db8::2]:5071")
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	crowd := func() {
		for range maxDials {
			s.streams.dials <- struct{}{}
		}
	}
	for _, tt := range []struct {
		name, transport, remote string
		before                  func()
		during                  func(*stream)
		avoided                 bool
	}{
		{"who takes no connection", "TCP", "[2001:db8::2]:5072", func() {}, func(*stream) {}, true},
		{"who begins no TLS", "TLS", "[2001:db8::2]:5071", func() {}, func(*stream) {}, true},
		{"a connection that has no turn", "TCP", "[2001:db8::2]:5073", crowd, func(*stream) {}, false},
		{"a connection that is given up", "TCP", "[2001:db8::2]:5074", crowd, (*stream).end, false},
	} {
		tt.before()
		to := transaction.Target{Transport: tt.transport, Local: netip.MustParseAddrPort("[2001:db8::5]:5060"), Remote: netip.MustParseAddrPort(tt.remote)}
		s.streams.mu.Lock()
		one := s.streams.enter(to, true)
		s.streams.mu.Unlock()
		s.pending.Go(one.dial)
		tt.during(one)
		eventually(t, tt.name+" is over", func() bool { return s.streams.count() == 0 })
		other := transaction.Target{Transport: "TCP"}
		var first transaction.Target
		s.do(func(p *registrar.Proxy, now time.Time, _ *registrar.Output) {
			first = p.Layer().Order([]transaction.Target{to, other}, now)[0]
		})
		if avoided := first != to; avoided != tt.avoided {
			t.Errorf("%s is avoided: %v", tt.name, avoided)
		}
		for range len(s.streams.dials) {
			<-s.streams.dials
		}
	}
}

// TestUsable has names looked for by the transports and families alone that have a listener.
func TestUsable(t *testing.T) {
	s := Settings{
		Listen:    []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::5]:5060"), netip.MustParseAddrPort("192.0.2.5:5060")},
		ListenTLS: []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::5]:5061")},
	}
	reached := usable(listeners(&s))
	for _, tt := range []struct {
		transport string
		v4, want  bool
	}{{"UDP", false, true}, {"UDP", true, true}, {"TCP", true, true}, {"TLS", false, true}, {"TLS", true, false}} {
		if got := reached(tt.transport, tt.v4); got != tt.want {
			t.Errorf("%s, IPv4 %t: %t", tt.transport, tt.v4, got)
		}
	}
}
