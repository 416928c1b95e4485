// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/message"
)

// stale reads whether a response asks for the same credentials with another nonce.
func stale(t *testing.T, r *message.Message) bool {
	t.Helper()
	c, err := digest.ParseChallenge(r.Get("WWW-Authenticate"))
	if r.Status != 401 || err != nil {
		t.Fatalf("no challenge: %v\n%s", err, r)
	}
	return c.Stale
}

// TestCredentials takes those that are right, once each, and no others.
func TestCredentials(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*digest.Credentials)
		again  func(*digest.Credentials) // of a response with a changed field: computed again
		later  time.Duration
		reason string
		stale  bool
	}{
		{name: "right"},
		{name: "right, just in time", later: 5 * time.Minute},
		{name: "too late", later: 5*time.Minute + 1, reason: "stale_nonce 1", stale: true},
		{name: "before its time", later: -time.Second, reason: "stale_nonce 1", stale: true},
		{name: "a wrong response", change: func(c *digest.Credentials) { c.Response = "00" }, reason: "bad_credentials 1"},
		{name: "a name that is unknown", change: func(c *digest.Credentials) { c.Username = "nobody" }, reason: "bad_credentials 1"},
		{name: "the name of somebody else", change: func(c *digest.Credentials) { c.Username = "bob" }, reason: "bad_credentials 1"},
		{name: "another count", change: func(c *digest.Credentials) { c.Count++ }, reason: "bad_credentials 1"},
		{name: "another algorithm", change: func(c *digest.Credentials) { c.Algorithm = digest.SHA512256 }, reason: "bad_credentials 1"},
		{name: "AKA of who has none", change: func(c *digest.Credentials) { c.Algorithm = digest.AKAv1MD5 }, reason: "bad_credentials 1"},
		{name: "another realm", change: func(c *digest.Credentials) { c.Realm = "elsewhere" }, reason: "foreign_realm 1"},
		{name: "no response yet", change: func(c *digest.Credentials) { c.Response = "" }, reason: "malformed_credentials 1"},
		{name: "a nonce of somebody's own", again: func(c *digest.Credentials) { c.Nonce = "AAAA" }, reason: "foreign_nonce 1", stale: true},
		{name: "a nonce whose time was changed", again: func(c *digest.Credentials) { c.Nonce = "A" + c.Nonce[1:] }, reason: "foreign_nonce 1", stale: true},
		{name: "for another server", again: func(c *digest.Credentials) { c.URI = "sip:elsewhere.example.net" }, reason: "other_uri 1"},
		{name: "for the address of this server", again: func(c *digest.Credentials) { c.URI = "sip:[2001:db8::5]:5060" }},
		{name: "for another domain of this server", again: func(c *digest.Credentials) { c.URI = "sip:other.example.com" }},
		{name: "without a quality of protection", again: func(c *digest.Credentials) { c.QOP, c.CNonce, c.Count = "", "", 0 }},
		{name: "with integrity of the body", again: func(c *digest.Credentials) { c.QOP = "auth-int" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, algorithm := range []digest.Algorithm{digest.MD5, digest.SHA256} {
				e := engine(t)
				p := newPhone(t, e, "alice")
				p.algorithm = algorithm
				c := p.challenged()
				p.now = p.now.Add(tt.later)
				p.credentials = func(c *digest.Credentials) {
					if tt.change != nil {
						tt.change(c)
					}
					if tt.again != nil {
						tt.again(c)
						c.Response = c.Expected(algorithm.HA1("alice", realm, "alice"), "REGISTER", nil)
					}
				}
				r := p.answer(&c, 1, "Contact: <sip:a>")
				if refused(e) != tt.reason || (r.Status == 200) != (tt.reason == "") {
					t.Fatalf("%s: refused as %q, want %q:\n%s", algorithm, refused(e), tt.reason, r)
				}
				if tt.reason != "" && stale(t, r) != tt.stale {
					t.Errorf("%s: stale is not %t:\n%s", algorithm, tt.stale, r)
				}
				if _, n := e.Table().Len(); (n == 1) != (tt.reason == "") {
					t.Errorf("%d bindings", n)
				}
			}
		})
	}
}

// TestReplay takes each count of a nonce once, and what has no count once.
func TestReplay(t *testing.T) {
	e := engine(t)
	p := newPhone(t, e, "alice")
	c := p.challenged()
	for i, tt := range []struct {
		count  uint32
		status int
	}{{1, 200}, {1, 401}, {2, 200}, {9, 200}, {8, 401}, {10, 200}} {
		if r := p.answer(&c, tt.count); r.Status != tt.status {
			t.Errorf("%d: count %d is answered by %d", i, tt.count, r.Status)
		}
	}
	bare := p.challenged()
	bare.QOP = nil
	for i, want := range []int{200, 401} {
		if r := p.answer(&bare, 0); r.Status != want {
			t.Errorf("%d: without a count, %d", i, r.Status)
		}
	}
	if refused(e) != "replayed_nonce 3" {
		t.Errorf("refused as %s", refused(e))
	}
}

// TestNoncesAreBounded remembers no more than it may; what was forgotten cannot be used again.
func TestNoncesAreBounded(t *testing.T) {
	const most = 4
	e := engine(t, func(s *Settings) { s.MaxNonces = most })
	p := newPhone(t, e, "alice")
	var all []digest.Challenge
	for i := range 3 * most {
		p.now = start.Add(time.Duration(i) * time.Second)
		c := p.challenged()
		if r := p.answer(&c, 1); r.Status != 200 {
			t.Fatalf("%d: %d", i, r.Status)
		}
		all = append(all, c)
		if len(e.auth.used) > most || len(e.auth.order) > most {
			t.Fatalf("%d nonces are remembered", len(e.auth.used))
		}
	}
	for i := range all {
		want := 401
		if i >= len(all)-most {
			want = 200
		}
		for _, count := range []uint32{1, 2} {
			if r := p.answer(&all[i], count); (r.Status == 200) != (want == 200 && count == 2) {
				t.Errorf("nonce %d with count %d is answered by %d", i, count, r.Status)
			}
		}
	}
	// Nonces that have ended make room by themselves.
	p.now = start.Add(time.Hour)
	c := p.challenged()
	if r := p.answer(&c, 1); r.Status != 200 || len(e.auth.used) != 1 {
		t.Errorf("after an hour: %d, %d nonces", r.Status, len(e.auth.used))
	}
}

// TestStrangersUseNothing lets no one without the password take any memory.
func TestStrangersUseNothing(t *testing.T) {
	e := engine(t)
	p := newPhone(t, e, "alice")
	p.credentials = func(c *digest.Credentials) { c.Response = "00" }
	for range 100 {
		c := p.challenged("Contact: <sip:a>")
		p.answer(&c, 1, "Contact: <sip:a>")
	}
	if _, bindings := e.Table().Len(); len(e.auth.used) != 0 || len(e.auth.held) != 0 || bindings != 0 {
		t.Errorf("%d nonces, %d challenges, %d bindings", len(e.auth.used), len(e.auth.held), bindings)
	}
}

// TestUnknownNamesLookAlike challenges nobody as it does somebody.
func TestUnknownNamesLookAlike(t *testing.T) {
	e := engine(t)
	alice, nobody := newPhone(t, e, "alice"), newPhone(t, e, "nobody")
	one, two := alice.send(alice.request()), nobody.send(nobody.request())
	if len(one.All("WWW-Authenticate")) != 2 || len(two.All("WWW-Authenticate")) != 2 || one.Status != two.Status || len(one.Headers) != len(two.Headers) {
		t.Errorf("the answers differ:\n%s\n%s", one, two)
	}
}

// TestChallenges offers what an account can answer, the preferred algorithm first.
func TestChallenges(t *testing.T) {
	e := engine(t, func(s *Settings) {
		delete(s.Accounts[1].HA1, digest.SHA256)
		s.Accounts[3].HA1 = map[digest.Algorithm]string{digest.MD5: "x"}
	})
	for name, want := range map[string]string{"alice": "[SHA-256 MD5]", "bob": "[MD5]", "nobody": "[SHA-256 MD5]", "sim@" + realm: "[AKAv1-MD5 MD5]"} {
		p := newPhone(t, e, name)
		var got []digest.Algorithm
		for _, header := range p.send(p.request()).All("WWW-Authenticate") {
			c, err := digest.ParseChallenge(header)
			if err != nil || fmt.Sprint(c.QOP) != "[auth]" || c.Realm != realm {
				t.Errorf("%s: %v", header, err)
			}
			got = append(got, c.Algorithm)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s is offered %s, want %s", name, got, want)
		}
	}
}

// TestAlgorithms takes no answer by a digest that is not offered, whichever the account has, from a reload on.
func TestAlgorithms(t *testing.T) {
	s := settings(t)
	e := engine(t)
	p := newPhone(t, e, "alice")
	p.algorithm = digest.MD5
	c := p.challenged()
	s.Algorithms = []digest.Algorithm{digest.SHA256}
	if err := e.Reconfigure(s); err != nil {
		t.Fatal(err)
	}
	if r := p.answer(&c, 1, "Contact: <sip:a>"); r.Status != 401 || refused(e) != "bad_credentials 1" {
		t.Errorf("a challenge of before: %s\n%s", refused(e), r)
	}
	p.algorithm = digest.SHA256
	c = p.challenged()
	c.Algorithm = digest.MD5
	if r := p.answer(&c, 1, "Contact: <sip:a>"); r.Status != 401 || refused(e) != "bad_credentials 2" {
		t.Errorf("another algorithm than the challenge's: %s\n%s", refused(e), r)
	}
	c.Algorithm = digest.SHA256
	if r := p.answer(&c, 1, "Contact: <sip:a>"); r.Status != 200 {
		t.Errorf("the one that is offered:\n%s", r)
	}
}

// sim is a terminal with a SIM.
type sim struct {
	*phone
	m      *aka.Milenage
	window aka.Window
}

func newSIM(t *testing.T, e *Engine) *sim {
	s := &sim{phone: newPhone(t, e, "sim@"+realm), m: testKey(t)}
	s.algorithm = digest.AKAv1MD5
	return s
}

// respond answers a challenge as the SIM does: by RES, or by AUTS if the number is not fresh.
func (s *sim) respond(c *digest.Challenge, count uint32, fields ...string) (r *message.Message, fresh bool) {
	s.t.Helper()
	n, ok := aka.ParseNonce(c.Nonce)
	a, genuine := s.m.Answer(n.RAND, n.AUTN)
	if !ok || !genuine {
		s.t.Fatalf("the challenge is not of the home network: %+v", c)
	}
	fresh = s.window.Accept(a.SQN)
	m := s.request(fields...)
	password := a.Password()
	if !fresh {
		password = ""
	}
	credentials := c.Answer(s.name, c.Algorithm.HA1(s.name, c.Realm, password), m.Method, m.URI, "cnonce", count)
	if !fresh {
		credentials.AUTS = s.m.AUTS(n.RAND, s.window.Highest()).String()
	}
	m.Add("Authorization", credentials.String())
	return s.send(m), fresh
}

// TestAKA registers a SIM again and again, each time with the next number (RFC 3310).
func TestAKA(t *testing.T) {
	e := engine(t)
	s := newSIM(t, e)
	for i := range 40 { // more than there are places for IND
		c := s.challenged()
		if r, fresh := s.respond(&c, 1, "Contact: <sip:sim>"); r.Status != 200 || !fresh {
			t.Fatalf("%d, fresh %t:\n%s", i, fresh, r)
		}
		// The same answer again is a replay, the next count is not.
		s.window = aka.Window{}
		if r, _ := s.respond(&c, 1); r.Status != 401 {
			t.Errorf("%d: a replay is answered by %d", i, r.Status)
		}
		s.window = aka.Window{}
		if r, _ := s.respond(&c, 2); r.Status != 200 {
			t.Errorf("%d: the next count is answered by %d", i, r.Status)
		}
	}
}

// TestAKAResynchronisation goes on from the number of a SIM that is ahead (RFC 3310 section 3.4).
func TestAKAResynchronisation(t *testing.T) {
	e := engine(t)
	s := newSIM(t, e)
	for seq := range aka.SQN(32) { // elsewhere all of its places have got ahead
		s.window.Accept((5000+seq)<<5 | seq)
	}
	c := s.challenged()
	r, fresh := s.respond(&c, 1)
	if fresh || r.Status != 401 || refused(e) != "resynchronised 1" {
		t.Fatalf("fresh %t, %s:\n%s", fresh, refused(e), r)
	}
	again, err := digest.ParseChallenge(r.Get("WWW-Authenticate"))
	if err != nil || again.Stale {
		t.Fatalf("%v, %+v", err, again)
	}
	if r, fresh := s.respond(&again, 1, "Contact: <sip:sim>"); !fresh || r.Status != 200 {
		t.Errorf("after that, fresh %t:\n%s", fresh, r)
	}
}

// TestAKAForgeries takes no AUTS but of the SIM, and no RES of another challenge.
func TestAKAForgeries(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*sim, *digest.Credentials)
		reason string
	}{
		{"AUTS of a stranger", func(_ *sim, c *digest.Credentials) {
			c.AUTS = aka.AUTS{1}.String()
			c.Response = c.Expected(c.Algorithm.HA1(c.Username, c.Realm, ""), "REGISTER", nil)
		}, "bad_credentials 1"},
		{"AUTS that is none", func(_ *sim, c *digest.Credentials) {
			c.AUTS = "AAAA"
			c.Response = c.Expected(c.Algorithm.HA1(c.Username, c.Realm, ""), "REGISTER", nil)
		}, "bad_credentials 1"},
		{"an empty password without AUTS", func(_ *sim, c *digest.Credentials) {
			c.Response = c.Expected(c.Algorithm.HA1(c.Username, c.Realm, ""), "REGISTER", nil)
		}, "bad_credentials 1"},
		{"a challenge of the SIM's own making", func(s *sim, c *digest.Credentials) {
			v := s.m.Vector([16]byte{9}, 1<<30, aka.AMF{})
			n, _ := aka.ParseNonce(c.Nonce)
			n.RAND, n.AUTN = v.RAND, v.AUTN
			c.Nonce = n.String()
			c.Response = c.Expected(c.Algorithm.HA1(c.Username, c.Realm, v.Password()), "REGISTER", nil)
		}, "foreign_nonce 1"},
		{"a challenge that is none", func(_ *sim, c *digest.Credentials) { c.Nonce = "AAAA" }, "bad_credentials 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := engine(t)
			s := newSIM(t, e)
			s.credentials = func(c *digest.Credentials) { tt.change(s, c) }
			c := s.challenged()
			before := e.auth.sqn[s.name]
			if r := s.answer(&c, 1, "Contact: <sip:sim>"); r.Status != 401 || refused(e) != tt.reason {
				t.Errorf("refused as %q, want %q:\n%s", refused(e), tt.reason, r)
			}
			if after := e.auth.sqn[s.name]; after != before || len(e.auth.used) > 0 {
				t.Errorf("the number is %x, and was %x; %d nonces are remembered", after, before, len(e.auth.used))
			}
		})
	}
}

// TestAKAFlood uses one number for all who ask within a moment.
func TestAKAFlood(t *testing.T) {
	e := engine(t)
	s := newSIM(t, e)
	first := s.challenged()
	for range 100 {
		s.challenged()
	}
	if got, want := e.auth.sqn[s.name], aka.SQN(2<<5|1); got != want {
		t.Errorf("the number is %#x, want %#x", got, want)
	}
	if r, fresh := s.respond(&first, 1); r.Status != 200 || !fresh {
		t.Errorf("the first challenge is answered by %d, fresh %t", r.Status, fresh)
	}
	s.now = s.now.Add(challengeHold + 1)
	s.challenged()
	if got, want := e.auth.sqn[s.name], aka.SQN(3<<5|2); got != want {
		t.Errorf("later the number is %#x, want %#x", got, want)
	}
}
