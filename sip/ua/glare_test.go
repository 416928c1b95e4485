// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// A peer that answers every re-INVITE by 491 is not asked for ever (RFC 3261 section 14.1).
func TestGlareWithoutEnd(t *testing.T) {
	for _, row := range []struct {
		name  string
		begin func(w *world, alice, bob *agent) *agent // and who asks
		peer  string
		ask   int // re-INVITEs within an hour
		last  string
	}{
		{"the owner of the Call-ID holds", func(w *world, alice, _ *agent) *agent {
			alice.do(alice.engine.Hold(1, true, w.now, &alice.out))
			return alice
		}, "bob", 1 + maxWaits, "hold_failed"},
		{"the other holds", func(w *world, _, bob *agent) *agent {
			bob.do(bob.engine.Hold(1, true, w.now, &bob.out))
			return bob
		}, "alice", 1 + maxWaits, "hold_failed"},
		{"the owner moves, and its old path is there", func(_ *world, alice, _ *agent) *agent {
			alice.add(2, aliceB)
			alice.use(2)
			return alice
		}, "bob", 1 + maxWaits, "move_failed"},
		// Then ever more seldom, each 32 s in the end.
		{"the owner moves, and its old path is gone", func(_ *world, alice, _ *agent) *agent {
			alice.add(2, aliceB)
			alice.lost(1)
			alice.use(2)
			return alice
		}, "bob", 1 + maxWaits + 3600/32 + 4, "move_failed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, alice, bob := pair(t, func(s *Settings) { s.SessionExpires = -1 })
			w.change = func(m *message.Message) {
				if _, method, _ := m.CSeq(); m.Status == 200 && method == "INVITE" && strings.Contains(m.Get("To"), row.peer) {
					m.Status, m.Reason, m.Body = 491, "Request Pending", nil
				}
			}
			by := row.begin(w, alice, bob)
			w.pass(time.Hour)
			if n := len(w.find("INVITE")); n > row.ask || n <= maxWaits {
				t.Errorf("%d re-INVITEs in an hour, want %d to %d", n, maxWaits+1, row.ask)
			}
			kinds := by.kinds()
			if len(kinds) == 0 || kinds[len(kinds)-1] != row.last || by.only().State != Up {
				t.Errorf("%v, %+v", kinds, by.only())
			}
		})
	}
}

// A peer that has refused a move by 491 often, and moves itself, has taken it: what comes next has its own patience.
func TestGlareBehindAMove(t *testing.T) {
	w, alice, bob := pair(t, func(s *Settings) { s.SessionExpires = -1 })
	refuse := 1000
	w.change = func(m *message.Message) {
		if _, method, _ := m.CSeq(); m.Status == 200 && method == "INVITE" && strings.Contains(m.Get("To"), "bob") && refuse > 0 {
			refuse--
			m.Status, m.Reason, m.Body = 491, "Request Pending", nil
		}
	}
	alice.add(2, aliceB)
	alice.lost(1)
	alice.use(2)
	w.pass(time.Minute)
	if _, failed := alice.told(MoveFailed); !failed {
		t.Fatal("the move is not refused")
	}
	bob.do(bob.engine.Hold(1, true, w.now, &bob.out))
	w.pass(time.Second)
	if _, moved := alice.told(Moved); !moved {
		t.Fatal("bob's re-INVITE does not end the move")
	}
	refuse = 1
	alice.do(alice.engine.Hold(1, true, w.now, &alice.out))
	w.pass(time.Minute)
	if _, held := alice.told(Held); !held || refuse != 0 {
		t.Errorf("after one 491: %v", alice.kinds())
	}
}
