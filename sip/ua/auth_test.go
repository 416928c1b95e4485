// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// dial is a call to bob, whom the test plays, by someone with a password.
func dial(t *testing.T, change func(*Settings)) *script {
	t.Helper()
	w := newWorld(t)
	s := &script{w: w, agent: w.agent("alice", aliceA, func(set *Settings) {
		set.Password = "secret"
		if change != nil {
			change(set)
		}
	})}
	s.agent.call(toBob)
	s.next("INVITE")
	return s
}

// proxyIsBob has bob play the proxy as well.
func proxyIsBob(set *Settings) { set.Proxy = message.URI{Scheme: "sip", Host: "2001:db8:c::2"} }

// signed are the credentials of what was sent.
func (s *script) signed() string {
	var all []string
	for _, f := range s.w.seen {
		for _, name := range []string{"Authorization", "Proxy-Authorization"} {
			if value := f.header(name); value != "" {
				all = append(all, f.first()+": "+value)
			}
		}
	}
	return strings.Join(all, "\n")
}

const digestOf = `Digest nonce="n", qop="auth", realm=`

// Who is called may challenge whatever it likes: nothing is signed for it, for it has chosen the URI, the
// way and the nonce. A proxy of ours may.
func TestPeersDoNotChallenge(t *testing.T) {
	hold := func(s *script) string {
		s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
		return "INVITE"
	}
	for _, row := range []struct {
		name    string
		headers []string // of the 200 to the INVITE
		order   func(*script) string
	}{
		{"the INVITE", nil, nil},
		{"BYE", nil, func(s *script) string {
			s.agent.do(s.agent.engine.HangUp(1, s.w.now, &s.agent.out))
			return "BYE"
		}},
		{"a re-INVITE", nil, hold},
		{"an UPDATE", []string{"Session-Expires", "600;refresher=uac"}, func(s *script) string {
			s.w.pass(5 * time.Minute)
			return "UPDATE"
		}},
	} {
		for _, status := range []int{401, 407} {
			challenge := map[int]string{401: "WWW-Authenticate", 407: "Proxy-Authenticate"}[status]
			play := func(s *script) {
				if row.order != nil {
					s.answer(200, "b", "answer", row.headers...)
					s.w.seen = nil
					s.next(row.order(s))
				}
				s.answer(status, "b", "", challenge, digestOf+`"example.com"`)
			}
			t.Run(row.name+" by "+challenge, func(t *testing.T) {
				s := dial(t, nil)
				if play(s); s.signed() != "" {
					t.Errorf("signed for a peer: %s", s.signed())
				}
				s = dial(t, proxyIsBob)
				if play(s); strings.Count(s.signed(), `realm="example.com"`) != 1 {
					t.Errorf("signed for our proxy: %q", s.signed())
				}
			})
		}
	}
}

// What our proxy was shown is not shown to a peer to whom requests in the call go straight.
func TestCredentialsStayAtHome(t *testing.T) {
	s := dial(t, proxyIsBob)
	s.answer(407, "p", "", "Proxy-Authenticate", digestOf+`"example.com"`)
	if s.signed() == "" {
		t.Fatal("not signed")
	}
	s.next("INVITE")
	s.answer(183, "b", "", "Require", "100rel", "RSeq", "1", "Contact", "<sip:+19005550100@[2001:db8:66::6]>")
	pracks := len(s.w.find("PRACK"))
	if got := s.signed(); got != "" {
		t.Errorf("to the peer: %s", got)
	}
	s.answer(200, "b", "answer", "Contact", "<sip:+19005550100@[2001:db8:66::6]>")
	s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
	s.agent.do(s.agent.engine.HangUp(1, s.w.now, &s.agent.out))
	if got := s.signed(); got != "" || pracks != 1 || len(s.w.find("ACK")) != 1 || len(s.w.find("INVITE")) != 1 || len(s.w.find("BYE")) != 1 {
		t.Errorf("to the peer: %s", got)
	}
}

// A 401 by our proxy is that of who is called: it is answered if that is our server (as of a back-to-back
// user agent).
func TestWhoAsksBy401(t *testing.T) {
	for _, row := range []struct {
		contact string
		signed  bool
	}{{"<sip:[2001:db8:c::2]:5080>", true}, {"<sip:example.com>", true}, {"<sip:b@[2001:db8:66::6]>", false}, {"<sip:example.com;maddr=[2001:db8:66::6]>", false}} {
		s := dial(t, proxyIsBob)
		s.answer(200, "b", "answer", "Contact", row.contact, "Record-Route", "<sip:[2001:db8:c::2];lr>")
		s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
		s.next("INVITE")
		s.answer(401, "b", "", "WWW-Authenticate", digestOf+`"example.com"`)
		if got := s.signed(); (got != "") != row.signed {
			t.Errorf("%s: signed %q", row.contact, got)
		}
	}
}

// The password is for the realms in which the registrar asks for it, and for those of our servers' names.
func TestRealms(t *testing.T) {
	for _, row := range []struct {
		name, realm string
		registers   bool
		signed      bool
	}{
		{"the registrar's", "r", true, true},
		{"the domain's", "Example.COM", true, true},
		{"the proxy's", "2001:db8:c::2", true, true},
		{"another", "evil.example", true, false},
		{"any of the proxy of who does not register", "other", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			s := &script{w: w, agent: w.agent("alice", aliceA, func(set *Settings) {
				proxyIsBob(set)
				set.Password = "secret"
				if row.registers {
					set.Register = time.Hour
				}
			})}
			if row.registers {
				s.next("REGISTER")
				s.answer(401, "r", "", "WWW-Authenticate", digestOf+`"r"`)
				s.next("REGISTER")
				s.answer(200, "r", "")
			}
			s.agent.call("sip:bob@example.com")
			s.next("INVITE")
			s.answer(407, "p", "", "Proxy-Authenticate", digestOf+`"`+row.realm+`"`)
			if got := s.signed(); strings.Contains(got, `realm="`+row.realm+`"`) != row.signed {
				t.Errorf("signed %q", got)
			}
		})
	}
}

// Of the challenges of a realm one with qop is taken.
func TestQOPIsPreferred(t *testing.T) {
	s := dial(t, proxyIsBob)
	s.answer(407, "p", "", "Proxy-Authenticate", `Digest nonce="old", realm="example.com"`+"\r\nProxy-Authenticate: "+digestOf+`"example.com"`)
	if got := s.signed(); !strings.Contains(got, `nonce="n"`) || strings.Contains(got, `nonce="old"`) {
		t.Errorf("signed %q", got)
	}
}

// A call stays with the servers that it began with, though our domain's name leads elsewhere meanwhile, or nowhere;
// others that it did not lead to are not ours.
func TestServersOfACall(t *testing.T) {
	for _, row := range []struct {
		name, later, route string
		signed             bool
	}{
		{"the name leads elsewhere", "[2001:db8:d::1]:5060", "2001:db8:c::2", true},
		{"the name is not found", "", "2001:db8:c::2", true},
		{"another server", "", "2001:db8:66::6", false},
		{"where the name leads now", "[2001:db8:66::6]:5060", "2001:db8:66::6", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			at := "[2001:db8:c::2]:5060"
			s := dial(t, func(set *Settings) {
				set.Proxy = message.URI{Scheme: "sip", Host: "example.com"}
				set.Lookup = func(name string, port uint16, transport string) []transaction.Target {
					if at == "" {
						return nil
					}
					return lookup("example.com", netip.MustParseAddrPort(at))(name, port, transport)
				}
			})
			s.answer(200, "b", "answer", "Record-Route", "<sip:["+row.route+"];lr>")
			s.w.seen, at = nil, row.later
			s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
			s.next("INVITE")
			s.answer(407, "p", "", "Proxy-Authenticate", digestOf+`"example.com"`)
			if got := s.signed(); (got != "") != row.signed {
				t.Errorf("signed %q", got)
			}
		})
	}
}
