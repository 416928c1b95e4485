// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/message"
)

// registered is a world with a server at which alice registers.
func registered(t *testing.T, prepare func(*server), change func(*Settings)) (*world, *server, *agent) {
	t.Helper()
	w := newWorld(t)
	s := w.addServer("[2001:db8:e::5]:5060")
	if prepare != nil {
		prepare(s)
	}
	alice := w.agent("alice", aliceA, func(set *Settings) {
		set.Register = time.Hour
		set.Password = "secret"
		set.Proxy = message.URI{Scheme: "sip", Host: "2001:db8:e::5"}
		if change != nil {
			change(set)
		}
	})
	return w, s, alice
}

func contacts(s *server) []string {
	var list []string
	for _, b := range s.bindings["alice"] {
		list = append(list, b.URI.String())
	}
	return list
}

func TestRegister(t *testing.T) {
	w, s, alice := registered(t, nil, func(set *Settings) { set.Instance = "urn:uuid:00000000-0000-1000-8000-000a95a0e128" })
	w.pass(time.Second)
	expect(t, "alice", alice.kinds(), "registered")
	r := s.requests[0]
	if r.URI != "sip:example.com" || !strings.Contains(r.Get("To"), "sip:alice@example.com") {
		t.Errorf("REGISTER %v, To %v", r.URI, r.Get("To"))
	}
	for _, has := range []string{"reg-id=1", `+sip.instance="<urn:uuid:00000000-0000-1000-8000-000a95a0e128>"`, "expires=3600"} {
		if !strings.Contains(r.Get("Contact"), has) {
			t.Errorf("Contact %s lacks %s", r.Get("Contact"), has)
		}
	}
	w.pass(49 * time.Minute)
	if len(s.requests) != 1 {
		t.Error("renewed early")
	}
	w.pass(2 * time.Minute)
	if len(s.requests) != 2 || s.requests[1].CallID() != r.CallID() || number(s.requests[1]) != number(r)+1 {
		t.Errorf("%d requests; the renewal has the same Call-ID and the next number", len(s.requests))
	}
	alice.engine.Unregister(w.now, &alice.out)
	alice.flush()
	w.pass(time.Second)
	if got := contacts(s); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	expect(t, "alice in the end", alice.kinds(), "registered", "unregistered")
}

func TestRegisterChallenges(t *testing.T) {
	w, s, alice := registered(t, func(s *server) { s.nonce = "n1" }, nil)
	w.pass(time.Second)
	expect(t, "alice", alice.kinds(), "registered")
	if got := s.requests[1].Get("Authorization"); !strings.Contains(got, `username="alice"`) || !strings.Contains(got, "nc=00000001") {
		t.Errorf("Authorization: %s", got)
	}
	if number(s.requests[1]) != 2 {
		t.Error("the number of the second request is not the next")
	}
	s.requests = nil
	alice.engine.Register(w.now, &alice.out)
	alice.flush()
	w.pass(time.Second)
	if len(s.requests) != 1 || !strings.Contains(s.requests[0].Get("Authorization"), "nc=00000002") {
		t.Error("the known nonce was not used again, with the next count")
	}
	s.nonce = "n2" // the old one is stale
	alice.engine.Register(w.now, &alice.out)
	alice.flush()
	w.pass(time.Second)
	expect(t, "alice with a stale nonce", alice.kinds(), "registered", "registered")
}

func TestWrongPasswordIsTriedOnce(t *testing.T) {
	w, s, alice := registered(t, func(s *server) { s.nonce = "n1" }, nil)
	s.stubborn = true
	w.lose = func(f flight) bool {
		if f.from == s.at {
			s.nonce += "x"
		}
		return false
	}
	w.pass(5 * time.Second)
	if len(s.requests) != 2 {
		t.Errorf("%d requests, want two", len(s.requests))
	}
	if v, ok := alice.told(RegistrationFailed); !ok || v.Status != 401 {
		t.Errorf("%+v", alice.events)
	}
}

func TestRegisterLonger(t *testing.T) {
	w, s, alice := registered(t, func(s *server) { s.min = 2 * time.Hour }, nil)
	w.pass(time.Second)
	expect(t, "alice", alice.kinds(), "registered")
	if len(s.requests) != 2 || !strings.Contains(s.requests[1].Get("Contact"), "expires=7200") {
		t.Error("423 was not obeyed")
	}
}

func TestRegisterAfterAMove(t *testing.T) {
	w, s, alice := registered(t, nil, func(set *Settings) { set.Instance = "urn:uuid:00000000-0000-1000-8000-000a95a0e128" })
	w.pass(time.Second)
	s.requests, w.seen = nil, nil
	alice.add(2, aliceB)
	alice.lost(1)
	alice.use(2)
	if got := w.find("REGISTER"); len(got) != 1 || got[0].from.String() != aliceB {
		t.Fatalf("at once: %v", w.sent())
	}
	w.pass(time.Second)
	expect(t, "bindings", contacts(s), "sip:alice@"+aliceB)
	list := s.requests[0].All("Contact")
	if len(s.requests) != 1 || len(list) != 2 {
		t.Fatalf("%d requests, Contacts %v", len(s.requests), list)
	}
	if !strings.Contains(list[0], aliceB) || !strings.Contains(list[0], "reg-id=1") {
		t.Errorf("the new contact is not the first: %v", list)
	}
	if old := list[1]; !strings.Contains(old, aliceA) || !strings.Contains(old, "expires=0") || strings.Contains(old, "reg-id") {
		t.Errorf("the old contact: %v", old)
	}
}

// The move comes while a REGISTER is under way, whose answer goes to an address that is gone.
func TestMoveWhileRegistering(t *testing.T) {
	w, s, alice := registered(t, nil, nil)
	w.pass(delay + time.Millisecond) // the server has it, the answer is under way
	alice.add(2, aliceB)
	alice.lost(1)
	alice.use(2)
	if got := w.find("REGISTER"); len(got) != 2 || got[1].sent != w.now {
		t.Fatalf("the move did not register at once: %v", w.sent())
	}
	w.pass(time.Minute)
	expect(t, "bindings", contacts(s), "sip:alice@"+aliceB)
}

// Softly, the one under way is waited for: there are never two (RFC 3261 section 10.2).
func TestSoftMoveWhileRegistering(t *testing.T) {
	w, s, alice := registered(t, nil, nil)
	alice.add(2, aliceB)
	alice.use(2)
	if got := len(w.find("REGISTER")); got != 1 {
		t.Errorf("%d under way", got)
	}
	w.pass(time.Second)
	expect(t, "bindings", contacts(s), "sip:alice@"+aliceB)
}

func TestStaleBindingIsRemovedAgain(t *testing.T) {
	w, s, alice := registered(t, nil, func(set *Settings) { set.Instance = "urn:uuid:00000000-0000-1000-8000-000a95a0e128" })
	old, _ := message.ParseAddress(`<sip:alice@[2001:db8:9::9]:5060>;expires=60;reg-id=1;+sip.instance="<urn:uuid:00000000-0000-1000-8000-000a95a0e128>"`)
	s.bindings["alice"] = append(s.bindings["alice"], old)
	w.pass(time.Second)
	expect(t, "bindings", contacts(s), "sip:alice@"+aliceA)
	expect(t, "alice", alice.kinds(), "registered")
}

func TestRegistrarAway(t *testing.T) {
	w, s, alice := registered(t, func(s *server) { s.status = 503 }, nil)
	var waits []time.Duration
	for range 4 {
		alice.events = nil
		w.pass(delay * 2)
		v, ok := alice.told(RegistrationFailed)
		if !ok {
			t.Fatal("no failure was told")
		}
		waits = append(waits, v.Took)
		w.pass(v.Took - 2*delay)
		w.pass(2 * delay)
	}
	w.pass(2 * delay)
	for i, d := range waits {
		if upper := 30 * time.Second << i; d < upper/2 || d > upper {
			t.Errorf("attempt %d waits %v, want from %v to %v", i+1, d, upper/2, upper)
		}
	}
	s.status = 0
	alice.add(2, aliceB)
	alice.use(2)
	alice.events = nil
	w.pass(time.Second)
	expect(t, "a move does not wait", alice.kinds(), "registered")
}

func TestKeepAlive(t *testing.T) {
	t.Run("STUN by UDP; when no one answers, a new registration", func(t *testing.T) {
		w, s, alice := registered(t, nil, func(set *Settings) { set.KeepAlive = true })
		w.pass(time.Second)
		w.seen = nil
		w.pass(60 * time.Second)
		asked := 0
		for _, f := range w.seen {
			if f.from != s.at && f.data[0] == 0 {
				asked++
				if d := f.sent.Sub(start); asked == 1 && (d < 24*time.Second || d > 30*time.Second) {
					t.Errorf("the first after %v", d)
				}
			}
		}
		if asked != 2 {
			t.Errorf("%d keep-alives in a minute", asked)
		}
		if n := len(s.requests); n != 1 {
			t.Errorf("%d registrations while they are answered", n)
		}
		s.mute = true
		w.pass(50 * time.Second)
		if alice.engine.Stats().KeepAlivesLost != 1 || len(w.find("REGISTER")) == 0 {
			t.Errorf("silence goes unnoticed: %+v", alice.engine.Stats())
		}
	})
	t.Run("another mapping is another flow", func(t *testing.T) {
		w, s, alice := registered(t, nil, func(set *Settings) { set.KeepAlive = true })
		w.pass(30 * time.Second)
		f := &alice.engine.reg.flow
		if f.mapped.String() != aliceA {
			t.Fatalf("mapped %v", f.mapped)
		}
		s.requests = nil
		w.lose = func(g flight) bool {
			if g.from == s.at && g.data[0] == 1 {
				g.data[27]++ // the port
			}
			return false
		}
		w.pass(30 * time.Second)
		if len(s.requests) != 1 {
			t.Errorf("%d registrations, want one", len(s.requests))
		}
	})
	t.Run("empty lines by TCP", func(t *testing.T) {
		w, s, alice := registered(t, nil, func(set *Settings) {
			set.KeepAlive = true
			set.Proxy.Params = set.Proxy.Params.With("transport", "tcp")
		})
		w.pass(2 * time.Minute)
		pings := w.find("keepalive")
		if len(pings) != 2 || string(pings[0].data) != "\r\n\r\n" || pings[0].transport != "TCP" {
			t.Fatalf("%d empty lines, want one and its answer", len(pings))
		}
		s.mute = true
		w.pass(140 * time.Second)
		if alice.engine.Stats().KeepAlivesLost != 1 {
			t.Error("silence goes unnoticed")
		}
	})
}

// A subscriber's card answers the network's challenge; to one whose number it has seen it
// asks for another, and answers that (RFC 3310).
func TestRegisterByAKA(t *testing.T) {
	key := aka.Key{1, 2, 3}
	network := aka.NewMilenage(key, aka.Key{4, 5, 6})
	challenge := func(random byte, sqn aka.SQN) (aka.Vector, string) {
		v := network.Vector([16]byte{random}, sqn, aka.AMF{})
		return v, aka.Nonce{RAND: [16]byte{random}, AUTN: v.AUTN}.String()
	}
	first, nonce := challenge(7, 64)
	w, s, alice := registered(t, func(s *server) { s.nonce, s.algorithm = nonce, "AKAv1-MD5" }, func(set *Settings) {
		set.SIM = &SIM{Milenage: aka.NewMilenage(key, aka.Key{4, 5, 6})}
	})
	w.pass(time.Second)
	expect(t, "alice", alice.kinds(), "registered")
	answered := func(r *message.Message, password string) digest.Credentials {
		t.Helper()
		c, err := digest.ParseCredentials(r.Get("Authorization"))
		if err != nil {
			t.Fatal(err)
		}
		if want := c.Expected(c.Algorithm.HA1("alice", "example.com", password), "REGISTER", nil); c.Response != want {
			t.Errorf("the response is not RES's")
		}
		return c
	}
	answered(s.requests[1], first.Password())

	s.requests = nil
	_, s.nonce = challenge(8, 64) // the number again
	s.stubborn = true
	alice.engine.Register(w.now, &alice.out)
	alice.flush()
	w.pass(3*delay + time.Millisecond)
	if c := answered(s.requests[1], ""); c.AUTS == "" {
		t.Error("an old number was not refused by AUTS")
	}
	_, s.nonce = challenge(9, 128)
	w.pass(2 * delay)
	w.pass(2 * delay)
	s.stubborn = false
	alice.engine.Register(w.now, &alice.out)
	alice.flush()
	w.pass(time.Second)
	if _, ok := alice.told(Registered); !ok {
		t.Errorf("%+v", alice.events)
	}
}
