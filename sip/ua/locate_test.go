// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

const (
	deadA = "[2001:db8:e::6]:5060"
	deadB = "192.0.2.6:5060"
)

// addresses are some.
func addresses(texts ...string) (list []netip.AddrPort) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddrPort(text))
	}
	return list
}

// answers has a host, at which there is no agent, answer a request with fields.
func (w *world) answers(f flight, status int, fields ...string) {
	w.t.Helper()
	m, fault := message.Parse(f.data)
	if fault != nil {
		w.t.Fatal(fault)
	}
	res := message.Reply(m, status, "Reason", "tag")
	for i := 0; i+1 < len(fields); i += 2 {
		res.Add(fields[i], fields[i+1])
	}
	if status == 200 && m.Method == "INVITE" {
		setBody(res, []byte("answer"))
	}
	w.send(f.to, f.from, f.transport, res.Append(nil), nil)
	w.pass(2 * delay)
}

// Where a server fails, the next one of its name is called, with another branch and else the same
// (RFC 3263 section 4.3). Servers of the other family are passed over.
func TestNextServer(t *testing.T) {
	for _, row := range []struct {
		name   string
		fail   func(w *world, alice *agent, first flight)
		next   bool
		status int // of the end, if there is none
	}{
		{"it is silent", func(w *world, _ *agent, _ flight) { w.pass(32 * time.Second) }, true, 0},
		{"it is unavailable", func(w *world, _ *agent, f flight) { w.answers(f, 503) }, true, 0},
		{"it tries, and is unavailable", func(w *world, _ *agent, f flight) { w.answers(f, 100); w.answers(f, 503) }, true, 0},
		{"it cannot be reached", func(w *world, alice *agent, f flight) {
			alice.engine.Unreachable(transaction.Target{Transport: "UDP", Local: f.from, Remote: f.to}, w.now, &alice.out)
			alice.flush()
		}, true, 0},
		{"it refuses", func(w *world, _ *agent, f flight) { w.answers(f, 500) }, false, 500},
		{"it rings, and who rings is unavailable", func(w *world, _ *agent, f flight) { w.answers(f, 180); w.answers(f, 503) }, false, 503},
		{"it is silent, and the call is given up", func(w *world, alice *agent, _ flight) {
			alice.do(alice.engine.HangUp(1, w.now, &alice.out))
			w.pass(32 * time.Second)
		}, false, 487},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.agent("bob", bobA, nil)
			alice := w.agent("alice", aliceA, func(s *Settings) { s.Lookup = lookup("example.com", addresses(deadB, deadA, bobA)...) })
			alice.call("sip:bob@example.com")
			w.pass(delay)
			first := w.find("INVITE")[0]
			row.fail(w, alice, first)
			w.pass(time.Second)
			if v, ended := alice.told(Ended); ended == row.next || v.Status != row.status {
				t.Fatalf("%+v", alice.events)
			}
			all := w.find("INVITE")
			last := all[len(all)-1]
			if first.to.String() != deadA || (last.to.String() == bobA) != row.next {
				t.Fatalf("called at %v, then at %v", first.to, last.to)
			}
			if row.next && (last.branch() == first.branch() || last.header("CSeq") != first.header("CSeq") || last.header("Call-ID") != first.header("Call-ID") || last.header("From") != first.header("From")) {
				t.Errorf("called by\n%s\nthen by\n%s", first.data, last.data)
			}
		})
	}
}

// However many servers a name has, a call tries so many and no more.
func TestServersAreBounded(t *testing.T) {
	w := newWorld(t)
	var many []netip.AddrPort
	for i := range 20 {
		many = append(many, netip.MustParseAddrPort(fmt.Sprintf("[2001:db8:e::%x]:5060", i+1)))
	}
	alice := w.agent("alice", aliceA, func(s *Settings) { s.Lookup = lookup("example.com", many...) })
	alice.call("sip:bob@example.com")
	w.pass(time.Hour)
	var tried []netip.AddrPort
	for _, f := range w.find("INVITE") {
		if !slices.Contains(tried, f.to) {
			tried = append(tried, f.to)
		}
	}
	if !slices.Equal(tried, many[:maxServers]) {
		t.Errorf("tried %v", tried)
	}
	if v, ended := alice.told(Ended); !ended || v.Status != 408 {
		t.Errorf("%+v", alice.events)
	}
}

// A registration goes to the next server, too; what keeps the flow alive goes there, and so does the
// next call, first.
func TestRegistersAtTheNextServer(t *testing.T) {
	w := newWorld(t)
	s := w.addServer("[2001:db8:e::5]:5060")
	alice := w.agent("alice", aliceA, func(set *Settings) {
		set.Lookup = lookup("example.com", addresses(deadA, s.at.String())...)
		set.Register, set.KeepAlive = time.Hour, true
	})
	w.pass(33 * time.Second)
	expect(t, "alice", alice.kinds(), "registered")
	if a, b := w.seen[0], w.find("REGISTER"); a.to.String() != deadA || len(s.requests) != 1 || b[len(b)-1].branch() == a.branch() {
		t.Errorf("%d registrations", len(s.requests))
	}
	w.seen = nil
	alice.call("sip:bob@example.com")
	w.pass(30 * time.Second)
	alive := 0
	for _, f := range w.seen {
		if f.to.String() == deadA {
			t.Errorf("%q to the server that is silent", f.data)
		}
		if f.to == s.at && f.data[0] == 0 {
			alive++
		}
	}
	if alive == 0 || len(w.find("INVITE")) != 1 {
		t.Errorf("%d keep-alives; sent %q", alive, w.sent())
	}
}

// named is a world in which alice calls a peer, played by the test, whose Contact is a name, or a proxy's
// in Record-Route is: nobody has asked for it before.
func named(t *testing.T) (w *world, alice *agent, known *bool, invite flight) {
	t.Helper()
	w, known = newWorld(t), new(bool)
	alice = w.agent("alice", aliceA, func(s *Settings) {
		s.Lookup = func(name string, _ uint16, transport string) []transaction.Target {
			if *known {
				return lookup("peer.example.net", addresses(bobB)...)(name, 0, transport)
			}
			return nil
		}
	})
	alice.call(toBob)
	w.pass(delay)
	return w, alice, known, w.find("INVITE")[0]
}

// Requests within a dialog wait for a name in Contact or Record-Route, each of them.
func TestNamesInDialogs(t *testing.T) {
	for _, fields := range [][]string{
		{"Contact", "<sip:bob@peer.example.net>"},
		{"Contact", "<sip:bob@other.example.net>", "Record-Route", "<sip:peer.example.net;lr>"},
	} {
		t.Run(fields[len(fields)-2], func(t *testing.T) {
			w, alice, known, invite := named(t)
			fields := append(fields, "Allow", allowed)
			asked := func(method string, do func()) flight {
				t.Helper()
				*known, w.seen, alice.lookups = false, nil, nil
				do()
				if len(alice.lookups) != 1 || alice.lookups[0].Host != "peer.example.net" || len(w.find(method)) > 0 {
					t.Fatalf("%s: asked for %v, sent %v", method, alice.lookups, w.sent())
				}
				*known = true
				alice.engine.Resolved(alice.lookups[0], w.now, &alice.out)
				alice.flush()
				sent := w.find(method)
				if len(sent) != 1 || sent[0].to.String() != bobB {
					t.Fatalf("%s: sent %v", method, sent)
				}
				return sent[0]
			}
			asked("PRACK", func() { w.answers(invite, 180, append(fields, "Require", "100rel", "RSeq", "1")...) })
			alice.add(2, aliceB)
			update := asked("UPDATE", func() { alice.use(2) })
			w.answers(update, 200, fields...)
			asked("ACK", func() { w.answers(invite, 200, fields...) })
			w.pass(time.Second)
			asked("BYE", func() { alice.do(alice.engine.HangUp(1, w.now, &alice.out)) })
		})
	}
}

// resolve answers the last question for a name.
func (a *agent) resolve() {
	a.engine.Resolved(a.lookups[len(a.lookups)-1], a.w.now, &a.out)
	a.flush()
}

// A re-INVITE waits for a name as well, while the call goes on.
func TestReinviteWaitsForAName(t *testing.T) {
	for _, row := range []struct {
		name   string
		play   func(w *world, alice *agent, known *bool)
		sent   string
		events []string
	}{
		{"it is found", func(w *world, alice *agent, known *bool) {
			*known = true
			alice.resolve()
			w.answers(w.find("INVITE")[0], 200)
		}, "INVITE 200 ACK", []string{"held"}},
		{"it is not", func(_ *world, alice *agent, _ *bool) { alice.resolve() }, "", []string{"hold_failed"}},
		{"the call ends meanwhile", func(w *world, alice *agent, known *bool) {
			alice.do(alice.engine.HangUp(1, w.now, &alice.out))
			*known = true
			alice.resolve()
		}, "BYE", []string{"ended"}},
		{"the address is lost meanwhile, and the next one too", func(w *world, alice *agent, known *bool) {
			alice.lost(1)
			alice.use(2)
			alice.lost(2)
			alice.use(3)
			*known = true
			alice.resolve()
			w.answers(w.find("INVITE")[0], 200)
		}, "INVITE 200 ACK INVITE", []string{"moving", "moving", "moved"}}, // and then to hold
	} {
		t.Run(row.name, func(t *testing.T) {
			w, alice, known, invite := named(t)
			alice.add(2, aliceB)
			alice.add(3, "[2001:db8:f::3]:5060")
			*known = true
			w.answers(invite, 200, "Contact", "<sip:bob@peer.example.net>")
			if alice.only().State != Up {
				t.Fatalf("%+v", alice.events)
			}
			*known, w.seen, alice.events = false, nil, nil
			alice.do(alice.engine.Hold(1, true, w.now, &alice.out))
			if len(w.seen) > 0 || len(alice.lookups) != 1 {
				t.Fatalf("sent %v, asked for %v", w.sent(), alice.lookups)
			}
			row.play(w, alice, known)
			if n := len(alice.lookups); n != 1 || len(alice.engine.sought) > 0 {
				t.Errorf("asked %d times, %d places are still sought", n, len(alice.engine.sought))
			}
			if got := strings.Join(w.sent(), " "); got != row.sent {
				t.Errorf("sent %q, want %q", got, row.sent)
			}
			expect(t, "alice", alice.kinds(), row.events...)
		})
	}
}

// Who is called asks for the caller's name at once, so that a move need not wait for it.
func TestCalleeAsksAhead(t *testing.T) {
	w := newWorld(t)
	known := false
	alice := w.agent("alice", aliceA, func(s *Settings) {
		s.Lookup = func(name string, _ uint16, transport string) []transaction.Target {
			if known {
				return lookup("peer.example.net", addresses(bobB)...)(name, 0, transport)
			}
			return nil
		}
	})
	invite := strings.Join([]string{
		"INVITE sip:alice@[2001:db8:a::1] SIP/2.0", "Via: SIP/2.0/UDP [2001:db8:d::2]:5060;branch=z9hG4bK1", "Max-Forwards: 70", "From: <sip:bob@example.com>;tag=b", "To: <sip:alice@example.com>",
		"Call-ID: 1", "CSeq: 1 INVITE", "Contact: <sip:bob@peer.example.net>", "Content-Type: application/sdp", "Content-Length: 5", "", "offer",
	}, "\r\n")
	w.send(netip.MustParseAddrPort(bobB), alice.paths[1], "UDP", []byte(invite), nil)
	w.pass(delay)
	if alice.only().State != Up || len(alice.lookups) != 1 || alice.lookups[0].Host != "peer.example.net" {
		t.Fatalf("%+v, asked for %v", alice.only(), alice.lookups)
	}
	known = true
	alice.resolve()
	alice.add(2, aliceB)
	w.seen = nil
	alice.use(2)
	if sent := w.find("INVITE"); len(sent) != 1 || sent[0].to.String() != bobB {
		t.Errorf("sent %v", w.sent())
	}
}

// A registration waits for its name, once, and leaves by the path that is in use then.
func TestRegistrationWaitsForAName(t *testing.T) {
	w := newWorld(t)
	s := w.addServer("[2001:db8:e::5]:5060")
	known := false
	alice := w.agent("alice", aliceA, func(set *Settings) {
		set.Register = time.Hour
		set.Lookup = func(name string, _ uint16, transport string) []transaction.Target {
			if known {
				return lookup("example.com", s.at)(name, 0, transport)
			}
			return nil
		}
	})
	alice.add(2, aliceB)
	alice.use(2)
	if len(w.seen) > 0 || len(alice.lookups) != 1 {
		t.Fatalf("sent %v, asked for %v", w.sent(), alice.lookups)
	}
	known = true
	alice.resolve()
	w.pass(time.Second)
	expect(t, "messages", w.sent(), "REGISTER", "200")
	if contact := s.bindings["alice"]; len(contact) != 1 || contact[0].URI.Host != "2001:db8:b::1" {
		t.Errorf("bound to %v", contact)
	}
}

// What waits for names is bounded; what is above that fails at once.
func TestSoughtIsBounded(t *testing.T) {
	w := newWorld(t)
	alice := w.agent("alice", aliceA, func(s *Settings) { s.Lookup = lookup("") })
	defer alice.engine.enter(w.now, &alice.out)()
	done := 0
	for i := range 2 * maxPlaces {
		alice.engine.locate(message.URI{Scheme: "sip", Host: fmt.Sprintf("h%d.example", i)}, func() { done++ })
	}
	if len(alice.engine.sought) != maxPlaces || len(alice.out.Lookups) != maxPlaces || done != maxPlaces {
		t.Errorf("%d are sought, %d were not", len(alice.engine.sought), done)
	}
	done = 0
	for range 2 * maxWaiting {
		alice.engine.locate(message.URI{Scheme: "sip", Host: "h1.example"}, func() { done++ })
	}
	if n := len(alice.engine.sought[place{scheme: "sip", host: "h1.example"}]); n != maxWaiting || done != maxWaiting+1 {
		t.Errorf("%d wait, %d do not", n, done)
	}
}
