// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"strings"
	"testing"
	"time"
)

func TestEarlyMove(t *testing.T) {
	t.Run("a caller, softly: UPDATE, then the call is answered and moved", func(t *testing.T) {
		w, alice, bob := ringing(t, nil)
		w.seen = nil
		alice.add(2, aliceB)
		alice.use(2)
		w.pass(time.Second)
		expect(t, "messages", w.sent(), "UPDATE", "200")
		if !strings.Contains(target(bob), "2001:db8:b::1") {
			t.Errorf("bob's target is %v", bob.only().Target)
		}
		bob.pickUp(1)
		w.pass(time.Second)
		expect(t, "messages of the answer", w.sent(), "200", "ACK", "INVITE", "200", "ACK")
		if alice.only().Path != 2 || !strings.Contains(bob.media[1].peer, "path=2") {
			t.Errorf("%+v, bob has %q", alice.only(), bob.media[1].peer)
		}
	})
	t.Run("a caller, hard: what rings is given up, and called again", func(t *testing.T) {
		w, alice, bob := ringing(t, nil)
		w.seen = nil
		alice.add(2, aliceB)
		alice.lost(1)
		alice.use(2)
		w.pass(time.Second)
		if len(w.find("CANCEL")) != 1 || w.find("CANCEL")[0].from.String() != aliceB || len(w.find("INVITE")) != 1 {
			t.Errorf("messages: %v", w.sent())
		}
		if got := bob.only(); got.ID != 2 || got.State != Alerting {
			t.Fatalf("bob has %+v", got)
		}
		bob.pickUp(2)
		w.pass(time.Second)
		if alice.only().State != Up || alice.only().Path != 2 {
			t.Errorf("%+v", alice.only())
		}
	})
	t.Run("who is called: UPDATE, and the 200 with the same Contact", func(t *testing.T) {
		w, alice, bob := ringing(t, func(s *Settings) { s.Reliable = true })
		w.seen = nil
		bob.add(2, bobB)
		bob.lost(1)
		bob.use(2)
		w.pass(time.Second)
		expect(t, "messages", w.sent(), "UPDATE", "200")
		bob.pickUp(1)
		w.pass(time.Second)
		answer := w.find("200")
		expect(t, "messages of the answer", w.sent(), "200", "ACK")
		if !strings.Contains(answer[0].header("Contact"), bobB) {
			t.Errorf("the 200 has Contact %q", answer[0].header("Contact"))
		}
		byeReaches(t, w, alice, bob, bobB)
	})
}
