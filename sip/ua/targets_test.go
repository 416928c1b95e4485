// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// A redirect server is the outbound proxy of both ends: by what it makes of calls that are not for its
// users, the redirected call goes by it or past it.
func TestProxyRedirects(t *testing.T) {
	for _, row := range []struct {
		name      string
		elsewhere int
		past      bool
		events    []string
	}{
		{"it goes there itself", 0, false, []string{"redirected", "ringing", "established"}},
		{"it knows its own users alone", 404, true, []string{"redirected", "redirected", "ringing", "established"}},
		{"it relays for no one", 403, true, []string{"redirected", "redirected", "ringing", "established"}},
		{"it leads back", 302, true, []string{"redirected", "redirected", "ringing", "established"}},
		{"it says that bob is busy", 486, false, []string{"redirected", "ended"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			s := w.addServer("[2001:db8:e::5]:5060")
			s.redirect, s.elsewhere = true, row.elsewhere
			proxy := func(set *Settings) {
				set.Register = time.Hour
				set.Proxy = message.URI{Scheme: "sip", Host: "2001:db8:e::5"}
			}
			bob := w.agent("bob", bobA, proxy)
			alice := w.agent("alice", aliceA, proxy)
			w.pass(time.Second)
			alice.kinds()
			w.seen = nil
			alice.call("sip:bob@example.com")
			w.pass(time.Second)
			expect(t, "alice", alice.kinds(), row.events...)
			past := false
			for _, f := range w.seen {
				past = past || f.first() == "INVITE" && f.from == alice.paths[1] && f.to == bob.paths[1]
			}
			if past != row.past {
				t.Errorf("an INVITE past the proxy: %t", past)
			}
		})
	}
}

// A contact that is a name is looked for before the call goes on; that it is not found ends the call.
func TestRedirectedToAName(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			w := newWorld(t)
			s := w.addServer("[2001:db8:e::5]:5060")
			s.redirect = true
			contact := message.Address{URI: message.URI{Scheme: "sip", User: "bob", Host: "bob.example.net"}}
			s.bindings["bob"] = []message.Address{contact}
			bob := w.agent("bob", bobA, nil)
			found := false
			alice := w.agent("alice", aliceA, func(set *Settings) {
				set.Lookup = func(name string, port uint16, transport string) []transaction.Target {
					switch {
					case name == "example.com":
						return []transaction.Target{{Transport: "UDP", Remote: s.at}}
					case found:
						return []transaction.Target{{Transport: "UDP", Remote: bob.paths[1]}}
					}
					return nil
				}
			})
			alice.call("sip:bob@example.com")
			w.pass(time.Second)
			expect(t, "before it is found", alice.kinds(), "redirected")
			if l := alice.lookups; len(l) != 1 || !l[0].Equal(&contact.URI) {
				t.Fatalf("asked for %+v", alice.lookups)
			}
			found = known
			alice.engine.Resolved(alice.lookups[0], w.now, &alice.out)
			alice.flush()
			w.pass(time.Second)
			if known {
				expect(t, "when it is found", alice.kinds(), "ringing", "established")
			} else {
				expect(t, "when it is not", alice.kinds(), "ended")
			}
		})
	}
}

// A move while a name is looked for, and the end of the call.
func TestMoveWhileLooking(t *testing.T) {
	w := newWorld(t)
	alice := w.agent("alice", aliceA, func(set *Settings) {
		set.Lookup = func(string, uint16, string) []transaction.Target { return nil }
	})
	alice.add(2, aliceB)
	id := alice.call("sip:bob@example.com")
	alice.lost(1)
	alice.use(2)
	alice.do(alice.engine.HangUp(id, w.now, &alice.out))
	alice.engine.Resolved(alice.lookups[0], w.now, &alice.out)
	alice.flush()
	expect(t, "alice", alice.kinds(), "ended")
	if len(w.seen) > 0 {
		t.Errorf("sent %v", w.sent())
	}
}

// Who refuses for all places is not called at another (RFC 3261 section 21.6).
func TestRefusedEverywhere(t *testing.T) {
	for status, next := range map[int]bool{404: true, 486: true, 600: false, 603: false} {
		w := newWorld(t)
		s := w.addServer("[2001:db8:e::5]:5060")
		s.redirect = true
		bob, carol := w.agent("bob", bobA, nil), w.agent("carol", bobB, nil)
		for _, host := range []string{"2001:db8:c::2", "2001:db8:d::2"} {
			s.bindings["bob"] = append(s.bindings["bob"], message.Address{URI: message.URI{Scheme: "sip", User: "bob", Host: host}})
		}
		alice := w.agent("alice", aliceA, func(set *Settings) { set.Lookup = lookup("example.com", s.at) })
		bob.answer = false
		alice.call("sip:bob@example.com")
		w.pass(time.Second)
		bob.do(bob.engine.Reject(1, status, w.now, &bob.out))
		w.pass(time.Second)
		v, ended := alice.told(Ended)
		if called := len(carol.engine.Calls()) > 0; called != next || ended == next || ended && v.Status != status {
			t.Errorf("%d: another place was called: %t; %+v", status, called, alice.events)
		}
	}
}

// TestTargets says in which order contacts are tried, and which are not (RFC 3261 section 8.1.3.4).
func TestTargets(t *testing.T) {
	for _, row := range []struct {
		name, first string
		contacts    []string // of one 3xx after the other
		want        string
	}{
		{"by q, equals as they come", "sip:a@x", []string{"<sip:b@x>;q=0.2, <sip:c@x>, <sip:d@x>;q=0.2, <sip:e@x>;q=2"}, "c b d e"},
		{"each once", "sip:a@x", []string{"<sip:a@X>, <sip:b@x>, <sip:b@x>", "<sip:a@x>, <sip:b@x>, <sip:c@x>"}, "b c"},
		{"what a URI of SIP is not", "sip:a@x", []string{"<tel:+358>, <mailto:a@x>, <sip:b@x;method=BYE?Subject=x>"}, "b"},
		{"sips stays sips", "sips:a@x", []string{"<sip:b@x>, <sips:c@x>"}, "c"},
		{"a chain has an end", "sip:0@x", []string{"<sip:1@x>", "<sip:2@x>", "<sip:3@x>", "<sip:4@x>", "<sip:5@x>", "<sip:6@x>", "<sip:7@x>", "<sip:8@x>", "<sip:9@x>"}, "1 2 3 4 5 6 7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			u, err := message.ParseURI(row.first)
			if err != nil {
				t.Fatal(err)
			}
			all := targetsOf(u)
			var got []string
			for i := 0; ; i++ {
				if i < len(row.contacts) {
					res := &message.Message{Status: 302}
					for _, one := range strings.Split(row.contacts[i], ", ") {
						res.Add("Contact", one)
					}
					all.add(res)
				}
				if !all.advance() {
					break
				}
				if all.uri.Headers != "" || all.uri.Params.Has("method") {
					t.Errorf("calls %s", all.uri.String())
				}
				got = append(got, all.uri.User)
			}
			if strings.Join(got, " ") != row.want {
				t.Errorf("%v, want %s", got, row.want)
			}
		})
	}
}
