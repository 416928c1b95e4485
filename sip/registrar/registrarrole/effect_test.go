// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/sip/message"
)

// TestKeysInAnswers sees in the answer to one request what a key does.
func TestKeysInAnswers(t *testing.T) {
	to := func(method, uri string, fields ...string) func(*phone) *message.Message {
		return func(p *phone) *message.Message {
			_, r := p.ask(method, uri, append(fields, "Contact: "+p.contact())...)
			return r
		}
	}
	twice := func(a, b string) func(*phone) *message.Message {
		return func(p *phone) *message.Message {
			p.mustRegister(a)
			other := p.w.phone("alice", "UDP", server6, 3)
			if b != "" {
				other = p.w.phone(b, "UDP", server6, 3)
			}
			return other.register()
		}
	}
	challenge := func(p *phone) *message.Message {
		p.send(p.request("REGISTER", "sip:example.net"))
		return p.final()
	}
	w := newWorld(t)
	for _, tt := range []struct {
		key, lines string
		ask        func(*phone) *message.Message
		want       string // a part of the answer
		without    string // the same without the key
	}{
		{configtest.InEffect(t, "registrar", "domains"), `domains = ["example.net"]`, to("REGISTER", "sip:example.org"), "SIP/2.0 500", "SIP/2.0 200"},
		{configtest.InEffect(t, "registrar", "hosts"), `hosts = ["sip.example.net"]`, to("OPTIONS", "sip:sip.example.net"), "SIP/2.0 200", "SIP/2.0 5"},
		{configtest.InEffect(t, "registrar", "service_route"), `service_route = ["sip:[2001:db8::5]:5060"]`, (*phone).registered, "Service-Route: <sip:[2001:db8::5]:5060;lr>", "Expires"},
		{configtest.InEffect(t, "registrar", "algorithms"), `algorithms = ["SHA-512-256"]`, challenge, "algorithm=SHA-512-256", "algorithm=SHA-256"},
		{configtest.InEffect(t, "registrar", "expires_min"), `expires_min = "10m"`, to("REGISTER", "sip:example.net", "Expires: 100"), "Min-Expires: 600", "SIP/2.0 200"},
		{configtest.InEffect(t, "registrar", "expires_default"), `expires_default = "30m"`, (*phone).registered, "expires=1800", "expires=3600"},
		{configtest.InEffect(t, "registrar", "expires_max"), `expires_max = "2h"`, to("REGISTER", "sip:example.net", "Expires: 90000"), "expires=7200", "expires=86400"},
		{configtest.InEffect(t, "registrar", "max_bindings"), "max_bindings = 1\nbindings_per_address = 1", twice("X: y", "bob"), "SIP/2.0 503", "SIP/2.0 200"},
		{configtest.InEffect(t, "registrar", "bindings_per_address"), "bindings_per_address = 1", twice("X: y", ""), "SIP/2.0 403", "SIP/2.0 200"},
		{configtest.InEffect(t, "registrar", "max_transactions"), "max_transactions = 1\ntransactions_per_source = 1", twice("X: y", "bob"), "SIP/2.0 503", "SIP/2.0 200"},
		{configtest.InEffect(t, "registrar", "transactions_per_source"), "transactions_per_source = 1", twice("X: y", ""), "SIP/2.0 503", "SIP/2.0 200"},
	} {
		t.Run(tt.key, func(t *testing.T) {
			for _, lines := range []string{tt.lines, ""} {
				w.t = t
				w.file("subscribers.toml", subscribers)
				want := tt.want
				if lines == "" {
					want = tt.without
				}
				if want == "Expires" {
					continue
				}
				s := w.serve(lines + "\nkeep_state = false\n")
				if r := tt.ask(w.phone("alice", "UDP", server6, 1)); !strings.Contains(r.String(), want) {
					t.Errorf("with %q, want %s:\n%s", lines, want, r)
				}
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func (p *phone) registered() *message.Message { return p.register() }

// TestKeysInCalls sees in an INVITE, or in what comes back, what a key does.
func TestKeysInCalls(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		key, lines, from string // who calls
		want             string // a part of what the callee gets; with a digit, of what comes back
		without          string
	}{
		{configtest.InEffect(t, "registrar", "mode"), `mode = "redirect"`, "alice", "302", "INVITE"},
		{configtest.InEffect(t, "registrar", "prove_callers"), `prove_callers = false`, "mallory", "INVITE", "401"},
		{configtest.InEffect(t, "registrar", "trusted"), `trusted = ["2001:db8::1"]`, "mallory", "INVITE", "401"},
		{configtest.InEffect(t, "registrar", "record_route"), `record_route = false`, "alice", "INVITE sip", "Record-Route"},
	} {
		t.Run(tt.key, func(t *testing.T) {
			for _, lines := range []string{tt.lines, ""} {
				w.t = t
				s := w.serve(lines + "\nkeep_state = false\n")
				bob := w.phone("bob", "UDP", server6, 2)
				bob.mustRegister()
				caller := w.phone(tt.from, "UDP", server6, 1)
				invite := caller.request("INVITE", "sip:bob@example.net", "Contact: "+caller.contact())
				caller.send(invite)
				if want := tt.want; lines != "" {
					seen(t, lines, want, caller, bob, invite)
				} else {
					seen(t, "no key", tt.without, caller, bob, invite)
				}
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// seen waits for what comes of an INVITE: at the callee, or with a status at the caller, whose proof
// is made if it can be.
func seen(t *testing.T, lines, want string, caller, callee *phone, invite *message.Message) {
	t.Helper()
	r := caller.receive()
	if r.Status == 407 {
		caller.acknowledge(invite, r)
		caller.send(caller.request("INVITE", invite.URI, "Contact: "+caller.contact(), caller.answer(r, "INVITE", invite.URI)))
		r = caller.receive()
	}
	switch {
	case want == "401": // not proved, and asked again
		if r.Status != 407 {
			t.Errorf("with %s the caller gets\n%s", lines, r)
		}
	case want[0] < 'A':
		if fmt.Sprint(r.Status) != want {
			t.Errorf("with %s the caller gets\n%s", lines, r)
		}
	default:
		got := callee.expect("INVITE")
		if !strings.Contains(got.String(), want) || want == "INVITE sip" && got.Has("Record-Route") {
			t.Errorf("with %s the callee gets\n%s", lines, got)
		}
		callee.reply(got, 486)
	}
}

// TestMaxForks sends a call to no more contacts than it may.
func TestMaxForks(t *testing.T) {
	configtest.InEffect(t, "registrar", "max_forks")
	w := newWorld(t)
	w.serve("max_forks = 1")
	first, second := w.phone("bob", "UDP", server6, 2), w.phone("bob", "UDP", server6, 3)
	first.mustRegister()
	second.mustRegister() // the latest is tried first
	alice := w.phone("alice", "UDP", server6, 1)
	alice.call("sip:bob@example.net")
	second.reply(second.expect("INVITE"), 486)
	alice.expect("486")
	if m, err := first.next(time.Millisecond); err == nil {
		t.Errorf("the other contact gets\n%s", m)
	}
}

// TestMTU has a request leave UDP by the path's MTU.
func TestMTU(t *testing.T) {
	configtest.InEffect(t, "registrar", "mtu")
	w := newWorld(t)
	w.serve("mtu = 1280")
	bob, alice := w.phone("bob", "UDP", server6, 2), w.phone("alice", "UDP", server6, 1)
	bob.mustRegister()
	listener := w.listen(bob.at())
	alice.call("sip:bob@example.net", "X-Large: "+strings.Repeat("x", 500))
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	(&phone{t: t, w: w, name: "bob", transport: "TCP", conn: conn}).expect("INVITE")
}

// TestSecureServers are called by TLS if roots_file vouches for them.
func TestSecureServers(t *testing.T) {
	configtest.InEffect(t, "registrar", "roots_file", "certificate_file", "key_file", "listen_tls")
	w := newWorld(t)
	pair, err := tls.LoadX509KeyPair(w.path("cert.pem"), w.path("key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	listener := tls.NewListener(w.listen("[2001:db8::2]:5061"), &tls.Config{Certificates: []tls.Certificate{pair}})
	taken := make(chan net.Conn)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(taken)
				return
			}
			if conn.(*tls.Conn).Handshake() == nil {
				taken <- conn
			}
		}
	}()
	s := w.serve("")
	bob, alice := w.phone("bob", "UDP", server6, 2), w.phone("alice", "TLS", server6, 1)
	bob.mustRegister()
	bob.mustRegisterSecurely()
	if r := bob.register("Contact: *", "Expires: 0"); r.Status != 400 {
		t.Errorf("* beside another:\n%s", r)
	}
	if _, err := s.remove(removeArguments{Address: "bob@example.net", Contact: strings.Trim(bob.contact(), "<>")}); err != nil {
		t.Fatal(err)
	}
	if _, r := alice.call("sip:bob@example.net"); r == nil {
		if r = alice.final(); r.Status != 500 {
			t.Errorf("a server that nobody vouches for:\n%s", r)
		}
	}
	w.reload(s, fmt.Sprintf("roots_file = %q", w.path("cert.pem")))
	alice.call("sip:bob@example.net")
	conn := <-taken
	defer conn.Close()
	over := &phone{t: t, w: w, name: "bob", transport: "TLS", conn: conn}
	over.reply(over.expect("INVITE"), 486)
	alice.expect("486")
}

// TestKeysInTheEngine sees in the proxy's settings what takes minutes elsewhere.
func TestKeysInTheEngine(t *testing.T) {
	configtest.InEffect(t, "registrar", "ring_timeout", "nonce_life", "connect_timeout", "name", "listen", "subscribers_file")
	w := newWorld(t)
	w.file("others.toml", strings.ReplaceAll(subscribers, "alice", "zoe"))
	s := w.serve(fmt.Sprintf("name = \"sip1\"\nring_timeout = \"4m\"\nnonce_life = \"10s\"\nconnect_timeout = \"500ms\"\nlisten = [\"[2001:db8::6]:5070\"]\nsubscribers_file = %q", w.path("others.toml")))
	p, err := prepare(&s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if p.proxy.TimerC != 4*time.Minute || p.engine.NonceLife != 10*time.Second || s.streams.connect.Load() != int64(500*time.Millisecond) || s.Name() != "sip1" {
		t.Errorf("%+v", p)
	}
	w.ns.Do(t, func() error {
		conn, err := net.Dial("udp", "[2001:db8::6]:5070")
		if err != nil {
			return err
		}
		zoe := &phone{t: t, w: w, name: "zoe", transport: "UDP", conn: conn, callID: "z", nonces: map[string]uint32{}}
		zoe.mustRegister()
		return conn.Close()
	})
}
