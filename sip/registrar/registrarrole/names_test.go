// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/transaction"
)

// TestServerThatCalls is not taken for the one at its address and port: by TLS a server proves its name, and who opens
// a connection to us has not (RFC 5922, RFC 5923 section 9.2).
func TestServerThatCalls(t *testing.T) {
	w := newWorld(t)
	s := w.serve(fmt.Sprintf("roots_file = %q", w.path("cert.pem")))
	bob, alice := w.phone("bob", "UDP", server6, 2), w.phone("alice", "UDP", server6, 1)
	bob.mustRegister("Contact: <sips:bob@[2001:db8::2]>")
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
