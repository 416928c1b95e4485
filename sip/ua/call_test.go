// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

const (
	aliceA = "[2001:db8:a::1]:5060"
	aliceB = "[2001:db8:b::1]:5060"
	bobA   = "[2001:db8:c::2]:5060"
	bobB   = "[2001:db8:d::2]:5060"
	toBob  = "sip:bob@[2001:db8:c::2]:5060"
)

// pair is a world with a call between two agents.
func pair(t *testing.T, change func(*Settings)) (w *world, alice, bob *agent) {
	t.Helper()
	w = newWorld(t)
	alice, bob = w.agent("alice", aliceA, change), w.agent("bob", bobA, change)
	alice.call(toBob)
	w.pass(time.Second)
	if alice.only().State != Up || bob.only().State != Up {
		t.Fatalf("no call: %v, %v", alice.only().State, bob.only().State)
	}
	alice.events, bob.events, w.seen = nil, nil, nil
	return w, alice, bob
}

// ringing is a world in which bob's telephone rings and nobody answers it yet. Change is bob's.
func ringing(t *testing.T, change func(*Settings)) (w *world, alice, bob *agent) {
	t.Helper()
	w = newWorld(t)
	alice, bob = w.agent("alice", aliceA, nil), w.agent("bob", bobA, change)
	bob.answer = false
	alice.call(toBob)
	w.pass(time.Second)
	return w, alice, bob
}

func TestCall(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, nil)
	alice.call(toBob)
	w.pass(time.Second)
	expect(t, "messages", w.sent(), "INVITE", "180", "200", "ACK")
	expect(t, "alice", alice.kinds(), "ringing", "established")
	expect(t, "bob", bob.kinds(), "incoming", "established")
	if got := bob.media[1].peer; !strings.Contains(got, "o=alice v=1 offer path=1") {
		t.Errorf("bob was offered %q", got)
	}
	if got := alice.media[1].peer; !strings.Contains(got, "o=bob v=1 answer path=1") {
		t.Errorf("alice was answered %q", got)
	}
	bob.do(bob.engine.HangUp(1, w.now, &bob.out))
	w.pass(time.Minute)
	expect(t, "messages at the end", w.sent(), "BYE", "200")
	expect(t, "alice at the end", alice.kinds(), "ended")
	expect(t, "bob at the end", bob.kinds(), "ended")
	for _, a := range w.agents {
		servers, clients := a.engine.layer.Len()
		if n := a.engine.Next(); !n.IsZero() || len(a.engine.dialogs) > 0 || servers+clients > 0 {
			t.Errorf("%s: something is left: next %v, %d dialogs, %d transactions", a.name, n, len(a.engine.dialogs), servers+clients)
		}
	}
}

func TestCallsThatDoNotComeAbout(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*Settings)
		do     func(w *world, alice, bob *agent)
		status int
		sent   string
	}{
		{"refused", nil, func(w *world, _, bob *agent) { bob.do(bob.engine.Reject(1, 486, w.now, &bob.out)) }, 486, "INVITE 180 486 ACK"},
		{"declined by hanging up", nil, func(w *world, _, bob *agent) { bob.do(bob.engine.HangUp(1, w.now, &bob.out)) }, 603, "INVITE 180 603 ACK"},
		{"given up", nil, func(w *world, alice, _ *agent) { alice.do(alice.engine.HangUp(1, w.now, &alice.out)) }, 487, "INVITE 180 CANCEL 200 487 ACK"},
		{"rung reliably, refused", func(s *Settings) { s.Reliable = true }, func(w *world, _, bob *agent) { bob.do(bob.engine.Reject(1, 480, w.now, &bob.out)) }, 480, "INVITE 180 PRACK 200 480 ACK"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, alice, bob := ringing(t, row.change)
			row.do(w, alice, bob)
			w.pass(2 * time.Minute)
			expect(t, "messages", w.sent(), strings.Fields(row.sent)...)
			if v, ok := alice.told(Ended); !ok || v.Status != row.status {
				t.Errorf("alice: %+v, want an end by %d", alice.events, row.status)
			}
			if _, ok := bob.told(Ended); !ok {
				t.Error("bob's call has not ended")
			}
			if len(alice.engine.calls)+len(bob.engine.calls)+len(alice.engine.dialogs)+len(bob.engine.dialogs) > 0 {
				t.Error("something is left")
			}
		})
	}
}

func TestNoAnswerEndsTheCall(t *testing.T) {
	w := newWorld(t)
	alice := w.agent("alice", aliceA, nil)
	alice.call(toBob)
	w.pass(32 * time.Second)
	if v, ok := alice.told(Ended); !ok || v.Status != 408 {
		t.Errorf("%+v, want an end by 408", alice.events)
	}
}

func TestLostAnswersAndAcks(t *testing.T) {
	for _, first := range []string{"200", "ACK"} {
		t.Run(first+" lost", func(t *testing.T) {
			w := newWorld(t)
			n := 0
			w.lose = func(f flight) bool {
				if f.first() == first {
					n++
				}
				return f.first() == first && n <= 2
			}
			alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, nil)
			alice.call(toBob)
			w.pass(40 * time.Second)
			if alice.only().State != Up || bob.only().State != Up {
				t.Error("the call does not stand")
			}
			if got := len(w.find("200")); got != 3 {
				t.Errorf("the 200 was sent %d times, want three", got)
			}
		})
	}
	t.Run("no ACK at all ends the call by BYE", func(t *testing.T) {
		w := newWorld(t)
		w.lose = func(f flight) bool { return f.first() == "ACK" }
		alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, nil)
		alice.call(toBob)
		w.pass(34 * time.Second)
		if v, ok := bob.told(Ended); !ok || v.Status != 408 {
			t.Errorf("bob: %+v", bob.events)
		}
		if _, ok := alice.told(Ended); !ok {
			t.Error("alice got no BYE")
		}
	})
}

func TestRingsReliably(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, func(s *Settings) { s.Reliable = true })
	bob.answer = false
	lost := false
	w.lose = func(f flight) bool {
		if f.first() == "180" && !lost {
			lost = true
			return true
		}
		return false
	}
	alice.call(toBob)
	w.pass(3 * time.Second)
	expect(t, "messages", w.sent(), "INVITE", "180", "INVITE", "180", "180", "PRACK", "200")
	bob.pickUp(1)
	w.pass(time.Second)
	expect(t, "messages of the answer", w.sent(), "200", "ACK")
}

// A PRACK may come behind our answer to the INVITE, and is taken (RFC 3262 section 3).
func TestPrackAfterTheAnswer(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, func(s *Settings) { s.Reliable = true })
	bob.answer = false
	lost := false
	w.lose = func(f flight) bool {
		first := f.first() == "PRACK" && !lost
		lost = lost || first
		return first
	}
	alice.call(toBob)
	w.pass(3 * delay)
	bob.pickUp(1)
	w.pass(time.Minute)
	expect(t, "messages", w.sent(), "INVITE", "180", "PRACK", "200", "ACK", "PRACK", "200")
	if alice.only().State != Up || bob.only().State != Up {
		t.Error("the call does not stand")
	}
}

// What rings says so again, that no proxy gives it up, and ends when no one answers (RFC 3261
// sections 13.3.1 and 13.3.1.1).
func TestRingsForAWhile(t *testing.T) {
	for _, row := range []struct {
		name, expires string
		change        func(*Settings)
		status        int
		sent          string // and when, in seconds
	}{
		{"three minutes", "", nil, 480, "0 INVITE, 0 180, 60 180, 120 180, 180 480, 180 ACK"},
		{"longer", "", func(s *Settings) { s.RingFor = 200 * time.Second }, 480, "0 INVITE, 0 180, 60 180, 120 180, 180 180, 200 480, 200 ACK"},
		{"until the INVITE expires", "70", nil, 487, "0 INVITE, 0 180, 60 180, 70 487, 70 ACK"},
		{"the INVITE expires later", "181", nil, 480, "0 INVITE, 0 180, 60 180, 120 180, 180 480, 180 ACK"},
		{"an INVITE that has expired", "0", nil, 487, "0 INVITE, 0 180, 0 487, 0 ACK"},
		{"reliably", "", func(s *Settings) { s.Reliable = true }, 480, "0 INVITE, 0 180, 0 PRACK, 0 200, 150 180, 150 PRACK, 150 200, 180 480, 180 ACK"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, row.change)
			bob.answer = false
			w.change = func(m *message.Message) {
				if m.Method == "INVITE" && row.expires != "" {
					m.Add("Expires", row.expires)
				}
			}
			alice.call(toBob)
			w.pass(10 * time.Minute)
			var sent, numbers []string
			for _, f := range w.seen {
				sent = append(sent, fmt.Sprintf("%d %s", f.sent.Sub(start)/time.Second, f.first()))
				if n := f.header("RSeq"); n != "" {
					numbers = append(numbers, n)
				}
			}
			expect(t, "messages", sent, strings.Split(row.sent, ", ")...)
			for _, a := range w.agents {
				if v, ok := a.told(Ended); !ok || v.Status != row.status {
					t.Errorf("%s: %+v, want an end by %d", a.name, a.events, row.status)
				}
			}
			if n := bob.engine.Next(); !n.IsZero() {
				t.Errorf("something is left for %v", n)
			}
			if len(numbers) > 1 {
				one, _ := strconv.Atoi(numbers[0])
				expect(t, "RSeq", numbers, numbers[0], strconv.Itoa(one+1))
			}
		})
	}
	t.Run("not when it is answered", func(t *testing.T) {
		w, _, bob := ringing(t, func(s *Settings) { s.SessionExpires = -1 })
		bob.pickUp(1)
		w.pass(10 * time.Minute)
		expect(t, "messages", w.sent(), "INVITE", "180", "200", "ACK")
		if bob.only().State != Up {
			t.Error("the call has ended")
		}
	})
}

// There is no second reliable 180 before the PRACK of the first.
func TestRingsReliablyOneByOne(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, func(s *Settings) {
		s.Reliable = true
		s.Transactions = transaction.Defaults()
		s.Transactions.T1 = 10 * time.Second
	})
	bob.answer = false
	w.lose = func(f flight) bool { return f.first() == "180" }
	alice.call(toBob)
	w.pass(160 * time.Second)
	number := ""
	for _, f := range w.find("180") {
		number = cmp.Or(number, f.header("RSeq"))
		if f.header("RSeq") != number {
			t.Errorf("a 180 with RSeq %s behind that with %s", f.header("RSeq"), number)
		}
	}
}

func TestOfferInTheAnswer(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, nil)
	m := &fakeMedia{name: "alice", silent: true}
	u, err := message.ParseURI(toBob)
	if err != nil {
		t.Fatal(err)
	}
	_, err = alice.engine.Invite(u, m, w.now, &alice.out)
	alice.do(err)
	w.pass(time.Second)
	expect(t, "messages", w.sent(), "INVITE", "180", "200", "ACK")
	if !strings.Contains(bob.media[1].peer, "o=alice v=1 answer") || !strings.Contains(m.peer, "o=bob v=1 offer") {
		t.Errorf("alice has %q, bob %q", m.peer, bob.media[1].peer)
	}
}

func TestHoldAndResume(t *testing.T) {
	w, alice, bob := pair(t, nil)
	alice.do(alice.engine.Hold(1, true, w.now, &alice.out))
	w.pass(time.Second)
	expect(t, "messages", w.sent(), "INVITE", "200", "ACK")
	expect(t, "alice", alice.kinds(), "held")
	expect(t, "bob", bob.kinds(), "renegotiated")
	if !strings.Contains(bob.media[1].peer, "v=2 offer path=1 hold=true") {
		t.Errorf("bob was offered %q", bob.media[1].peer)
	}
	alice.do(alice.engine.Hold(1, false, w.now, &alice.out))
	w.pass(time.Second)
	expect(t, "alice", alice.kinds(), "resumed")

	bob.media[1].refuse = true
	alice.do(alice.engine.Hold(1, true, w.now, &alice.out))
	w.pass(time.Second)
	expect(t, "alice, refused", alice.kinds(), "hold_failed")
	if alice.only().Held || alice.only().State != Up || alice.media[1].hold {
		t.Error("the refusal changed the call")
	}
}

func TestGlare(t *testing.T) {
	w, alice, bob := pair(t, nil)
	alice.do(alice.engine.Hold(1, true, w.now, &alice.out))
	bob.do(bob.engine.Hold(1, true, w.now, &bob.out))
	w.pass(60 * time.Millisecond)
	expect(t, "messages", w.sent(), "INVITE", "INVITE", "491", "491", "ACK", "ACK")
	w.pass(10 * time.Second)
	again := w.find("INVITE")
	if len(again) != 2 || again[0].from.String() != bobA || again[1].from.String() != aliceA {
		t.Fatalf("after the glare %v", w.sent())
	}
	began := start.Add(time.Second + 2*delay)
	if d := again[0].sent.Sub(began); d < 0 || d > 2*time.Second {
		t.Errorf("bob, who did not make the Call-ID, waited %v", d)
	}
	if d := again[1].sent.Sub(began); d < 2100*time.Millisecond || d > 4*time.Second || d%(10*time.Millisecond) != 0 {
		t.Errorf("alice, who did, waited %v", d)
	}
	if !alice.only().Held || !bob.only().Held {
		t.Error("not held in the end")
	}
}

func TestRedirection(t *testing.T) {
	w := newWorld(t)
	s := w.addServer("[2001:db8:e::5]:5060")
	s.redirect = true
	proxy := func(set *Settings) {
		set.Register = time.Hour
		set.Proxy = message.URI{Scheme: "sip", Host: "2001:db8:e::5"}
	}
	bob := w.agent("bob", bobA, proxy)
	w.pass(time.Second)
	alice := w.agent("alice", aliceA, func(set *Settings) {
		set.Lookup = lookup("example.com", s.at)
	})
	w.seen = nil
	alice.call("sip:bob@example.com")
	w.pass(time.Second)
	expect(t, "messages", w.sent(), "INVITE", "302", "ACK", "INVITE", "180", "200", "ACK")
	expect(t, "alice", alice.kinds(), "redirected", "ringing", "established")
	if bob.only().State != Up {
		t.Error("bob has no call")
	}
	first, second := w.server.requests, alice.only()
	if len(first) != 1 || second.Target.Host != "2001:db8:c::2" {
		t.Errorf("%d registrations, the call is with %v", len(first), second.Target)
	}
}
