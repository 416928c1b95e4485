// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// ways are all by which terminals speak to the server.
var ways = []struct{ transport, server string }{
	{"UDP", server6}, {"UDP", server4}, {"TCP", server6}, {"TCP", server4}, {"TLS", server6}, {"TLS", server4},
}

// TestRegister registers terminals by all transports and families, asks for their bindings, removes
// them, and turns away who has no right.
func TestRegister(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	for _, way := range ways {
		t.Run(way.transport+" "+way.server, func(t *testing.T) {
			p := w.phone("alice", way.transport, way.server, 1)
			p.t = t
			if r := p.mustRegister("Expires: 600"); !strings.HasPrefix(r.Get("Contact"), p.contact()) {
				t.Errorf("bound:\n%s", r)
			}
			list := s.has(t, "alice@example.net")
			if len(list) != 1 || (list[0].Flow != "") != (way.transport != "UDP") {
				t.Errorf("the bindings are %+v", list)
			}
			if r := p.register("Expires: 0"); r.Status != 200 || r.Has("Contact") {
				t.Errorf("unbound:\n%s", r)
			}
			mallory := w.phone("mallory", way.transport, way.server, 2)
			mallory.t = t
			if r := mallory.register(); r.Status != 401 {
				t.Errorf("a stranger:\n%s", r)
			}
			thief := w.phone("bob", way.transport, way.server, 2)
			thief.t = t
			m := thief.request("REGISTER", "sip:"+domain, "Contact: "+thief.contact())
			m.Set("To", "<sip:alice@example.net>")
			thief.send(m)
			r := thief.final()
			m = thief.request("REGISTER", "sip:"+domain, "Contact: "+thief.contact(), thief.answer(r, "REGISTER", "sip:"+domain))
			m.Set("To", "<sip:alice@example.net>")
			thief.send(m)
			if r := thief.final(); r.Status != 403 {
				t.Errorf("somebody else's address:\n%s", r)
			}
		})
	}
	if n := s.value("registrations_total", ""); n != float64(2*len(ways)) {
		t.Errorf("%v registrations", n)
	}
	if n := s.value("registrations_refused_total", "bad_credentials"); n != float64(len(ways)) {
		t.Errorf("%v with bad credentials", n)
	}
	if n := s.value("messages_total", "TLS"); n == 0 {
		t.Error("no message by TLS")
	}
}

// TestCall calls from each way to each other, to the BYE of the callee, through the proxy. Terminals
// that hold a connection open are reached by it, be they caller or callee.
func TestCall(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	for _, from := range ways {
		for _, to := range ways {
			name := fmt.Sprintf("%s %s to %s %s", from.transport, from.server, to.transport, to.server)
			t.Run(name, func(t *testing.T) {
				alice, bob := w.phone("alice", from.transport, from.server, 1), w.phone("bob", to.transport, to.server, 2)
				alice.t, bob.t = t, t
				bob.mustRegister("Expires: 60")
				invite, early := alice.call("sip:bob@example.net")
				if early != nil {
					t.Fatalf("unexpected:\n%s", early)
				}
				got := bob.expect("INVITE")
				if got.Has("Proxy-Authorization") || got.CallID() != invite.CallID() {
					t.Errorf("the callee gets\n%s", got)
				}
				bob.reply(got, 180)
				answer := bob.reply(got, 200)
				ok := alice.expect("200")
				ack := alice.inDialog("ACK", ok)
				alice.send(ack)
				bob.expect("ACK")
				bye := bob.back("BYE", got, answer)
				bob.send(bye)
				m := alice.expect("BYE")
				alice.reply(m, 200)
				bob.expect("200")
				bob.register("Expires: 0")
			})
		}
	}
	if n := s.value("requests_total", "relayed"); n < float64(2*len(ways)*len(ways)) {
		t.Errorf("%v relayed", n)
	}
}

// TestRedirect answers with contacts.
func TestRedirect(t *testing.T) {
	w := newWorld(t)
	w.serve(`mode = "redirect"`)
	bob := w.phone("bob", "UDP", server6, 2)
	bob.mustRegister()
	alice := w.phone("alice", "TCP", server6, 1)
	_, early := alice.call("sip:bob@example.net")
	if early == nil {
		early = alice.final()
	}
	if early.Status != 302 || early.Get("Contact") != bob.contact() {
		t.Errorf("the answer is\n%s", early)
	}
}

// TestConnectionIsUsedAgain opens no second connection to a terminal that has one, and opens one to
// who has none any more.
func TestConnectionIsUsedAgain(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	bob := w.phone("bob", "TCP", server6, 2)
	bob.mustRegister()
	alice := w.phone("alice", "UDP", server6, 1)
	invite, _ := alice.call("sip:bob@example.net")
	got := bob.expect("INVITE")
	if n := s.value("connections_opened_total", ""); n != 0 {
		t.Errorf("%v connections were opened", n)
	}
	bob.reply(got, 486)
	alice.acknowledge(invite, alice.expect("486"))
	// The contact is a port that nobody listens on: without the connection it cannot be reached.
	bob.conn.Close()
	s.await(t, "connections", "", 0)
	if _, r := alice.call("sip:bob@example.net"); r == nil {
		if r = alice.final(); r.Status != 500 {
			t.Errorf("without the connection:\n%s", r)
		}
	}
	s.await(t, "connections_ended_total", "unreachable", 1)
}

// TestResponseWithoutConnection goes to the port that the sender has named (RFC 3261 section 18.2.2).
func TestResponseWithoutConnection(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	bob, alice := w.phone("bob", "UDP", server6, 2), w.phone("alice", "TCP", server6, 1)
	bob.mustRegister()
	listener := w.listen("[2001:db8::1]:5066")
	invite := alice.request("INVITE", "sip:bob@example.net", "Contact: "+alice.contact())
	invite.Set("From", "<sip:stranger@example.com>;tag=1")
	invite.Set("Via", "SIP/2.0/TCP [2001:db8::1]:5066;branch=z9hG4bKgone")
	alice.send(invite)
	got := bob.expect("INVITE")
	alice.conn.Close()
	s.await(t, "connections", "", 0)
	bob.reply(got, 486)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	(&phone{t: t, w: w, name: "alice", transport: "TCP", conn: conn}).expect("486")
}

// TestLargeRequests go by TCP, and by UDP where the other end has no TCP (RFC 3261 section 18.1.1).
func TestLargeRequests(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	bob, alice := w.phone("bob", "UDP", server6, 2), w.phone("alice", "TCP", server6, 1)
	bob.mustRegister()
	large := "X-Large: " + strings.Repeat("x", 1300)
	alice.call("sip:bob@example.net", large)
	got := bob.expect("INVITE")
	if v, _ := got.Via(); v.Transport != "UDP" || !got.Has("X-Large") {
		t.Errorf("by UDP\n%s", got)
	}
	if n := s.value("connections_ended_total", "unreachable"); n != 1 {
		t.Errorf("TCP was tried %v times", n)
	}
	bob.reply(got, 486)
	alice.expect("486")
	listener := w.listen(bob.at())
	alice.call("sip:bob@example.net", large)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	over := &phone{t: t, w: w, name: "bob", transport: "TCP", conn: conn}
	if v, _ := over.expect("INVITE").Via(); v.Transport != "TCP" {
		t.Errorf("by %s", v.Transport)
	}
	conn.Close()
}

// TestFaults answers what cannot be read as a request.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	for _, transport := range []string{"UDP", "TCP"} {
		p := w.phone("alice", transport, server6, 1)
		p.raw(strings.Replace(string(p.request("OPTIONS", "sip:example.net").Append(nil)), "CSeq: 1 OPTIONS", "CSeq: 1 INVITE", 1))
		if r := p.final(); r.Status != 400 {
			t.Errorf("by %s:\n%s", transport, r)
		}
	}
	if n := s.value("dropped_total", "cseq_method"); n != 2 {
		t.Errorf("%v were counted", n)
	}
	udp := w.phone("alice", "UDP", server6, 1)
	udp.raw("something else altogether")
	s.await(t, "dropped_total", "not_sip", 1)
}

// TestTrace shows datagrams with what became of them.
func TestTrace(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Trace(ctx, trace.Sampling{Every: 1, PerSecond: 1000}, func(one *trace.Sample) { seen <- string(one.Verdict) + " " + one.Reason })
	}()
	p := w.phone("alice", "UDP", server4, 1)
	for _, tt := range []struct{ text, want string }{
		{p.request("REGISTER", "sip:example.net").String(), "drop challenged"},
		{p.request("OPTIONS", "sip:example.net").String(), "forward "},
		{"something else", "drop not_sip"},
		{p.request("INVITE", "sip:bob@example.net").String(), "drop unproved"},
	} {
		eventually(t, "a sample of "+tt.want, func() bool {
			p.raw(tt.text)
			select {
			case got := <-seen:
				return got == tt.want
			case <-time.After(10 * time.Millisecond): // the trace has not begun
				return false
			}
		})
		for len(seen) > 0 {
			<-seen
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestOrders lists and removes bindings.
func TestOrders(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	bob := w.phone("bob", "UDP", server6, 2)
	bob.mustRegister("Contact: <sip:bob@[2001:db8::3]>;q=0.5")
	w.phone("alice", "TCP", server4, 1).mustRegister()
	first, err := s.list(listArguments{Limit: 2})
	rest, errRest := s.list(listArguments{Limit: 2, After: first.After})
	if err != nil || errRest != nil || len(first.Bindings) != 2 || len(rest.Bindings) != 1 || rest.After != nil {
		t.Fatalf("%+v, %+v, %v, %v", first, rest, err, errRest)
	}
	if all := append(first.Bindings, rest.Bindings...); all[0].Address != "sip:alice@example.net" || !strings.HasPrefix(all[0].Flow, "TCP 192.0.2.1:") || all[1].Q+all[2].Q != 1.5 {
		t.Errorf("%+v", all)
	}
	for _, tt := range []struct {
		a    removeArguments
		want int
		err  string
	}{
		{removeArguments{Address: "bob@example.net"}, 0, "say which contact"},
		{removeArguments{Address: "bob@", All: true}, 0, "no address of record"},
		{removeArguments{Address: "sip:bob@example.net", Contact: "x"}, 0, "no contact"},
		{removeArguments{Address: "sip:bob@example.net", Contact: "sip:bob@[2001:db8::9]"}, 0, ""},
		{removeArguments{Address: "sip:bob@example.net", Contact: "sip:bob@[2001:db8::3]"}, 1, ""},
		{removeArguments{Address: "alice@example.net", All: true}, 1, ""},
	} {
		d, err := s.remove(tt.a)
		if d.Removed != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%+v: %+v, %v", tt.a, d, err)
		}
	}
	if n := len(s.has(t, "")); n != 1 {
		t.Errorf("%d bindings are left", n)
	}
}

// TestReload changes all but the sockets, and loses neither binding nor connection.
func TestReload(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	bob := w.phone("bob", "TCP", server6, 2)
	bob.mustRegister()
	w.file("subscribers.toml", strings.ReplaceAll(subscribers, `"carol"`, `"dave"`))
	w.reload(s, `mode = "redirect"`)
	if n := len(s.has(t, "sip:bob@example.net")); n != 1 {
		t.Fatalf("%d bindings after a reload", n)
	}
	if r := w.phone("dave", "UDP", server6, 3).register(); r.Status != 200 && r.Status != 404 {
		t.Errorf("a new subscriber:\n%s", r)
	}
	if r := w.phone("carol", "UDP", server6, 3).register(); r.Status != 401 {
		t.Errorf("one who is none any more:\n%s", r)
	}
	bob.mustRegister()
	broken := w.settings("")
	w.file("subscribers.toml", "[[subscriber]]\n")
	if _, err := roletest.Reload(Role, s.Registrar, s.cfg, broken); err == nil {
		t.Error("a broken file of subscribers was taken")
	}
	bob.mustRegister()
	want := broken
	w.file("subscribers.toml", subscribers)
	want.Listen = want.Listen[:1]
	if restart, err := roletest.Reload(Role, s.Registrar, s.cfg, want); err != nil || len(restart) != 1 || restart[0] != "listen" {
		t.Errorf("another socket: %v, %v", restart, err)
	}
}

// TestReloadWithoutTLS leaves TLS out, which waits for a restart, and its certificate with it: who connects meanwhile
// is served as before.
func TestReloadWithoutTLS(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	next := w.settings("listen_tls = []\ncertificate_file = \"\"\nkey_file = \"\"")
	restart, err := roletest.Reload(Role, s.Registrar, s.cfg, next)
	if want := []string{"listen_tls", "certificate_file", "key_file"}; err != nil || !slices.Equal(restart, want) {
		t.Errorf("%v wait for a restart, %v; want %v", restart, err, want)
	}
	w.phone("bob", "TLS", server6, 2).mustRegister()
}

// TestKeptInGoodOrder goes on after an end, with dialogs that have begun before.
func TestKeptInGoodOrder(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	alice, bob := w.phone("alice", "UDP", server6, 1), w.phone("bob", "UDP", server6, 2)
	bob.mustRegister()
	alice.call("sip:bob@example.net")
	got := bob.expect("INVITE")
	answer := bob.reply(got, 200)
	alice.send(alice.inDialog("ACK", alice.expect("200")))
	bob.expect("ACK")
	before := s.has(t, "bob@example.net")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = w.serve("")
	if after := s.has(t, "bob@example.net"); len(after) != 1 || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after the restart %+v, before %+v", after, before)
	}
	bob.send(bob.back("BYE", got, answer))
	m := alice.expect("BYE")
	alice.reply(m, 200)
	bob.expect("200")
}
