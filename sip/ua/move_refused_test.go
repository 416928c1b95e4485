// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A move while another is pending waits for it, and several are one.
func TestMovesCoalesce(t *testing.T) {
	w, alice, bob := pair(t, nil)
	for id := 2; id <= 4; id++ {
		alice.add(id, fmt.Sprintf("[2001:db8:f::%d]:5060", id))
	}
	for id := 2; id <= 4; id++ {
		alice.use(id)
		w.pass(time.Millisecond)
	}
	w.pass(time.Second)
	if got := len(w.find("INVITE")); got != 2 {
		t.Errorf("%d re-INVITEs, want one for the first path and one for the last", got)
	}
	if alice.only().Path != 4 || alice.only().Moving {
		t.Errorf("%+v", alice.only())
	}
	byeReaches(t, w, bob, alice, "[2001:db8:f::4]:5060")
}

func TestMoveBackBeforeTheAnswer(t *testing.T) {
	w, alice, bob := pair(t, nil)
	alice.add(2, aliceB)
	alice.use(2)
	w.pass(time.Millisecond)
	alice.lost(2)
	alice.use(1)
	w.pass(time.Second)
	if !strings.Contains(bob.media[1].peer, "path=1") || alice.only().Path != 1 {
		t.Errorf("bob sends to %q", bob.media[1].peer)
	}
	byeReaches(t, w, bob, alice, aliceA)
}

func TestLostMoveIsRepeated(t *testing.T) {
	for _, row := range []struct {
		name  string
		lose  string
		first time.Duration
		took  time.Duration
	}{
		{"the re-INVITE is lost", "INVITE", 0, 500*time.Millisecond + 2*delay},
		{"its 200 is lost", "200", 0, 500*time.Millisecond + 2*delay},
		{"repeated faster", "INVITE", 80 * time.Millisecond, 80*time.Millisecond + 2*delay},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, alice, _ := pair(t, func(s *Settings) { s.FirstRepeat = row.first })
			lost := false
			w.lose = func(f flight) bool {
				hit := f.first() == row.lose && !lost
				lost = lost || hit
				return hit
			}
			alice.add(2, aliceB)
			alice.lost(1)
			alice.use(2)
			w.pass(time.Second)
			if v, ok := alice.told(Moved); !ok || v.Took != row.took {
				t.Errorf("%+v, want a move of %v", alice.events, row.took)
			}
		})
	}
}

func TestRefusedMove(t *testing.T) {
	t.Run("the old path is there: the call stays on it and says so", func(t *testing.T) {
		w, alice, bob := pair(t, nil)
		bob.media[1].refuse = true
		alice.add(2, aliceB)
		alice.use(2)
		w.pass(time.Minute)
		expect(t, "alice", alice.kinds(), "moving", "move_failed")
		if got := alice.only(); got.Path != 1 || got.State != Up || got.Moving {
			t.Errorf("%+v", got)
		}
		if n := len(w.find("INVITE")); n != 1 {
			t.Errorf("%d re-INVITEs, want one", n)
		}
		byeReaches(t, w, bob, alice, aliceA) // RFC 6141 section 4.6: an error refreshes no target
	})
	t.Run("whatever follows goes by the old path", func(t *testing.T) {
		for _, other := range []string{aliceB, "192.0.2.9:5060"} { // refused by the peer; of a family that does not lead there
			w, alice, bob := pair(t, nil)
			bob.media[1].refuse = true
			alice.add(2, other)
			alice.use(2)
			w.pass(time.Minute)
			expect(t, "alice", alice.kinds(), "moving", "move_failed")
			if n := alice.engine.Stats().MovesFailed; n != 1 {
				t.Errorf("%s: the peer was asked %d times", other, n)
			}
			bob.media[1].refuse = false
			bob.do(bob.engine.Hold(1, true, w.now, &bob.out))
			w.pass(time.Second)
			expect(t, "bob", bob.kinds(), "held")
			expect(t, "alice", alice.kinds(), "renegotiated")
			if got := bob.media[1].peer; !strings.Contains(got, "path=1") {
				t.Errorf("%s: bob sends to %q", other, got)
			}
			alice.do(alice.engine.Hold(1, true, w.now, &alice.out))
			w.pass(time.Second)
			expect(t, "alice", alice.kinds(), "held")
			if got := target(bob); got != "sip:alice@"+aliceA {
				t.Errorf("%s: bob calls %s", other, got)
			}
			byeReaches(t, w, alice, bob, bobA)
		}
	})
	t.Run("the peer is asked again when the old path is gone", func(t *testing.T) {
		w, alice, bob := pair(t, nil)
		bob.media[1].refuse = true
		alice.add(2, aliceB)
		alice.use(2)
		w.pass(time.Minute)
		bob.media[1].refuse = false
		alice.lost(1)
		w.pass(time.Second)
		expect(t, "alice", alice.kinds(), "moving", "move_failed", "moving", "moved")
		byeReaches(t, w, bob, alice, aliceB)
	})
	t.Run("it is gone: the peer is asked again, ever more seldom", func(t *testing.T) {
		w, alice, bob := pair(t, nil)
		bob.media[1].refuse = true
		alice.add(2, aliceB)
		alice.lost(1)
		alice.use(2)
		w.pass(8 * time.Second)
		if n := len(w.find("INVITE")); n != 3 {
			t.Errorf("%d re-INVITEs, want three", n)
		}
		bob.media[1].refuse = false
		w.pass(10 * time.Second)
		if alice.only().Path != 2 {
			t.Errorf("%+v", alice.only())
		}
	})
	t.Run("500 with Retry-After is obeyed up to a cap", func(t *testing.T) {
		w, alice, bob := pair(t, nil)
		bob.engine.calls[1].state = Alerting // as if the first INVITE had no answer
		alice.add(2, aliceB)
		alice.lost(1)
		alice.use(2)
		w.pass(2 * delay)
		expect(t, "messages", w.sent(), "INVITE", "500", "ACK")
		bob.engine.calls[1].state = Up
		w.pass(5 * time.Second)
		if v, ok := alice.told(Moved); !ok || v.Took > 4*time.Second+4*delay {
			t.Errorf("%+v", alice.events)
		}
	})
	t.Run("481 ends the call", func(t *testing.T) {
		w, alice, bob := pair(t, nil)
		leave := bob.engine.enter(w.now, &bob.out)
		bob.engine.calls[1].end(0, "")
		leave()
		alice.add(2, aliceB)
		alice.use(2)
		w.pass(time.Second)
		if v, ok := alice.told(Ended); !ok || v.Status != 481 {
			t.Errorf("%+v", alice.events)
		}
	})
}
