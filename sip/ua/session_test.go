// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSessionIsRefreshed(t *testing.T) {
	for _, row := range []struct {
		name    string
		updates bool
		want    []string
	}{
		{"by UPDATE if the peer has it", true, []string{"UPDATE", "200"}},
		{"else by re-INVITE", false, []string{"INVITE", "200", "ACK"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, alice, bob := pair(t, func(s *Settings) { s.SessionExpires = 10 * time.Minute })
			for _, a := range w.agents {
				a.engine.calls[1].dialog.updates = row.updates
				a.engine.calls[1].dialog.updates = row.updates
			}
			if !bob.engine.calls[1].session.refresher || alice.engine.calls[1].session.refresher {
				t.Fatal("who refreshes is not agreed")
			}
			w.pass(4*time.Minute + 59*time.Second - time.Second)
			expect(t, "before half the interval", w.sent())
			w.pass(3 * time.Second)
			expect(t, "after it", w.sent(), row.want...)
			w.pass(time.Hour)
			if alice.only().State != Up || bob.only().State != Up {
				t.Error("the call has not lasted")
			}
		})
	}
}

// A refresh that is refused comes again when half of what is left of the session is over, and the session
// ends at its end if none succeeds (RFC 4028 section 10).
func TestRefusedRefresh(t *testing.T) {
	const reinvites, updates = "INVITE, ACK, BYE", "INVITE, ACK, BYE, UPDATE"
	for _, row := range []struct {
		name, allow string
		status      int
		headers     []string
		again       time.Duration
	}{
		{"by a re-INVITE's 500", reinvites, 500, nil, 150 * time.Second},
		{"488", reinvites, 488, nil, 150 * time.Second},
		{"491", reinvites, 491, nil, 150 * time.Second},
		{"503 with Retry-After", reinvites, 503, []string{"Retry-After", "200"}, 200 * time.Second},
		{"500 that asks for it at once", reinvites, 500, []string{"Retry-After", "0"}, 150 * time.Second},
		{"503 that asks for more than there is", reinvites, 503, []string{"Retry-After", "300"}, 150 * time.Second},
		{"422 that asks for nothing", reinvites, 422, nil, 150 * time.Second},
		{"by an UPDATE's 500", updates, 500, nil, 150 * time.Second},
		{"UPDATE, 503 with Retry-After", updates, 503, []string{"Retry-After", "200"}, 200 * time.Second},
		{"UPDATE, 491", updates, 491, nil, 150 * time.Second},
		{"UPDATE, 422 that asks for nothing", updates, 422, nil, 150 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := scripted(t)
			answer := []string{"Session-Expires", "600;refresher=uac", "Allow", row.allow}
			s.answer(200, "b", "answer", answer...)
			method := map[string]string{reinvites: "INVITE", updates: "UPDATE"}[row.allow]
			refuse := func() {
				s.next(method)
				s.answer(row.status, "", "", append(row.headers, "Allow", row.allow)...)
			}
			s.w.pass(5 * time.Minute)
			refuse()
			s.w.pass(row.again - 2*delay)
			expect(t, "before it is tried again", slices.DeleteFunc(s.w.sent(), func(one string) bool { return one == "ACK" }))
			s.w.pass(4 * delay)
			s.next(method)
			s.answer(200, "", "answer", answer...)
			s.w.pass(4 * time.Minute)
			if s.agent.only().State != Up {
				t.Fatal("the session is not refreshed")
			}
			s.w.pass(time.Minute)
			refuse()
			for range 20 {
				s.w.pass(20 * time.Second)
				if len(s.w.find(method)) > 0 {
					refuse()
				}
			}
			if v, ok := s.agent.told(Ended); !ok || v.Status != 408 {
				t.Errorf("%+v, want an end by 408", s.agent.events)
			}
		})
	}
	t.Run("what waits behind it goes on", func(t *testing.T) {
		s := scripted(t)
		s.answer(200, "b", "answer", "Session-Expires", "600;refresher=uac", "Allow", reinvites)
		s.w.pass(5 * time.Minute)
		s.next("INVITE")
		s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
		s.answer(488, "", "")
		expect(t, "messages", s.w.sent(), "ACK", "INVITE")
	})
	t.Run("given up for the peer's, which is refused", func(t *testing.T) {
		s := scripted(t)
		s.answer(200, "b", "answer", "Session-Expires", "600;refresher=uac", "Allow", reinvites)
		s.w.pass(5*time.Minute + 2*time.Second)
		first := s.next("INVITE").Get("CSeq")
		s.agent.media[1].refuse = true
		s.ask("INVITE", 10, "offer of bob's")
		expect(t, "messages", s.w.sent(), "488")
		s.ask("ACK", 10, "")
		s.w.pass(150 * time.Second)
		if s.next("INVITE").Get("CSeq") == first {
			t.Error("it is not tried again")
		}
	})
}

func TestDeadPeerEndsTheSession(t *testing.T) {
	w, alice, bob := pair(t, func(s *Settings) { s.SessionExpires = 10 * time.Minute })
	bob.lost(1)
	w.pass(9*time.Minute + 27*time.Second - time.Second)
	if alice.only().State != Up {
		t.Fatal("ended early")
	}
	w.pass(2 * time.Second)
	if v, ok := alice.told(Ended); !ok || v.Status != 408 {
		t.Errorf("%+v", alice.events)
	}
}

func TestShortIntervalIsRaised(t *testing.T) {
	w := newWorld(t)
	alice := w.agent("alice", aliceA, func(s *Settings) { s.SessionExpires = 100 * time.Second })
	w.agent("bob", bobA, func(s *Settings) { s.MinSE = 200 * time.Second })
	alice.call(toBob)
	w.pass(time.Second)
	expect(t, "messages", w.sent(), "INVITE", "422", "ACK", "INVITE", "180", "200", "ACK")
	if got := alice.engine.calls[1].session.on; got != 200*time.Second {
		t.Errorf("agreed on %v", got)
	}
}

// The re-INVITE of a move is a refresh, and leaves who refreshes next as it was.
func TestMoveRefreshesTheSession(t *testing.T) {
	w, alice, bob := pair(t, func(s *Settings) { s.SessionExpires = 10 * time.Minute })
	w.pass(4 * time.Minute)
	alice.add(2, aliceB)
	alice.use(2)
	w.pass(time.Second)
	if got := w.find("INVITE")[0].header("Session-Expires"); got != "600;refresher=uas" {
		t.Errorf("Session-Expires: %s", got)
	}
	w.seen = nil
	w.pass(4*time.Minute + 50*time.Second)
	expect(t, "before half the interval since the move", w.sent())
	if !bob.engine.calls[1].session.refresher {
		t.Error("another refreshes")
	}
}

func TestPeerWithoutTimers(t *testing.T) {
	w := newWorld(t)
	bob := w.agent("bob", bobA, nil)
	text := strings.Join([]string{
		"INVITE " + toBob + " SIP/2.0", "Via: SIP/2.0/UDP [2001:db8:66::6]:5060;branch=z9hG4bK1", "Max-Forwards: 70",
		"From: <sip:old@example.com>;tag=m", "To: <sip:bob@example.com>", "Call-ID: 1", "CSeq: 1 INVITE",
		"Contact: <sip:m@[2001:db8:66::6]>", "Content-Type: application/sdp", "Content-Length: 5", "", "offer",
	}, "\r\n")
	w.send(bob.paths[1], bob.paths[1], "UDP", []byte(text), nil)
	w.pass(delay)
	answer := w.find("200")
	if len(answer) != 1 || answer[0].header("Session-Expires") != "" {
		t.Errorf("%v", answer)
	}
}
