// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
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
