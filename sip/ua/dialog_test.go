// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// script is a peer that answers by hand.
type script struct {
	w     *world
	agent *agent
	at    flight // its last request from the agent
}

// scripted is a world in which alice calls a peer that answers by hand.
func scripted(t *testing.T) *script {
	t.Helper()
	w := newWorld(t)
	s := &script{w: w, agent: w.agent("alice", aliceA, nil)}
	s.agent.call(toBob)
	s.next("INVITE")
	return s
}

// next takes the agent's next request of a method.
func (s *script) next(method string) *message.Message {
	s.w.t.Helper()
	list := s.w.find(method)
	if len(list) == 0 {
		s.w.t.Fatalf("no %s among %v", method, s.w.sent())
	}
	s.at = list[len(list)-1]
	s.w.seen = nil
	return s.request()
}

func (s *script) request() *message.Message {
	m, fault := message.Parse(s.at.data)
	if fault != nil {
		s.w.t.Fatal(fault)
	}
	return m
}

// answer answers the last request; headers are pairs, body is the last argument.
func (s *script) answer(status int, tag, body string, headers ...string) {
	res := message.Reply(s.request(), status, "Some Reason", tag)
	res.Add("Contact", "<sip:[2001:db8:c::2]:5060>")
	res.Add("Allow", "INVITE, ACK, BYE, UPDATE, PRACK")
	for i := 0; i+1 < len(headers); i += 2 {
		res.Set(headers[i], headers[i+1])
	}
	setBody(res, []byte(body))
	s.w.send(s.at.to, s.at.from, "UDP", []byte(res.String()), nil)
	s.w.seen = nil
	s.w.pass(delay)
}

// ask sends a request of the peer's in the call.
func (s *script) ask(method string, seq int, body string, headers ...string) {
	d := s.agent.engine.calls[1].dialog
	lines := append([]string{
		method + " sip:alice@" + aliceA + " SIP/2.0", fmt.Sprintf("Via: SIP/2.0/UDP [2001:db8:c::2]:5060;branch=z9hG4bK%s%d", method, seq), "Max-Forwards: 70",
		"From: <sip:bob@[2001:db8:c::2]>;tag=" + d.dialogKey.remote, "To: <sip:alice@example.com>;tag=" + d.dialogKey.local,
		"Call-ID: " + d.callID, fmt.Sprintf("CSeq: %d %s", seq, method), "Contact: <sip:bob@[2001:db8:c::2]:5060>", "Content-Type: application/sdp",
		fmt.Sprintf("Content-Length: %d", len(body)),
	}, headers...)
	s.w.send(s.w.agents[0].paths[1], s.agent.paths[1], "UDP", []byte(strings.Join(lines, "\r\n")+"\r\n\r\n"+body), nil)
	s.w.seen = nil
	s.w.pass(delay)
}

func TestForkedCall(t *testing.T) {
	s := scripted(t)
	invite := s.at
	s.answer(180, "one", "")
	s.answer(180, "two", "")
	s.answer(200, "two", "answer")
	expect(t, "the first 2xx", s.w.sent(), "ACK")
	s.at = invite
	s.answer(200, "one", "answer")
	expect(t, "that of another branch", s.w.sent(), "ACK", "BYE")
	if s.agent.only().State != Up || s.agent.engine.calls[1].dialog.dialogKey.remote != "two" {
		t.Error("the call is not with the one that answered first")
	}
}

// Who answers an INVITE from more places than there are takes no more room.
func TestEarlyDialogsAreBounded(t *testing.T) {
	s := scripted(t)
	invite := s.at
	for i := range 10 * maxEarly {
		s.at = invite
		s.answer(180, fmt.Sprint("branch", i), "")
	}
	if n := len(s.agent.engine.dialogs); n != maxEarly {
		t.Errorf("%d early dialogs, want %d", n, maxEarly)
	}
	s.at = invite
	s.answer(200, "another", "answer")
	expect(t, "the answer of one more", s.w.sent(), "ACK")
	if n := len(s.agent.engine.dialogs); n != 1 || s.agent.only().State != Up {
		t.Errorf("%d dialogs are left", n)
	}
}

func TestRouteSet(t *testing.T) {
	for _, row := range []struct{ name, recorded, uri, routes string }{
		{"loose: the reverse of what was recorded", "<sip:[2001:db8:e::1];lr>, <sip:[2001:db8:e::2];lr>", "sip:[2001:db8:c::2]:5060", "<sip:[2001:db8:e::2];lr> <sip:[2001:db8:e::1];lr>"},
		{"strict: the first is the Request-URI", "<sip:[2001:db8:e::1];lr>, <sip:[2001:db8:e::2]>", "sip:[2001:db8:e::2]", "<sip:[2001:db8:e::1];lr> <sip:[2001:db8:c::2]:5060>"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := scripted(t)
			s.answer(200, "b", "answer", "Record-Route", row.recorded)
			s.agent.add(2, aliceB)
			for _, what := range []string{"ACK", "INVITE"} { // a target refresh changes no route
				r := s.next(what)
				routes := r.All("Route")
				if r.URI != row.uri || strings.Join(routes, " ") != row.routes || s.at.to.Addr().String() != "2001:db8:e::2" {
					t.Errorf("%s to %v: %v, Route %v", what, s.at.to, r.URI, routes)
				}
				s.agent.use(2)
			}
		})
	}
}

// Of provisional responses to a re-INVITE, an unreliable one refreshes no target and shows
// nothing; a reliable one does both (RFC 6141 sections 4.4 and 4.7).
func TestProvisionalResponsesToAMove(t *testing.T) {
	s := scripted(t)
	s.answer(200, "b", "answer")
	s.agent.add(2, aliceB)
	s.agent.lost(1)
	s.agent.use(2)
	s.next("INVITE")
	move := s.at
	s.answer(183, "b", "", "Contact", "<sip:bob@[2001:db8:9::9]:5060>")
	if _, ok := s.agent.told(Moved); ok || !strings.Contains(target(s.agent), "db8:c::2") {
		t.Errorf("after an unreliable one: %s", target(s.agent))
	}
	s.answer(183, "b", "", "Contact", "<sip:bob@[2001:db8:9::9]:5060>", "Require", "100rel", "RSeq", "7")
	if _, ok := s.agent.told(Moved); !ok || !strings.Contains(target(s.agent), "db8:9::9") {
		t.Errorf("after a reliable one: %s, %v", target(s.agent), s.agent.kinds())
	}
	if r := s.next("PRACK"); r.Get("RAck") != "7 2 INVITE" {
		t.Errorf("RAck: %s", r.Get("RAck"))
	}
	s.at = move
	s.answer(200, "b", "answer")
	expect(t, "the answer", s.w.sent(), "ACK")
}

// The offer of the INVITE is answered by a reliable 18x: a move before the call is answered
// takes media along, by UPDATE with an offer (RFC 3311 section 5.1).
func TestEarlyMoveWithMedia(t *testing.T) {
	s := scripted(t)
	invite := s.at
	s.answer(183, "b", "answer", "Require", "100rel", "RSeq", "1")
	s.next("PRACK")
	s.answer(200, "b", "")
	s.agent.add(2, aliceB)
	s.agent.use(2)
	r := s.next("UPDATE")
	if !strings.Contains(string(r.Body), "v=2 offer path=2") {
		t.Errorf("UPDATE with %q", r.Body)
	}
	s.answer(200, "b", "answer")
	if !slices.Contains(s.agent.kinds(), "moved") {
		t.Error("not moved")
	}
	s.at = invite
	s.answer(200, "b", "")
	s.w.pass(time.Second)
	expect(t, "after the answer", s.w.sent(), "ACK")
	if s.agent.only().Path != 2 {
		t.Errorf("%+v", s.agent.only())
	}
}

func TestUpdateReceived(t *testing.T) {
	t.Run("with an offer in a call", func(t *testing.T) {
		s := scripted(t)
		s.answer(200, "b", "answer")
		s.ask("UPDATE", 10, "offer of bob's")
		expect(t, "the answer", s.w.sent(), "200")
		if s.agent.media[1].peer != "offer of bob's" {
			t.Errorf("alice has %q", s.agent.media[1].peer)
		}
		s.agent.media[1].refuse = true
		s.ask("UPDATE", 11, "offer of bob's")
		expect(t, "one that cannot be", s.w.sent(), "488")
	})
	t.Run("with an offer while ours is open", func(t *testing.T) {
		s := scripted(t)
		s.answer(180, "b", "")
		s.ask("UPDATE", 10, "offer of bob's")
		expect(t, "the answer", s.w.sent(), "491")
	})
	t.Run("with an offer while theirs is", func(t *testing.T) {
		w, alice, _ := ringing(t, nil)
		c := alice.engine.calls[1]
		leave := alice.engine.enter(w.now, &alice.out)
		c.sendUpdate(c.dialog, []byte("offer"), func(*message.Message, error) {})
		leave()
		alice.flush()
		w.pass(2 * delay)
		if got := w.find("500"); len(got) != 1 || got[0].header("Retry-After") == "" {
			t.Errorf("%v", w.sent())
		}
	})
}

// A re-INVITE without offer gets one, and its ACK has the answer (RFC 3261 section 14.2).
func TestReinviteWithoutOffer(t *testing.T) {
	s := scripted(t)
	s.answer(200, "b", "answer")
	s.ask("INVITE", 10, "")
	answer := s.w.find("200")
	if len(answer) != 1 || !strings.Contains(string(answer[0].data), "v=2 offer path=1") {
		t.Fatalf("%v", s.w.sent())
	}
	s.agent.add(2, aliceB)
	s.agent.use(2)
	if len(s.w.find("INVITE")) != 0 {
		t.Error("a move does not wait for the answer to our offer")
	}
	s.ask("ACK", 10, "answer of bob's")
	if s.agent.media[1].peer != "answer of bob's" {
		t.Errorf("alice has %q", s.agent.media[1].peer)
	}
	expect(t, "then the call moves", s.w.sent(), "INVITE")
}
